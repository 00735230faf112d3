"""Views of the state for tests: ledger, rows, broker and commands sent to Redis."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from django.conf import settings
from prometheus_client import REGISTRY
from redis import Redis

from orders.models import OrderEvent, VoucherOrder
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import STATE, LedgerKeys
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher


def buyers_of(sale: SeckillVoucher) -> dict[str, str]:
    """Return ``<user>:<unit>`` -> order id, without the state."""
    return buyer_fields(sale.pk)


def buyer_fields(sale_id: int) -> dict[str, str]:
    """Return what :func:`buyers_of` does, of a ledger that may have no row."""
    fields = dict(ledger_connection().hgetall(LedgerKeys(sale_id).buyers))
    fields.pop(STATE, None)
    return fields


def pending_ids(sale: SeckillVoucher) -> list[int]:
    members = ledger_connection().zrange(LedgerKeys(sale.pk).pending, 0, -1)
    return [int(member.split(":")[0]) for member in members]


def ended_of(sale: SeckillVoucher) -> dict[int, str]:
    """Return order id -> ``<user>:<reason>``."""
    fields = ledger_connection().hgetall(LedgerKeys(sale.pk).ended)
    return {int(order_id): value for order_id, value in fields.items()}


def tries_of(sale: SeckillVoucher) -> dict[int, int]:
    """Return order id -> counted failures, for the entries that have any."""
    fields = ledger_connection().hgetall(LedgerKeys(sale.pk).tries)
    failures = {int(order_id): int(value.split()[0]) for order_id, value in fields.items()}
    return {order_id: count for order_id, count in failures.items() if count}


def live_ids(sale: SeckillVoucher) -> list[int]:
    orders = VoucherOrder.objects.filter(seckill_voucher=sale, live=True)
    return sorted(orders.values_list("pk", flat=True))


def refusals_of(sale: SeckillVoucher) -> dict[int, str]:
    """Return order id -> reason of the refused rows."""
    orders = VoucherOrder.objects.filter(seckill_voucher=sale, status="refused")
    return dict(orders.values_list("pk", "reason"))


def assert_conserved(sale: SeckillVoucher) -> None:
    """Assert the invariants of a quiet sale, found out without the product's own reconciling."""
    sale.refresh_from_db()
    live, buyers, found = live_ids(sale), buyers_of(sale), snapshot(sale_id=sale.pk)
    waiting = pending_ids(sale)
    assert len(live) == sale.sold <= sale.stock
    assert sorted(map(int, buyers.values())) == sorted({*live, *waiting})
    assert found.remaining + len(buyers) == found.terms.total == sale.stock


def sale_keys() -> list[str]:
    """Return the keys of all sales in Redis: it also holds the identity of the installation."""
    return [key for key in ledger_connection().scan_iter() if "{" in key]


MOMENTARY = re.compile(r":(released:.+|kick|pace|awake)$")
"""The ends of keys that expire by themselves within seconds, even between two looks."""


def ledger_contents() -> dict[str, Any]:
    """Return every key of the ledger's Redis but the momentary ones, with what it holds."""
    client = ledger_connection()
    keys = [key for key in client.scan_iter() if not MOMENTARY.search(key)]
    with client.pipeline(transaction=False) as pipeline:
        read = {
            "string": pipeline.get,
            "hash": pipeline.hgetall,
            "zset": partial(pipeline.zrange, start=0, end=-1, withscores=True),
        }
        for key in keys:
            pipeline.type(key)
        kinds = dict(zip(keys, pipeline.execute(), strict=True))
        there = [key for key, kind in kinds.items() if kind != "none"]  # gone since the scan
        for key in there:
            read[kinds[key]](key)
        return dict(zip(there, pipeline.execute(), strict=True))


def rows() -> list[tuple[Any, ...]]:
    """Return every order, its history and every sale, column by column.

    All but the number of the sale's last batch.
    """
    columns = [it.name for it in SeckillVoucher._meta.concrete_fields if it.name != "batch"]
    return [
        *VoucherOrder.objects.order_by("pk").values_list(),
        *OrderEvent.objects.order_by("pk").values_list(),
        *SeckillVoucher.objects.order_by("pk").values_list(*columns),
    ]


def everything() -> tuple[Any, ...]:
    """Return all state that an order request could change."""
    return ledger_contents(), rows(), broker_length()


@cache
def broker_client() -> Redis:
    """Return a client of our own, that of the settings, whatever the product is told meanwhile."""
    return Redis.from_url(settings.CELERY_BROKER_URL)


def broker_length() -> int:
    """Return how many Celery messages wait in the broker, in both queues."""
    return sum(int(broker_client().llen(queue)) for queue in ("celery", "payments"))


def empty_broker() -> None:
    """Forget the messages that wait."""
    broker_client().delete("celery", "payments")


def publishes(outcome: str) -> float:
    return _sample("seckill_publishes_total", outcome=outcome)


def answers(status: int) -> float:
    return _sample("seckill_order_requests_total", answer=str(status))


def fulfilled(status: str) -> float:
    return _sample("seckill_fulfilled_total", status=status)


def _sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


class Commands(list[tuple[int, str]]):
    """The commands that clients or scripts sent to Redis, as (database, words)."""

    @property
    def ledger(self) -> list[str]:
        return self._sent_to(settings.REDIS_URL)

    @property
    def cache(self) -> list[str]:
        return self._sent_to(settings.CACHES["default"]["LOCATION"])

    @property
    def broker(self) -> list[str]:
        return self._sent_to(settings.CELERY_BROKER_URL)

    def _sent_to(self, url: str) -> list[str]:
        database = int(url.rpartition("/")[2])
        return [words for number, words in self if number == database]


@contextmanager
def redis_commands(*, of_scripts: bool = False) -> Iterator[Commands]:
    """Collect what Redis itself says that it was sent, by MONITOR, while the block ran.

    Commands of scripts are collected instead, if so wanted.
    """
    commands = Commands()
    mark = secrets.token_hex(8)
    with (
        Redis.from_url(settings.REDIS_URL, decode_responses=True) as client,
        client.monitor() as monitor,
    ):
        yield commands
        client.echo(mark)
        while mark not in (seen := monitor.next_command())["command"]:
            if (seen["client_type"] == "lua") == of_scripts and not _greeting(seen["command"]):
                commands.append((int(seen["db"]), seen["command"]))


def _greeting(command: str) -> bool:
    """Say whether this only opens a connection."""
    return command.split(" ")[0].upper() in {"HELLO", "AUTH", "CLIENT", "SELECT"}


def statements(queries: Sequence[dict[str, str]]) -> list[str]:
    """Return each statement as its verb and table, transactions' own left out."""
    return [text for text in map(_statement, queries) if text]


def _statement(query: dict[str, str]) -> str:
    sql = query["sql"]
    verb = sql.split(" ")[0].upper()
    if verb in {"BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "START"}:
        return ""
    outer = re.sub(r"EXISTS\(SELECT .*?LIMIT 1\)", "", sql)
    match = re.search(r"(?:FROM|INTO|UPDATE) `(\w+)`", outer)
    table = match[1] if match else "?"
    return f"{verb} {table}" + (" FOR UPDATE" if sql.rstrip().endswith("FOR UPDATE") else "")


def assert_refused(response: Any, status: int, code: str, **details: Any) -> None:
    """Assert a refusal as the contract words it: as JSON, or as a small page of the same status."""
    assert response.status_code == status, response.content
    assert response["Cache-Control"] == "no-store"
    if response["Content-Type"].startswith("text/html"):
        assert b"<html" in response.content
    else:
        body = response.json()
        assert isinstance(body["message"], str)
        assert body == {"code": code, "message": body["message"] or "a message", **details}
    if status in (429, 503):
        assert int(response["Retry-After"]) >= 1
