"""The lab's keys in Redis.

All keys of a sale share one hash tag, so that a script may use several of them on a cluster too.
"""

from seckill_site.redis.ledger_connection import ledger_connection

NO_EXPIRY = -1
"""The time to live that Redis reports for a key that never expires."""

USER_LOCKS = "lab:lock:"
"""The start of the keys of locks on all orders of a user."""


class LabKeys:
    """The keys of one sale of the lab.

    ``stock`` is a string: units left, counted down. ``buyers`` is a set: the user ids that got a
    unit. ``window`` is a hash: start and end in ms. ``stream`` is a stream: the orders to write.
    ``pattern`` matches every key of the sale.
    """

    def __init__(self, sale_id: int) -> None:
        self._prefix = f"lab:{{{sale_id}}}:"
        self.stock = f"{self._prefix}stock"
        self.buyers = f"{self._prefix}buyers"
        self.window = f"{self._prefix}window"
        self.stream = f"{self._prefix}stream"
        self.pattern = f"{self._prefix}*"

    def lock_of(self, user_id: int) -> str:
        """Return the key of the lock on this buyer's orders."""
        return f"{self._prefix}lock:{user_id}"


def delete_keys(pattern: str) -> None:
    """Delete all keys that match a pattern."""
    client = ledger_connection()
    if keys := list(client.scan_iter(pattern, count=1_000)):
        client.unlink(*keys)
