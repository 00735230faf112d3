"""The story of the six steps in words: what each is, fixes and leaves, and what is done instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


@dataclass(frozen=True)
class Chapter:
    """One of the six, in its forms; ``steps`` are their names. Texts are Markdown."""

    title: StrOrPromise
    steps: tuple[str, ...]
    what: StrOrPromise
    fixes: StrOrPromise
    leaves: StrOrPromise
    instead: StrOrPromise = ""


CHAPTERS = (
    Chapter(
        title=_("V1: straight to the database"),
        steps=("v1", "v1-as-read", "v1-any-left", "v1-for-update"),
        what=_(
            "Read the stock; if any is left, take one unit and write the order. "
            "Three guards are tried on it: take a unit only if the stock is still "
            "what was read; take one only where `stock > 0`; lock the row with "
            "`SELECT … FOR UPDATE` before reading."
        ),
        fixes=_(
            "Each of the three guards stops overselling. `stock > 0` and the row "
            "lock let every buyer through for whom there is a unit."
        ),
        leaves=_(
            "Without a guard, everyone who has read the last unit takes it. When the "
            "stock must be as it was read, one of those who meet gets a unit and the "
            "others are turned away, although there is enough for all. And none of "
            "the four checks whether the buyer already has a unit."
        ),
        instead=_(
            "Nothing is counted down. What is left is the total minus the buyers, "
            "computed by a script that runs alone in Redis. Behind it, the "
            "transaction locks the sale's row before it looks at anything else."
        ),
    ),
    Chapter(
        title=_("V2: one order per buyer, counted first"),
        steps=("v2",),
        what=_("Count the buyer's orders first, and continue only if there are none."),
        fixes=_("Two presses of one buyer, one after the other."),
        leaves=_(
            "Two presses at the same moment: both count zero before either has "
            "written. A row that does not exist yet cannot be locked."
        ),
        instead=_(
            "A unique key on buyer, sale and unit, which holds whatever the order of "
            "events. The script in Redis refuses much earlier, but the key has the "
            "last word."
        ),
    ),
    Chapter(
        title=_("V3: a lock in the process"),
        steps=("v3", "v3-inside"),
        what=_("V2's transaction under a lock for each buyer, in the memory of the process."),
        fixes=_("Double clicks that reach the same process: try `--processes 1`."),
        leaves=_(
            "Two processes have two locks, and no shop has just one process. "
            "Besides, the lock has to outlast the commit: if it is released inside "
            "the transaction, the next buyer counts before the order is visible."
        ),
        instead=_(
            "Locks are in Redis, around the transaction and never inside it, and one "
            "call takes the locks of all buyers of a batch. The result does not "
            "depend on any of them: a test runs without them, and the row lock and "
            "the unique key hold."
        ),
    ),
    Chapter(
        title=_("V4: a script in Redis decides first"),
        steps=("v4",),
        what=_(
            "A script takes the unit and remembers the buyer, in one atomic step. "
            "Then the same request writes the order."
        ),
        fixes=_(
            "No buyer is given a unit too many or a second one, however many "
            "processes there are, and buyers who come too late cost no SQL."
        ),
        leaves=_(
            "Redis has given away units that the database does not know about. If "
            "the process dies in between, the unit is gone, and its buyer gets "
            "“already ordered” for ever. If Redis loses its data, nobody knows any "
            "more what was given away."
        ),
        instead=_(
            "The script that accepts a buyer also records the promise, in the "
            "pending set. It stays there until its row is committed, whoever dies in "
            "the meantime, and every two seconds a sweep looks for entries that have "
            "waited too long. A lost ledger is rebuilt from the rows."
        ),
    ),
    Chapter(
        title=_("V5: a queue writes later"),
        steps=("v5", "v5-stream"),
        what=_(
            "The script decides, the order goes into a queue, the buyer is told "
            "“queued”, and a thread writes. At first the queue is in the memory of "
            "the process. Later it is a Redis Stream, with a group of readers and a "
            "list of what each has read and not finished."
        ),
        fixes=_(
            "The answer does not wait for the database. And in the stream, a "
            "decision outlives the process that made it."
        ),
        leaves=_(
            "A queue in memory dies with its process, and with it the promises to "
            "its buyers. What a reader of the stream was working on when it died "
            "stays in its list, and no reader with another name looks there. And a "
            "stream is only as safe as Redis: if Redis comes back empty, buyers who "
            "were only promised a unit have nothing and are told nothing."
        ),
        instead=_(
            "No message carries the promise. A Celery task only says that a sale has "
            "work to do, one task for a whole burst; it may come late, twice or "
            "never. What needs to be written is read from the ledger each time, by "
            "whichever worker is there. If even the ledger was lost, the buyer's "
            "receipt says so."
        ),
    ),
    Chapter(
        title=_("V6: a lock in Redis"),
        steps=("v6-setnx", "v6-expiring", "v6-owned", "v6-watchdog"),
        what=_(
            "V2's transaction under a lock in Redis for each buyer, shared by all "
            "processes. It grows up in four forms: `SETNX` and `DEL`; with an "
            "expiry; with a value of its own, compared before it is deleted; renewed "
            "by a watchdog."
        ),
        fixes=_("Double clicks that reach different processes."),
        leaves=_(
            "Without an expiry, a holder that dies leaves the lock for ever. With "
            "one, a holder that freezes for longer continues without the lock, next "
            "to the new holder, and deletes the new holder's lock. A value of its "
            "own saves the other's lock, but not the order. A watchdog helps when "
            "the work takes long, not when its process freezes: then the watchdog "
            "freezes too."
        ),
        instead=_(
            "A lease, a watchdog, and a fencing token: a number that grows with "
            "every holder. The transaction compares it with the highest one the "
            "sale's row has seen, so the database refuses a holder that was "
            "overtaken, however late it comes."
        ),
    ),
    Chapter(
        title=_("Ours: this shop"),
        steps=("ours",),
        what=_(
            "The production code itself, not a copy: `orders/placing/service.py` in "
            "the selling processes, and behind it a real Celery worker and beat, "
            "which are killed, stopped and deprived of Redis like all the others."
        ),
        fixes=_(
            "All of the above. Every unit is sold once, to one buyer each, and every promise ends "
            "in an order or in a receipt that says why not."
        ),
        leaves=_(
            "What a fault costs is time: until a worker is back, a lease has expired "
            "or the sweep has run. And if Redis loses its data, buyers known only to "
            "Redis lose their orders; their receipts say so, and their units are "
            "sold to others. An append-only file avoids this: the race runs without "
            "one."
        ),
    ),
)
