"""Request statistics: how the order requests of a sale were answered, second by second.

Each process counts in memory and adds its counts to Redis twice a second, so counting costs a
request no round trip. A process that ends waits for its last flush; one that is killed loses half a
second. The counts are for boards and reports, and nothing is decided by them. Beat stores them in
rows.
"""

import datetime as dt
import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from redis.exceptions import ResponseError

from locks.lua_script import Argument
from seckill_site.broker.pace import note_life
from seckill_site.clocks.ledger import ledger_now_ms
from seckill_site.failpoints import failpoint
from seckill_site.process_memory import Buffer
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable, ledger_errors, ledger_script
from vouchers.inventory.passes import Passes
from vouchers.models import AnswerCount, SeckillVoucher

logger = logging.getLogger(__name__)

ACCEPTED = "accepted"
"""The answer that is not a refusal; the others are the codes of the HTTP contract."""

ADDRESS_LIMITED, ACCOUNT_LIMITED = "address_limited", "account_limited"
"""Both are refused as ``rate_limited``; the board and the report tell which limit it was."""

CLOSED_AFTER = dt.timedelta(seconds=30)
"""A second that ended this long ago is stored: it gets no more counts, unless Redis was down."""

RETENTION = dt.timedelta(days=14)
NUMBER_RETENTION_S = 3600

MINUTE = dt.timedelta(minutes=1)
PER_SECOND_WINDOW = (-MINUTE, 10 * MINUTE)
"""Around the sale's start, minutes are stored second by second."""

_passes = Passes("store_tallies")
_ADD = ledger_script("add_counts")
_FIELD = re.compile(r"([0-9]{1,11}):([a-z_]{1,16})")

Key = tuple[int, int, str]
"""The key of one count: sale, second since 1970, answer."""

Unstored = dict[tuple[dt.datetime, str], int]
"""The counts of one sale in Redis, by second and answer."""


@dataclass(frozen=True)
class RequestCount:
    """The number of requests that got this answer in the ``seconds`` (1 or 60) from ``at`` on."""

    at: dt.datetime
    answer: str
    count: int
    seconds: int = 1


def _add_to_redis(batch: Mapping[Key, int]) -> None:
    """Add a batch to its sales in one round trip; what Redis refuses is lost.

    A batch keeps its number until Redis has answered, so it is added once.

    :raises LedgerUnavailable: Redis did not respond.
    """
    note_life()
    header: list[Argument] = [_counts.number, int(RETENTION.total_seconds()), NUMBER_RETENTION_S]
    args: dict[int, list[Argument]] = {}
    for (sale_id, second, answer), count in batch.items():
        args.setdefault(sale_id, header.copy()).extend([f"{second}:{answer}", count])
    keys = [LedgerKeys(sale_id).tally for sale_id in args]
    calls = zip([(key, f"{key}:{_counts.name}") for key in keys], args.values(), strict=True)
    with ledger_errors():
        replies = _ADD.run_each(ledger_connection(), calls)
    for sale_id, reply in zip(args, replies, strict=True):
        if isinstance(reply, ResponseError):
            logger.warning("some request counts of sale %s are lost: %s", sale_id, reply)


_counts = Buffer[Key](
    _add_to_redis, most=50_000, every_s=0.5, retry_on=LedgerUnavailable, retry_s=2.0
)


def count_request(*, sale_id: int, answer: str) -> None:
    """Count one answer to an order request, in its second by the clock of Redis. Never raises."""
    _counts.count((sale_id, ledger_now_ms(may_wait=False) // 1000, answer))


flush_request_counts = _counts.flush
"""Add this process's counts to Redis at once; what does not arrive is kept."""


def read_request_counts(
    *, sale: SeckillVoucher, since: dt.datetime | None = None
) -> list[RequestCount]:
    """Return the counts of a sale, stored or not, oldest first."""
    # Redis first: what is stored between the two reads is then found twice, and used once.
    unstored = _read_unstored([sale.pk])[sale.pk]
    return _merge(read_stored_counts(sale=sale, since=since), unstored, since=since)


def read_live_counts(
    *, sale_ids: Collection[int], since: dt.datetime, until: dt.datetime
) -> dict[int, list[RequestCount]]:
    """Return the counts of those sales that have some in Redis, with their stored ones.

    That is one round trip and, if there are such sales, one statement.
    """
    unstored = {pk: counts for pk, counts in _read_unstored(list(sale_ids)).items() if counts}
    if not unstored:
        return {}
    rows = AnswerCount.objects.filter(seckill_voucher__in=unstored, at__gte=since, at__lt=until)
    stored: dict[int, list[RequestCount]] = {pk: [] for pk in unstored}
    for row in rows.values_list("seckill_voucher", "at", "answer", "count", "seconds"):
        stored[row[0]].append(RequestCount(*row[1:]))
    return {
        pk: [it for it in _merge(stored[pk], counts, since=since) if it.at < until]
        for pk, counts in unstored.items()
    }


def _merge(
    stored: list[RequestCount], unstored: Unstored, *, since: dt.datetime | None
) -> list[RequestCount]:
    """Return both, oldest first; a count that is in a row is not taken from Redis as well."""
    merged = {(row.at, row.answer): row for row in stored}
    minutes = {key for key, row in merged.items() if row.seconds > 1}
    for (at, answer), count in unstored.items():
        if (since is None or at >= since) and (_minute(at), answer) not in minutes:
            merged.setdefault((at, answer), RequestCount(at, answer, count))
    return sorted(merged.values(), key=lambda row: (row.at, row.answer))


def read_stored_counts(
    *, sale: SeckillVoucher, since: dt.datetime | None = None
) -> list[RequestCount]:
    """Return the counts that are in the database, oldest first."""
    rows = AnswerCount.objects.filter(seckill_voucher=sale)
    if since is not None:
        rows = rows.filter(at__gte=since)
    values = rows.order_by("at", "answer").values_list("at", "answer", "count", "seconds")
    return [RequestCount(*row) for row in values]


def _read_unstored(sale_ids: list[int]) -> dict[int, Unstored]:
    """Return the counts of several sales that are in Redis, in one round trip."""
    with ledger_errors(), ledger_connection().pipeline(transaction=False) as pipe:
        for sale_id in sale_ids:
            pipe.hgetall(LedgerKeys(sale_id).tally)
        tallies = pipe.execute(raise_on_error=False)
    return dict(zip(sale_ids, map(_parse_counts, tallies), strict=True))


def _parse_counts(fields: object) -> Unstored:
    """Parse one hash of counts; ignore foreign fields, and a key of another type."""
    counts = {}
    for name, count in fields.items() if isinstance(fields, dict) else ():
        match = _FIELD.fullmatch(name)
        if match and count.isdecimal():
            counts[dt.datetime.fromtimestamp(int(match[1]), tz=dt.UTC), match[2]] = int(count)
    return counts


@dataclass
class _Bucket:
    """A row to be stored, the count of its present row or 0, and its fields in Redis."""

    row: AnswerCount
    stored: int
    fields: list[str] = field(default_factory=list)


def store_request_counts(*, now: dt.datetime) -> bool:
    """Move closed counts from Redis into the database, for the time of a pass; for beat.

    Return whether some may be left.
    """
    sales = {it.pk: it for it in SeckillVoucher.objects.filter(ends_at__gt=now - RETENTION)}
    try:
        counts = {pk: them for pk, them in _read_unstored(list(sales)).items() if them}
        return _passes.work(_passes.in_turn(counts), lambda pk: _store(sales[pk], counts[pk], now))
    except LedgerUnavailable as error:
        logger.warning("the request counts are not stored now: %s", error)
        return False


def _store(sale: SeckillVoucher, unstored: Unstored, now: dt.datetime) -> None:
    """Store the counts of a sale. They are few: those since the last pass, by second and answer."""
    stored = read_stored_counts(sale=sale, since=_minute(min(at for at, _ in unstored)))
    closed = [
        it
        for it in _fill_buckets(sale, stored, unstored)
        if it.row.at + dt.timedelta(seconds=it.row.seconds) <= now - CLOSED_AFTER
    ]
    _write_rows(closed)  # fails if the sale was deleted meanwhile
    failpoint("tally.stored")
    # A row only grows, and its fields are deleted in a later pass, once the row has their count. So
    # a pass that died here is repeated without harm, and late counts are stored too.
    done = [name for it in closed if it.row.count <= it.stored for name in it.fields]
    if done:
        with ledger_errors():
            ledger_connection().hdel(LedgerKeys(sale.pk).tally, *done)


def _fill_buckets(
    sale: SeckillVoucher, stored: list[RequestCount], unstored: Unstored
) -> list[_Bucket]:
    """Add up the counts in Redis as the rows that they are to be stored in."""
    rows = {(row.at, row.answer): row.count for row in stored}
    # If the start was edited since, a minute keeps the length in which it was stored first.
    lengths = {_minute(row.at): row.seconds for row in stored}
    first, last = (sale.begins_at + offset for offset in PER_SECOND_WINDOW)
    buckets: dict[tuple[dt.datetime, str], _Bucket] = {}
    for (second, answer), count in unstored.items():
        minute = _minute(second)
        seconds = lengths.get(minute) or (1 if first - MINUTE < minute < last else 60)
        at = second if seconds == 1 else minute
        if (at, answer) not in buckets:
            row = AnswerCount(seckill_voucher=sale, at=at, answer=answer, count=0, seconds=seconds)
            buckets[at, answer] = _Bucket(row, rows.get((at, answer), 0))
        bucket = buckets[at, answer]
        bucket.row.count += count
        bucket.fields.append(f"{int(second.timestamp())}:{answer}")
    return list(buckets.values())


def _write_rows(closed: list[_Bucket]) -> None:
    # Another pass may be storing the same: beat does not wait for a slow one.
    new = [it.row for it in closed if not it.stored]
    AnswerCount.objects.bulk_create(new, batch_size=500, ignore_conflicts=True)
    for row in [it.row for it in closed if 0 < it.stored < it.row.count]:
        stored = AnswerCount.objects.filter(seckill_voucher=row.seckill_voucher, at=row.at)
        stored.filter(answer=row.answer, count__lt=row.count).update(count=row.count)


def _minute(moment: dt.datetime) -> dt.datetime:
    return moment.replace(second=0)
