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
            "Read the stock, and if there is any, take one off and write the order. Three guards "
            "are tried on it: take only if the stock is still what was read; take only where "
            "`stock > 0`; lock the row with `SELECT … FOR UPDATE` before reading."
        ),
        fixes=_(
            "Each of the three guards ends the overselling. `stock > 0` and the row lock let "
            "everybody through for whom there is a unit."
        ),
        leaves=_(
            "Without a guard, all who have read the last unit take it. With the stock as it was "
            "read, one of those who meet gets a unit and the others are sent away, while there is "
            "enough for all. And none of the four asks whether the buyer has a unit already."
        ),
        instead=_(
            "Nothing is counted down. What is left is the total less the buyers, and a script "
            "that runs alone in Redis works it out. Behind it the transaction locks the sale's row "
            "before it looks at anything else."
        ),
    ),
    Chapter(
        title=_("V2: one order a buyer, counted first"),
        steps=("v2",),
        what=_("Count the buyer's orders first, and go on only where there is none."),
        fixes=_("Two presses of one buyer, one after the other."),
        leaves=_(
            "Two presses at the same moment: both count none before either has written. What is "
            "not there yet cannot be locked."
        ),
        instead=_(
            "A unique key on buyer, sale and unit, which holds in whatever order things happen. "
            "The script in Redis says no much earlier, but the key has the last word."
        ),
    ),
    Chapter(
        title=_("V3: a lock in the process"),
        steps=("v3", "v3-inside"),
        what=_("V2's transaction under a lock for each buyer, in the memory of the process."),
        fixes=_("Double clicks that reach the same process: try `--processes 1`."),
        leaves=_(
            "Two processes have two locks, and no shop has one process alone. Besides, the lock "
            "has to outlast the commit: let go inside the transaction, it lets the next one count "
            "before the order can be seen."
        ),
        instead=_(
            "Locks are in Redis, around the transaction and never inside, and one call takes those "
            "of all buyers of a batch. The result does not hang on any of them: a test runs "
            "without them, and the row lock and the unique key hold."
        ),
    ),
    Chapter(
        title=_("V4: a script in Redis decides first"),
        steps=("v4",),
        what=_(
            "A script takes the unit and remembers the buyer, in one step that nothing comes "
            "between. Then the same request writes the order."
        ),
        fixes=_(
            "Nobody is given a unit too many or a second one, whatever the number of processes; "
            "and who comes too late costs no SQL."
        ),
        leaves=_(
            "Redis has given away what the database does not know of. Where the process dies in "
            "between, the unit is gone, and its buyer hears “already ordered” for ever. Where "
            "Redis forgets, nobody knows any more what was given."
        ),
        instead=_(
            "The script that accepts a buyer also writes down the promise, in the set of what is "
            "pending. It stays there until its row is committed, whoever dies meanwhile, and every "
            "two seconds a sweep looks for what has waited too long. A ledger that is lost is "
            "built again from the rows."
        ),
    ),
    Chapter(
        title=_("V5: a queue writes later"),
        steps=("v5", "v5-stream"),
        what=_(
            "The script decides, the order goes into a queue, the buyer hears “queued”, and a "
            "thread writes. First the queue is in the memory of the process. Later it is a Redis "
            "Stream, with a group of readers and a list of what each has read and not finished."
        ),
        fixes=_(
            "The answer waits for no database. And in the stream, what was decided outlives the "
            "process that decided it."
        ),
        leaves=_(
            "A queue in memory dies with its process, and with it what its buyers were promised. "
            "What a reader of the stream had in hand when it died stays in its list, and no reader "
            "of another name looks there. And a stream is as safe as Redis is: where that comes "
            "back empty, whoever was only promised a unit has nothing, and hears nothing."
        ),
        instead=_(
            "No message is the promise. A Celery task only says that there is work in a sale, one "
            "for a whole burst; it may come late, twice or never. What is to be written is read "
            "from the ledger each time, by whoever is there. Where even the ledger was lost, the "
            "buyer's receipt says so."
        ),
    ),
    Chapter(
        title=_("V6: a lock in Redis"),
        steps=("v6-setnx", "v6-expiring", "v6-owned", "v6-watchdog"),
        what=_(
            "V2's transaction under a lock for each buyer in Redis, which all processes share. It "
            "grows up in four forms: `SETNX` and `DEL`; with an expiry; with a value of its own, "
            "compared before it is deleted; renewed by a watchdog."
        ),
        fixes=_("Double clicks that reach different processes."),
        leaves=_(
            "Without an expiry, who dies with the lock leaves it for ever. With one, who stands "
            "still for longer goes on without the lock, beside the next holder, and deletes that "
            "one's. A value of its own saves the other's lock, not the order. A watchdog helps "
            "where the work is long, not where its process stands still: then it stands still, too."
        ),
        instead=_(
            "A lease, a watchdog, and a fencing token: a number that grows with every holder. The "
            "transaction holds it against the highest that the sale's row has seen, so who was "
            "overtaken is refused by the database, however late he comes."
        ),
    ),
    Chapter(
        title=_("Ours: this shop"),
        steps=("ours",),
        what=_(
            "The production code itself, not a copy: `orders/placing/service.py` in the selling "
            "processes, and behind it a real Celery worker and beat, which are killed, stopped and "
            "bereft of Redis like all others."
        ),
        fixes=_(
            "All of the above. Every unit is sold once, to one buyer each, and every promise ends "
            "in an order or in a receipt that says why not."
        ),
        leaves=_(
            "What a fault costs is time: until a worker is back, a lease has run out, or the sweep "
            "has looked. And where Redis loses what it was told, so do those whom it alone knew; "
            "they read so, and their units are sold to others. An append-only file spares them "
            "that: the race runs without one."
        ),
    ),
)
