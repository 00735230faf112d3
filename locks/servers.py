"""Which Redis server a client talks to, and whether it is fit to hold locks with."""

from __future__ import annotations

from collections.abc import Hashable

from redis import Redis


def server_of(client: Redis) -> Hashable:
    """Return what is the same for all clients of one database of one server."""
    options = client.connection_pool.connection_kwargs
    address = options.get("path") or options.get("host")
    if address is None:  # such as a sentinel's, which has none that lasts
        return client.connection_pool
    return (address, options.get("port"), options.get("db") or 0)


def check_client(client: Redis) -> None:
    """Refuse a client whose answers would not be understood.

    :raises ValueError: it does not decode replies
    """
    if not client.connection_pool.connection_kwargs.get("decode_responses"):
        raise ValueError("locks need a client with decode_responses=True")


def check_hasty(client: Redis) -> None:
    """Refuse a client that tries again by itself, as one of several must not wait for one.

    :raises ValueError: it has retries
    """
    retry = client.connection_pool.connection_kwargs.get("retry")
    if retry is not None and retry.get_retries() != 0:
        raise ValueError("a quorum needs clients without retries: retry=Retry(NoBackoff(), 0)")
