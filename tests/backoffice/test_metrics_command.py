"""``manage.py metrics``: there while the shop is not, and it says what is silent."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from time import perf_counter
from typing import Any
from urllib.parse import quote

import pytest
import requests
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from redis.connection import parse_url

from backoffice import shop_metrics
from backoffice.shop_metrics import Shop
from seckill_site.health import PARTS
from seckill_site.models import Installation
from tests.support.heartbeats import note_all
from tests.support.orders import make_buyers, make_sale, reserved, written_orders
from tests.support.patience import eventually
from tests.support.proxy import FaultProxy, redis_server
from tests.support.stack import ROOT, Stack

LABELS = {
    "seckill_up": {"part"},
    "seckill_queue_messages": {"queue"},
    "seckill_heartbeat_age_seconds": {"name"},
    "seckill_heartbeat_missing": {"name"},
    "seckill_late_seconds": {"work"},
    "seckill_provider_silent_seconds": {"provider"},
    "seckill_sale_sold": {"sale"},
    "seckill_sale_left": {"sale"},
    "seckill_sale_requests_per_second": {"sale"},
    "seckill_clock_ahead_seconds": {"clock"},
}
"""The labels of the shop's own figures; the others have none."""


def shown(shop: Shop) -> dict[tuple[str, ...], float]:
    """Return the values of the shop's figures, by name and labels."""
    samples = [it for metric in shop.collect() for it in metric.samples]
    for it in samples:
        assert set(it.labels) == LABELS.get(it.name, set())
    return {(it.name.removeprefix("seckill_"), *it.labels.values()): it.value for it in samples}


@pytest.fixture
def in_line(monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The figures of the shop, read in the thread and on the connection of the test."""
    monkeypatch.setattr(shop_metrics, "close_old_connections", lambda: None)
    monkeypatch.setattr(shop_metrics, "ThreadPoolExecutor", lambda *_, **__: Here())
    monkeypatch.setattr(shop_metrics, "LONGEST_S", 120.0)
    monkeypatch.setattr(shop_metrics, "STATEMENT_S", 60)
    return Shop()


class Here:
    """An executor that calls at once."""

    def submit(self, call: Any, *args: Any) -> Any:
        answer = Future[Any]()
        answer.set_result(call(*args))
        return answer


@pytest.mark.django_db
def test_shop_shows_what_is_sold_and_what_waits(in_line: Shop) -> None:
    sale = make_sale(stock=10)
    buyers = make_buyers(5)
    written_orders(sale, buyers[:3])
    reserved(sale, buyers[3:])
    note_all({"beat": 40.0})
    backed_up_at = timezone.now()
    Installation.objects.update(backed_up_at=backed_up_at)
    shown(in_line)
    found = shown(in_line)  # the ledgers that it asks are those that the database named last

    number = str(sale.pk)
    assert found["sale_sold", number] == 5
    assert found["sale_left", number] == 5
    assert found["sale_requests_per_second", number] == 0
    assert found["pending",] == 2
    assert found["oldest_pending_seconds",] >= 0
    assert found["sales_differing",] == 0
    assert {name[1] for name in found if name[0] == "up"} == set(PARTS)
    assert {name[1] for name in found if name[0] == "queue_messages"} == {
        "celery", "payments", "webhooks"
    }  # fmt: skip
    assert found["heartbeat_missing", "beat"] == 1
    assert found["heartbeat_missing", "queue:celery"] == 0
    assert found["heartbeat_age_seconds", "beat"] >= 40
    assert {name[1] for name in found if name[0] == "late_seconds"} == {
        "payments", "webhooks", "mails", "notices"
    }  # fmt: skip
    assert found["redis_memory_bytes",] > 0
    assert found["backup_timestamp_seconds",] == backed_up_at.timestamp()


@pytest.mark.django_db
def test_sale_whose_row_and_ledger_differ_is_counted(in_line: Shop, ledger: Any) -> None:
    sale = make_sale(stock=10)
    written_orders(sale, make_buyers(3))
    sale.refresh_from_db()
    type(sale).objects.filter(pk=sale.pk).update(sold=sale.sold - 1)

    assert shown(in_line)["sales_differing",] == 1


def test_part_that_hangs_is_asked_once_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, go_on = [], Event()

    def hang() -> list[Any]:
        asked.append(1)
        go_on.wait()
        return []

    monkeypatch.setattr(shop_metrics, "FIGURES", {"redis": hang})
    monkeypatch.setattr(shop_metrics, "clocks", list)
    monkeypatch.setattr(shop_metrics, "LONGEST_S", 0.01)
    monkeypatch.setattr(shop_metrics, "current_parts", lambda: {"redis": False})
    shop = Shop()
    try:
        for _ in range(3):
            assert shown(shop) == {("up", "redis"): 0}
        assert len(asked) == 1
    finally:
        go_on.set()


def test_figures_that_fail_leave_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> list[Any]:
        raise OSError("gone")

    good = [("pending", 3)]
    monkeypatch.setattr(shop_metrics, "FIGURES", {"redis": fail, "database": lambda: good})
    monkeypatch.setattr(shop_metrics, "clocks", list)
    monkeypatch.setattr(shop_metrics, "LONGEST_S", 120.0)
    monkeypatch.setattr(shop_metrics, "current_parts", lambda: {"redis": False})
    assert shown(Shop()) == {("up", "redis"): 0, ("pending",): 3}
    assert "no figures of redis: gone" in caplog.text


def test_directory_has_to_be_there_and_ours(tmp_path: Path) -> None:
    def refusal(directory: Path) -> str:
        elsewhere = ("--address", "192.0.2.1")  # no address of this machine: it never serves
        with pytest.raises(CommandError) as error:
            call_command("metrics", *elsewhere, "--directory", str(directory))
        assert error.value.returncode == 2
        return str(error.value)

    assert refusal(tmp_path).startswith("cannot listen on 192.0.2.1:9808")
    assert refusal(tmp_path / "gone") == f"{tmp_path}/gone: No such file or directory"
    (tmp_path / "file").touch()
    assert refusal(tmp_path / "file") == f"{tmp_path}/file: Not a directory"
    os.chown(tmp_path, 12345, 12345)
    assert refusal(tmp_path) == f"{tmp_path}: belongs to another user"


# --- The command itself ---------------------------------------------------------------------------


@pytest.mark.slow
def test_wrong_use_is_one_sentence_and_status_2(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for arguments, sentence in (
            (["--port", port, "--directory", tmp_path], f":{port}: Address already in use"),
            (["--directory", tmp_path / "none"], "none: No such file or directory"),
            (["--colour", "red"], "error: unrecognized arguments: --colour red"),
        ):
            command = [sys.executable, "manage.py", "metrics", *map(str, arguments)]
            ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            assert ended.returncode == 2
            assert ended.stderr.splitlines()[-1].endswith(sentence)
            assert "Traceback" not in ended.stderr


def read(url: str) -> list[Sample]:
    text = requests.get(f"{url}/metrics", timeout=30).text
    return [it for family in text_string_to_metric_families(text) for it in family.samples]


def number_of(url: str) -> int:
    return int(parse_url(url).get("db", 0))


@pytest.mark.slow
def test_it_answers_in_time_while_everything_is_silent(stack: Stack, tmp_path: Path) -> None:
    to = connection.settings_dict
    database = to["OPTIONS"].get("unix_socket") or (to["HOST"], int(to["PORT"] or 3306))
    broker = settings.CELERY_BROKER_URL
    (tmp_path / "units").mkdir()
    with ExitStack() as proxies:
        lines = [
            proxies.enter_context(FaultProxy(it, remember=False))
            for it in (redis_server(settings.REDIS_URL), database, redis_server(broker))
        ]
        redis, mysql, messages = lines
        account = f"{quote(to['USER'])}:{quote(to['PASSWORD'])}"
        environ = {
            "REDIS_URL": redis.url(number_of(settings.REDIS_URL), like=settings.REDIS_URL),
            "DATABASE_URL": f"mysql://{account}@127.0.0.1:{mysql.port}/{to['NAME']}",
            "CELERY_BROKER_URL": messages.url(number_of(broker), like=broker),
        }
        served = stack.metrics(tmp_path / "units", "--shop", **environ)

        def up() -> set[float]:
            return {it.value for it in read(served.url) if it.name == "seckill_up"}

        assert eventually(lambda: up() == {1})
        for line in lines:
            line.stall()
        times = []

        def is_told_in_time() -> bool:
            started = perf_counter()
            parts = {it.labels["part"]: it.value for it in read(served.url) if "part" in it.labels}
            times.append(perf_counter() - started)
            silent = {name for name, value in parts.items() if not value}
            return silent >= {"redis", "database", "broker"} and times[-1] < 2

        assert eventually(is_told_in_time, within_s=60), times
        assert sorted(times)[len(times) // 2] < 2
        for line in lines:
            line.heal()
        assert eventually(lambda: up() == {1})
