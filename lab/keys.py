"""The names of the lab's keys in Redis.

All keys of a sale share one hash tag, so that a script may use several of them on a cluster too.
"""

from __future__ import annotations


class LabKeys:
    """The keys of one sale of the lab.

    ``stock`` is a string: units left, counted down. ``buyers`` is a set: the user ids of those who
    got a unit. ``stream`` is a stream: the orders to be written. ``every`` is a pattern that finds
    every key of the sale.
    """

    def __init__(self, sale_id: int) -> None:
        self._prefix = f"lab:{{{sale_id}}}:"
        self.stock = f"{self._prefix}stock"
        self.buyers = f"{self._prefix}buyers"
        self.stream = f"{self._prefix}stream"
        self.every = f"{self._prefix}*"

    def lock_of(self, user_id: int) -> str:
        """Return the key of the lock on this buyer's orders."""
        return f"{self._prefix}lock:{user_id}"
