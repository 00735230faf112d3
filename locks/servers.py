"""The Redis server of a client, and whether the client is fit for locks."""

from __future__ import annotations

from collections.abc import Hashable

from redis import Redis


def server_of(client: Redis) -> Hashable:
    """Return a value that all clients of one database of one server share."""
    options = client.connection_pool.connection_kwargs
    address = options.get("path") or options.get("host")
    if address is None:  # a sentinel's client, for example, has no lasting address
        return client.connection_pool
    return (address, options.get("port"), options.get("db") or 0)


def check_client(client: Redis, *, retries: bool = True) -> None:
    """Refuse a client that does not decode, or that has retries where it must not.

    :raises ValueError: the client is not fit
    """
    options = client.connection_pool.connection_kwargs
    if not options.get("decode_responses"):
        raise ValueError("locks need a client with decode_responses=True")
    retry = options.get("retry")
    if not retries and retry is not None and retry.get_retries() != 0:
        raise ValueError("a quorum needs clients without retries: retry=Retry(NoBackoff(), 0)")
