"""The work that a buyer's browser does, in Python."""

from collections.abc import Iterator
from hashlib import sha256
from itertools import count

from orders.placing.tokens import PurchaseToken


def do_work(token: PurchaseToken) -> str:
    """Return the text of a token with a nonce that fits."""
    return next(it for it in _texts(token) if _zero_bits(it) >= token.work)


def do_too_little_work(token: PurchaseToken) -> str:
    """Return the text of a token with a nonce that misses by one bit."""
    return next(it for it in _texts(token) if _zero_bits(it) == token.work - 1)


def _texts(token: PurchaseToken) -> Iterator[str]:
    signed = token.sign()
    return (f"{signed}~{number}" for number in count())


def _zero_bits(text: str) -> int:
    return 256 - int.from_bytes(sha256(text.encode()).digest()).bit_length()
