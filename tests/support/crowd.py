"""A crowd of buyers, sent by the client of rehearsals: prepared requests, as good as at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from backoffice.rehearsal.http_client import NO_ANSWER, Address, send_all
from backoffice.rehearsal.http_client import Response as Answer

__all__ = ["NO_ANSWER", "Answer", "fire", "post"]


def post(path: str, fields: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a POST request with a JSON body."""
    return Address.of("http://localhost").request("POST", path, fields, headers)


def fire(
    requests: Sequence[bytes], *, url: str, connections: int = 100, timeout_seconds: float = 30
) -> list[Answer]:
    """Send all requests to a server and return their answers in the same order."""
    send = partial(
        send_all,
        requests,
        address=Address.of(url),
        connections=connections,
        timeout_s=timeout_seconds,
    )
    # In a thread of its own, because a browser test leaves an event loop running in this one.
    with ThreadPoolExecutor(1) as thread:
        answers = thread.submit(send).result()
    return [answers[number] for number in range(len(requests))]
