"""Clocks that differ from that of Redis are shown to staff."""

from __future__ import annotations

import datetime as dt
import socket

import pytest
import time_machine
from django.test import Client
from redis import Redis

from backoffice.board.snapshot import read_board
from backoffice.board.texts import board_json
from seckill_site.clocks import watch
from seckill_site.clocks.database import database_now
from seckill_site.clocks.watch import CLOCKS, KEPT_MS, clocks_ahead_s, report_clocks, wrong_clocks
from tests.support.sales import make_loaded_sale, redis_now_ms

SOON = dt.timedelta(seconds=5)


@pytest.fixture(autouse=True)
def one_host(ledger: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "host")


def report_five_seconds_ahead() -> None:
    with time_machine.travel(dt.datetime.now(dt.UTC) + SOON):
        report_clocks("worker")


@pytest.mark.django_db
def test_clocks_that_agree_are_not_named() -> None:
    report_clocks("worker", database_now=database_now())
    assert set(clocks_ahead_s()) == {"worker host", "database"}
    assert not wrong_clocks()


def test_clock_ahead_is_named_with_its_seconds() -> None:
    report_five_seconds_ahead()
    assert wrong_clocks() == {"worker host": pytest.approx(5, abs=0.6)}


def test_database_behind_is_named() -> None:
    report_clocks("worker", database_now=dt.datetime.now(dt.UTC) - SOON)
    assert wrong_clocks() == {"database": pytest.approx(-5, abs=0.6)}


def test_report_comes_every_ten_seconds(ledger: Redis) -> None:
    report_clocks("worker")
    ledger.delete(CLOCKS)
    report_clocks("worker")
    assert not clocks_ahead_s()


def test_old_reports_and_junk_do_not_count(ledger: Redis) -> None:
    old = redis_now_ms() - KEPT_MS - 1_000
    ledger.hset(CLOCKS, mapping={"worker gone": f"5000 {old}", "junk": "x"})
    assert not wrong_clocks()


def test_key_of_another_type_is_made_again(ledger: Redis) -> None:
    ledger.set(CLOCKS, "x")
    assert not clocks_ahead_s()
    report_clocks("worker")
    watch._report.forget()
    report_clocks("worker")
    assert clocks_ahead_s()


@pytest.mark.django_db
def test_readyz_metrics_and_board_name_a_wrong_clock(client: Client) -> None:
    report_five_seconds_ahead()
    ready = client.get("/readyz")
    assert ready.status_code == 200, "it decides nothing"
    assert list(ready.json()["clocks"]) == ["worker host"]
    assert 'seckill_clock_ahead_seconds{clock="worker host"} ' in client.get("/metrics").text
    board = read_board(sale_id=make_loaded_sale().pk, now=database_now())
    assert "worker host" in board_json(board, actions=[])["alert"]["text"]
