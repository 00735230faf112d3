"""The computation of a draw: pure functions of texts; anybody can repeat it with ``sha256sum``."""

from collections.abc import Iterable
from hashlib import sha256


def commitment_of(seed: str) -> str:
    """Return what is shown of a seed before the draw."""
    return _digest(seed)


def list_digest(entry_ids: Iterable[int]) -> str:
    """Return the digest of a closed list: its ids in rising order, one a line."""
    return _digest("".join(f"{entry_id}\n" for entry_id in sorted(entry_ids)))


def ticket(*, seed: str, digest: str, entry_id: int) -> str:
    """Return the text that decides an entry's place in the drawn order."""
    return _digest(f"{seed}:{digest}:{entry_id}")


def drawn_order(*, seed: str, digest: str, entry_ids: Iterable[int]) -> list[int]:
    """Return the ids in drawn order; the first ones win."""

    def key(entry_id: int) -> tuple[str, int]:
        return ticket(seed=seed, digest=digest, entry_id=entry_id), entry_id

    return sorted(entry_ids, key=key)


def _digest(text: str) -> str:
    return sha256(text.encode("ascii")).hexdigest()
