"""``manage.py rehearse``: its output, its exit status and its one-line refusals."""

from __future__ import annotations

import datetime as dt
import io
import json
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from backoffice.rehearsal import phases
from backoffice.rehearsal import service as rehearsing
from backoffice.rehearsal.buyers import buy
from backoffice.rehearsal.phases import NOTHING_BOUGHT
from backoffice.rehearsal.verdict import find_verdict
from orders.fulfilment.worker import fulfil_sale
from orders.models import Rehearsal, RehearsalPhase
from seckill_site.failpoints import FailpointReached, armed
from tests.support.orders import make_sale
from tests.support.rehearsals import begun, crowd_in_a_thread, everything_there, shadow_id_of
from vouchers.inventory.rebuild import load_sale
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def worker(
    live_server: LiveServer, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Provide a web server, and write orders whenever the command waits for them."""
    settings.SECKILL_REHEARSAL_URL = live_server.url

    def work(seconds: float) -> None:
        draining = Rehearsal.objects.filter(phase=RehearsalPhase.DRAINING).first()
        if draining:
            fulfil_sale(sale_id=shadow_id_of(draining))

    clock = SimpleNamespace(sleep=work, monotonic=time.monotonic)
    monkeypatch.setattr(rehearsing, "time", clock)
    with crowd_in_a_thread():
        yield


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear up without waiting: no late counts and no queued tasks here."""
    none = dt.timedelta()
    monkeypatch.setattr("backoffice.rehearsal.cleanup.STATS_WAIT", none)
    monkeypatch.setattr("backoffice.rehearsal.cleanup.WORKER_WAIT", none)


def rehearse(*arguments: object) -> tuple[int, str]:
    """Return the exit status and the output."""
    out = io.StringIO()
    try:
        call_command("rehearse", *map(str, arguments), stdout=out, stderr=io.StringIO())
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


def refusal_of(*arguments: object) -> CommandError:
    out = io.StringIO()
    with pytest.raises(CommandError) as caught:
        call_command("rehearse", *map(str, arguments), stdout=out, stderr=io.StringIO())
    assert "\n" not in str(caught.value)
    assert out.getvalue() == ""
    return caught.value


def test_command_prints_verdict_and_exits_0() -> None:
    sale = make_sale(stock=5)
    before = everything_there()
    status, out = rehearse(sale.pk, "--buyers", 12, "--duplicates", 50, "--connections", 4)
    assert status == 0
    assert "  Orders above the stock                                     0\n" in out
    assert out.endswith("Right: every voucher was sold once, and nothing is left of it.\n")
    assert Rehearsal.objects.get().stock == 5
    assert everything_there() == before


def test_json_verdict_is_one_object() -> None:
    status, out = rehearse(make_sale().pk, "--buyers", 6, "--stock", 2, "--json")
    found = json.loads(out)
    assert status == 0
    assert (found["phase"], found["problem"], found["is_right"]) == ("done", "", True)
    assert found["rehearsal"] == str(Rehearsal.objects.get().pk)
    assert (found["orders"], found["cleared"]) == (2, True)


@pytest.mark.slow
def test_wrong_verdict_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    find = find_verdict

    def tampered(**arguments: object) -> object:
        shadow: SeckillVoucher = arguments["shadow"]  # type: ignore[assignment]
        order = shadow.orders.earliest("pk")
        order.events.all().delete()
        order.delete()
        return find(**arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(phases, "find_verdict", tampered)
    status, out = rehearse(make_sale().pk, "--buyers", 6, "--stock", 2)
    assert status == 1
    assert "  Accepted and lost                                          1\n" in out
    assert out.endswith("WRONG: see what is not 0 above. Nothing is left of it.\n")


def test_command_reports_nothing_bought(monkeypatch: pytest.MonkeyPatch) -> None:
    sale = make_sale()
    shot = buy

    def paused(**arguments: object) -> object:
        shadow_id = shadow_id_of(Rehearsal.objects.get())
        SeckillVoucher.objects.filter(pk=shadow_id).update(paused=True)
        load_sale(sale_id=shadow_id)
        return shot(**arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(phases, "buy", paused)
    status, out = rehearse(sale.pk, "--buyers", 6, "--stock", 2)
    assert status == 1
    assert NOTHING_BOUGHT in out
    assert "  paused " in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "which sale"),
        ((404_404,), "there is no sale 404404"),
    ],
)
def test_rehearsal_of_no_sale_is_refused(arguments: tuple[object, ...], words: str) -> None:
    error = refusal_of(*arguments)
    assert words in str(error)
    assert error.returncode == 2
    assert not Rehearsal.objects.exists()


@pytest.mark.parametrize(
    ("name", "value", "numbers"),
    [
        ("--buyers", 0, "1 to 100,000"),
        ("--buyers", 100_001, "1 to 100,000"),
        ("--stock", 0, "1 to 1,000,000"),
        ("--duplicates", 101, "0 to 100"),
        ("--connections", 1_001, "1 to 1,000"),
    ],
)
def test_option_out_of_range_is_wrong_usage(name: str, value: int, numbers: str) -> None:
    error = refusal_of(1, name, value)
    assert f"argument {name}: give a number from {numbers}, not {value}" in str(error)
    assert not Rehearsal.objects.exists()


def test_command_names_a_silent_address() -> None:
    sale = make_sale()
    before = everything_there()
    error = refusal_of(sale.pk, "--url", "http://127.0.0.1:1/")
    assert "Failed at http://127.0.0.1:1: no web server of this shop responds" in str(error)
    assert error.returncode == 2
    assert "not the address of a web server" in str(refusal_of(sale.pk, "--url", "shop"))
    assert everything_there() == before


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_limits_on_a_local_crowd_are_named_before(settings: Settings, host: str) -> None:
    sale, url = make_sale(), f"http://{host}:1/"
    settings.SECKILL_UNLIMITED_NETWORKS = []
    error = refusal_of(sale.pk, "--url", url)
    assert "Add 127.0.0.0/8 and ::1/128 to SECKILL_UNLIMITED_NETWORKS" in str(error)
    assert not Rehearsal.objects.exists()
    settings.SECKILL_REQUESTS_PER_ADDRESS = 0
    assert "no web server of this shop responds" in str(refusal_of(sale.pk, "--url", url))


def test_rehearse_without_redis_says_so(lose_ledger: Callable[[], None]) -> None:
    sale = make_sale()
    lose_ledger()
    error = refusal_of(sale.pk)
    assert "Redis or the database did not respond" in str(error)
    assert error.returncode == 2


def test_command_refuses_a_second_rehearsal(live_server: LiveServer) -> None:
    sale = make_sale()
    running = begun(sale, live_server.url)
    assert f"Rehearsal #{running.pk} is running" in str(refusal_of(sale.pk))


def test_command_clears_up_after_a_crash() -> None:
    sale = make_sale()
    before = everything_there()
    with armed("rehearse.fired=raise"), pytest.raises(FailpointReached):
        rehearse(sale.pk, "--buyers", 6)
    assert Rehearsal.objects.get().phase == RehearsalPhase.FAILED
    assert everything_there() == before


def test_leftovers_are_cleared_up(live_server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rehearse("--clear") == (0, "Nothing is left of earlier rehearsals.\n")
    sale = make_sale()
    before = everything_there()
    rehearsal = begun(sale, live_server.url)
    rehearsing.take_turn(rehearsal_id=rehearsal.pk, turn=0, now=timezone.now())
    monkeypatch.setattr(rehearsing, "LEASE", dt.timedelta())
    assert rehearse("--clear") == (0, f"cleared up after rehearsal #{rehearsal.pk}\n")
    assert everything_there() == before
