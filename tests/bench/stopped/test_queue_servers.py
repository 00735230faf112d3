"""Queues: what is lost, doubled or delayed when a consumer is killed, on real servers."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from bench.stopped import queue_servers
from bench.stopped.queue_servers import IDLE_MS, MESSAGES, compare
from orders.models import VoucherOrder
from seckill_site.redis.ledger_connection import ledger_connection
from tests.bench.stopped.servers import server_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.concurrency]

POPPED, MOVED, STREAM, CLAIMED, RABBIT_AUTO, RABBIT, KAFKA_AUTO, KAFKA = queue_servers.FORMS
QUIET_S = 2 * IDLE_MS / 1_000


def slow(title: str) -> object:
    return pytest.param(title, marks=pytest.mark.faults)


def measured(monkeypatch: pytest.MonkeyPatch, title: str, directory: Path) -> list[object]:
    """Return the row of one queue; nothing is left of it."""
    form = queue_servers.FORMS[title]
    monkeypatch.setattr(queue_servers, "FORMS", {title: form})
    if not form.setting:
        monkeypatch.setattr(queue_servers, "QUIET_S", QUIET_S)
    with server_of(form.setting, directory):
        (row,) = islice(compare(), 1)
    assert not ledger_connection().keys("lab:*")
    return list(row[1:])


@pytest.mark.parametrize("title", [POPPED, slow(STREAM)])
def test_consumer_loses_what_it_had_in_hand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, title: str
) -> None:
    lost, doubled, again, others_s = measured(monkeypatch, title, tmp_path)
    # A consumer that dies after its work has done it; in the stream, it is only not acknowledged.
    assert (lost, doubled, again) == (1, 0, "never")
    assert isinstance(others_s, float)


@pytest.mark.parametrize("title", [slow(CLAIMED), slow(MOVED), slow(RABBIT), slow(KAFKA)])
def test_acknowledged_queue_doubles_but_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, title: str
) -> None:
    lost, doubled, again_s, _ = measured(monkeypatch, title, tmp_path)
    assert (lost, doubled) == (0, 1)
    assert isinstance(again_s, float)
    assert again_s >= (IDLE_MS / 2_000 if title in (CLAIMED, KAFKA) else 0)


@pytest.mark.faults
def test_rabbitmq_without_acknowledgement_loses_what_it_sent_ahead(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lost, doubled, again, _ = measured(monkeypatch, RABBIT_AUTO, tmp_path)
    assert isinstance(lost, int)
    assert 1 < lost < MESSAGES
    assert (doubled, again) == (0, "never")


@pytest.mark.faults
def test_kafka_repeats_what_it_has_not_committed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lost, doubled, again_s, _ = measured(monkeypatch, KAFKA_AUTO, tmp_path)
    assert lost == 0
    assert isinstance(doubled, int)
    assert doubled > 1
    assert isinstance(again_s, float)


@pytest.mark.faults
def test_killed_worker_of_ours_loses_and_doubles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_servers, "FORMS", {})
    ((_, lost, doubled, again_s, _),) = compare()
    assert (lost, doubled) == (0, 0)
    assert isinstance(again_s, float)
    assert not VoucherOrder.objects.exists()


@pytest.mark.parametrize("title", [RABBIT, KAFKA])
def test_absent_server_has_a_row_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, title: str
) -> None:
    form = queue_servers.FORMS[title]
    monkeypatch.setattr(queue_servers, "FORMS", {title: form})
    monkeypatch.delenv(form.setting, raising=False)
    (row,) = islice(compare(), 1)
    assert list(row) == [title, form.absent, None, None, None]
    assert form.absent.startswith("install ")
