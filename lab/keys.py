"""The names of the lab's keys in Redis.

All of a sale's keys share one hash tag, so that a script may use several of them on a cluster too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LabKeys:
    """The keys of one sale of the lab."""

    sale_id: int

    def _key(self, name: str) -> str:
        return f"lab:{{{self.sale_id}}}:{name}"

    @property
    def stock(self) -> str:
        """A string: units left, counted down."""
        return self._key("stock")

    @property
    def buyers(self) -> str:
        """A set: the user ids of those who were given a unit."""
        return self._key("buyers")

    @property
    def stream(self) -> str:
        """A stream: the orders to be written."""
        return self._key("stream")

    def lock_of(self, user_id: int) -> str:
        """A string: somebody is at an order of this buyer."""
        return self._key(f"lock:{user_id}")

    @property
    def all_of_them(self) -> str:
        """A pattern that finds every key of the sale."""
        return self._key("*")
