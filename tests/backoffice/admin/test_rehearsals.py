"""Rehearsals in the admin: start, progress, verdict, cancellation and permissions."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.test import Client
from django.utils import timezone, translation
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from backoffice import tasks
from backoffice.rehearsal.phases import NO_WEB_SERVER
from backoffice.rehearsal.service import CANCELLED, start_rehearsal
from backoffice.rehearsal.texts import headline, outcome, progress_json, tables
from backoffice.rehearsal.verdict import Verdict
from orders.models import Rehearsal, RehearsalPhase
from tests.support.inspection import broker_length
from tests.support.orders import make_sale
from tests.support.rehearsals import crowd_in_a_thread, finish, step, steps_until
from tests.support.staff import staff_with, words
from tests.support.tiers import slow_after
from vouchers.catalogue.history import history_text
from vouchers.models import SaleStage, SeckillVoucher

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/admin/orders/rehearsal/"
SMALL = {"buyers": "12", "stock": "5", "duplicates": "50"}


@pytest.fixture(autouse=True)
def crowd(live_server: LiveServer, settings: Settings) -> Iterator[None]:
    settings.SECKILL_REHEARSAL_URL = live_server.url
    with crowd_in_a_thread():
        yield


@pytest.fixture
def operator() -> Client:
    return staff_with("view_seckillvoucher", "add_rehearsal", name="operator")


@pytest.fixture
def looker() -> Client:
    return staff_with("view_seckillvoucher", "view_rehearsal", name="looker")


def later_sale() -> SeckillVoucher:
    """Return a sale that starts in hours, so that a rehearsal disturbs nobody."""
    return make_sale(begins_in_s=7_200, ends_in_s=9_000)


def question_of(sale: SeckillVoucher) -> str:
    return f"/admin/vouchers/seckillvoucher/{sale.pk}/rehearse/"


def page_of(rehearsal: Rehearsal, what: str = "change") -> str:
    return f"{LIST}{rehearsal.pk}/{what}/"


def begin(client: Client, sale: SeckillVoucher, **fields: str) -> Rehearsal:
    response = client.post(question_of(sale), {**SMALL, **fields})
    assert response.status_code == 302, words(response.content.decode())
    rehearsal = Rehearsal.objects.latest("pk")
    assert response["Location"] == page_of(rehearsal)
    return rehearsal


def said(client: Client, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200
    return words(response.content.decode())


# --- Start ----------------------------------------------------------------------------------------


def test_rehearsal_form_explains_what_will_happen(operator: Client) -> None:
    sale = later_sale()
    text = said(operator, question_of(sale))
    for promise in (
        "This creates a copy of the sale that the public does not see",
        "uses some of its capacity",
        "are removed. Only the verdict is kept",
        "nobody gets an email",
    ):
        assert promise in text
    assert "The requests go to http" in text
    assert "SECKILL_" not in text


def test_started_rehearsal_is_published_and_logged(operator: Client) -> None:
    sale = later_sale()
    rehearsal = begin(operator, sale)
    assert (rehearsal.buyers, rehearsal.stock, rehearsal.duplicates) == (12, 5, 50)
    assert rehearsal.actor is not None
    assert rehearsal.actor.username == "operator"
    assert broker_length() == 1
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.user.username) == (str(sale.pk), "operator")
    assert history_text(entry) == "Rehearsed with 12 buyers and 5 vouchers."


def test_default_crowd_is_twice_the_stock(operator: Client) -> None:
    sale = make_sale(stock=700, begins_in_s=7_200, ends_in_s=9_000)
    content = operator.get(question_of(sale)).content.decode()
    assert 'name="buyers" value="1400"' in content
    assert 'name="stock" value="700"' in content


@pytest.mark.parametrize(
    "wrong",
    slow_after(
        1,
        [
            {"buyers": "0"},
            {"buyers": "5001"},
            {"buyers": "many"},
            {"stock": "0"},
            {"stock": "1000001"},
            {"duplicates": "101"},
            {"duplicates": "-1"},
            {"buyers": ""},
        ],
    ),
)
def test_out_of_range_size_is_an_error_at_its_field(
    operator: Client, wrong: dict[str, str]
) -> None:
    response = operator.post(question_of(later_sale()), {**SMALL, **wrong})
    assert response.status_code == 200
    (name,) = wrong
    assert response.context["form"].errors.keys() == {name}
    assert not Rehearsal.objects.exists()


def test_rehearsal_during_open_sales_needs_confirmation(operator: Client) -> None:
    sale, open_now = later_sale(), make_sale()
    text = said(operator, question_of(sale))
    assert "Their buyers would notice a rehearsal" in text
    assert str(open_now) in text
    response = operator.post(question_of(sale), SMALL)
    assert response.context["form"].errors.keys() == {"anyway"}
    begin(operator, sale, anyway="on")


def test_second_rehearsal_is_refused_by_the_first(operator: Client) -> None:
    first = begin(operator, later_sale())
    response = operator.post(question_of(later_sale()), SMALL)
    assert response.status_code == 200
    text = f"Rehearsal #{first.pk} is running. Only one can run at a time."
    assert text in words(response.content.decode())
    assert Rehearsal.objects.count() == 1


def test_rehearsal_page_without_redis_starts_nothing(
    operator: Client, lose_ledger: Callable[[], None]
) -> None:
    sale = later_sale()
    lose_ledger()
    response = operator.post(question_of(sale), SMALL)
    assert "did not respond" in words(response.content.decode())
    assert not Rehearsal.objects.exists()


def test_bad_address_is_refused(operator: Client, settings: Settings) -> None:
    settings.SECKILL_REHEARSAL_URL = "shop.example"
    response = operator.post(question_of(later_sale()), SMALL)
    text = words(response.content.decode())
    assert "The address for rehearsals is not that of a web server" in text


@pytest.mark.usefixtures("broker_refuses")
def test_beat_starts_rehearsal_after_broker_failure(operator: Client) -> None:
    assert begin(operator, later_sale()).turn == 0


def test_missing_sale_is_not_found(operator: Client) -> None:
    shadow = make_sale(stage=SaleStage.REHEARSAL)
    for sale in (SeckillVoucher(pk=404_404), shadow):
        assert operator.get(question_of(sale)).status_code == 404
        assert operator.post(question_of(sale), SMALL).status_code == 404


# --- Progress -------------------------------------------------------------------------------------


def test_task_does_one_step_and_publishes_the_next(operator: Client) -> None:
    rehearsal = begin(operator, later_sale())
    tasks.work_at_rehearsal(rehearsal_id=rehearsal.pk, turn=0, of_a_newer_release=1)
    assert Rehearsal.objects.get().turn == 1
    assert broker_length() == 2
    tasks.work_at_rehearsal(rehearsal_id=rehearsal.pk, turn=0)
    assert Rehearsal.objects.get().turn == 1
    assert broker_length() == 2


def test_rehearsal_page_and_script_show_progress(operator: Client) -> None:
    rehearsal = begin(operator, later_sale())
    shown = {"over": False, "phase": "preparing", "label": "preparing", "done": 0, "total": 12}
    assert operator.get(page_of(rehearsal, "progress")).json() == {
        **shown, "text": "0 of 12 buyers created",
    }  # fmt: skip
    rehearsal = steps_until(rehearsal, RehearsalPhase.DRAINING)
    content = operator.get(page_of(rehearsal)).content.decode()
    assert re.search(r'<progress[^>]* max="5"\s+value="0"', content)
    assert "0 of 5 orders written" in words(content)
    assert "<noscript>" in content
    assert "rehearsal" in content
    assert "Cancel and clean up" in content


@pytest.mark.slow
def test_finished_rehearsal_page_shows_the_verdict(operator: Client, looker: Client) -> None:
    rehearsal = finish(begin(operator, later_sale()))
    assert operator.get(page_of(rehearsal, "progress")).json()["over"]
    for client in (operator, looker):
        text = said(client, page_of(rehearsal))
        assert "Passed: 5 vouchers sold, none twice, nothing lost" in text
        assert "Response time, 99th percentile" in text
        assert "The copy, its buyers and its orders have been removed." in text
        assert "Cancel" not in text
    content = operator.get(page_of(rehearsal)).content.decode()
    assert 'http-equiv="refresh"' not in content
    assert "rehearsal.js" not in content


@pytest.mark.slow
def test_rehearsal_list_shows_outcomes(operator: Client) -> None:
    sale = later_sale()
    finish(begin(operator, sale))
    wrong = finish(begin(operator, sale))
    Rehearsal.objects.filter(pk=wrong.pk).update(
        verdict={**wrong.verdict, "lost": 2, "oversold": 1_000}
    )
    begin(operator, sale)
    text = said(operator, LIST)
    assert " correct 12 5 operator" in text
    assert " incorrect: 1,000 oversold, 2 lost 12 5 operator" in text
    assert " preparing 12 5 operator" in text


def test_failed_rehearsal_shows_its_problem(operator: Client, settings: Settings) -> None:
    settings.SECKILL_REHEARSAL_URL = "http://127.0.0.1:1"
    rehearsal = finish(begin(operator, later_sale()))
    text = said(operator, page_of(rehearsal))
    assert f"No verdict: {NO_WEB_SERVER}" in text
    assert f"failed: {NO_WEB_SERVER}" in said(operator, LIST)


def test_silent_rehearsal_asks_for_a_worker(operator: Client) -> None:
    rehearsal = begin(operator, later_sale())
    later = timezone.now() + dt.timedelta(seconds=11)
    with translation.override("en"):
        text = progress_json(rehearsal, now=later)["text"]
    assert text.startswith("There has been no activity for a while. Are a worker and beat running?")


def test_wrong_figures_are_named_and_marked() -> None:
    rehearsal = Rehearsal(running=None, phase=RehearsalPhase.DONE, verdict=a_verdict(lost=1_234))
    with translation.override("en"):
        assert headline(rehearsal) == ("Failed: 1,234 lost", "wrong")
        assert outcome(rehearsal) == "incorrect: 1,234 lost"
        first = tables(rehearsal)[0]
    wrong = [(it.label, it.shown) for it in first.figures if it.is_wrong]
    assert wrong == [("Accepted and lost", "1,234")]


def test_verdict_without_answers_has_no_times() -> None:
    none = dict.fromkeys(("p50_ms", "p90_ms", "p99_ms", "max_ms", "drain_s", "orders_per_s"))
    rehearsal = Rehearsal(running=None, problem=CANCELLED, verdict=a_verdict(**none))
    with translation.override("en"):
        assert headline(rehearsal) == ("No verdict: it was cancelled", "failed")
        fast = tables(rehearsal)[1]
    assert [it.shown for it in fast.figures] == ["–"] * 4 + ["12.5 per second"] + ["–"] * 2


def a_verdict(**changes: Any) -> dict[str, Any]:
    counts = dict.fromkeys(Verdict.__dataclass_fields__, 0)
    answers = {"accepted": 3, "teapot": 1}
    right = {**counts, "accepted": 3, "answers": answers, "drained": True, "requests_per_s": 12.5}
    return {**right, **changes}


# --- Cancelling and deleting ----------------------------------------------------------------------


def test_cancelled_rehearsal_page_clears_up(operator: Client) -> None:
    rehearsal = steps_until(begin(operator, later_sale()), RehearsalPhase.BUYING)
    sent = broker_length()
    response = operator.post(page_of(rehearsal, "cancel"))
    assert response["Location"] == page_of(rehearsal)
    assert [str(it) for it in get_messages(response.wsgi_request)] == [
        "Cancelled. Everything it created will be removed."
    ]
    assert broker_length() == sent + 1
    rehearsal = Rehearsal.objects.get()
    assert rehearsal.phase == RehearsalPhase.CLEARING
    assert "Cancel and clean up" not in said(operator, page_of(rehearsal))
    rehearsal = finish(rehearsal)
    assert "No verdict: it was cancelled" in said(operator, page_of(rehearsal))
    assert history_text(LogEntry.objects.get(object_id=rehearsal.pk)) == "Cancelled."


@pytest.mark.slow
def test_finished_rehearsal_page_refuses_cancellation(operator: Client) -> None:
    rehearsal = finish(begin(operator, later_sale()))
    response = operator.post(page_of(rehearsal, "cancel"), follow=True)
    assert "It has already finished or is cleaning up." in words(response.content.decode())
    assert Rehearsal.objects.get().phase == RehearsalPhase.DONE


def test_cancelling_needs_permission_and_post(operator: Client, looker: Client) -> None:
    rehearsal = begin(operator, later_sale())
    assert looker.post(page_of(rehearsal, "cancel")).status_code == 403
    assert operator.get(page_of(rehearsal, "cancel")).status_code == 302
    assert operator.post(page_of(Rehearsal(pk=404), "cancel")).status_code == 404
    assert Rehearsal.objects.get().running


def test_running_rehearsal_blocks_deletion_of_its_sale(operator: Client) -> None:
    sale = later_sale()
    boss = staff_with("view_seckillvoucher", "delete_seckillvoucher", "view_rehearsal", name="boss")
    delete = f"/admin/vouchers/seckillvoucher/{sale.pk}/delete/"
    rehearsal = start_rehearsal(
        sale_id=sale.pk, buyers=1, stock=1, duplicates=0, connections=1, url="http://x"
    )
    boss.post(delete, {"post": "yes"})
    assert SeckillVoucher.objects.filter(pk=sale.pk).exists()
    finish(step(rehearsal))
    boss.post(delete, {"post": "yes"})
    assert not SeckillVoucher.objects.exists()
    assert not Rehearsal.objects.exists()
