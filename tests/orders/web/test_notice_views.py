"""The pages of notices: asking and stopping, with and without a session."""

from __future__ import annotations

from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.test import Client

from orders.lifecycle.notices import stop_link
from orders.models import Notice
from tests.support.browsers import HTML, browser_of
from tests.support.inspection import assert_refused
from tests.support.notices import make_notice, make_reader
from tests.support.orders import make_buyer, make_sale, reserved
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

CHINESE = {"Accept": "text/html", "Accept-Language": "zh-hans"}


@pytest.fixture
def sale() -> SeckillVoucher:
    return make_sale(begins_in_s=3_600, ends_in_s=9_000)


@pytest.fixture
def reader() -> User:
    return make_reader()


def url_of(sale: SeckillVoucher, what: str = "") -> str:
    return f"/vouchers/{sale.pk}/notice/{what}"


def live() -> int:
    return Notice.objects.filter(live=True).count()


def test_reader_asks_and_switches_off(sale: SeckillVoucher, reader: User) -> None:
    client = browser_of(reader)

    response = client.post(url_of(sale), headers=HTML)
    assert (response.status_code, response["Location"]) == (303, url_of(sale))
    page = client.get(url_of(sale), headers=HTML)
    assert page["Cache-Control"] == "private, no-store"
    assert "We will remind" in page.text
    assert live() == 1

    client.post(url_of(sale, "stop/"), headers=HTML)
    assert "Remind me" in client.get(url_of(sale), headers=HTML).text
    assert live() == 0


def test_programs_get_json(sale: SeckillVoucher, reader: User) -> None:
    client = browser_of(reader)
    address = f"{reader.username}@example.com"
    offer = {"kind": "start", "asked": False, "address": address, "code": None}

    assert client.get(url_of(sale)).json() == offer
    assert client.post(url_of(sale)).json() == {**offer, "asked": True}
    assert client.post(url_of(sale, "stop/")).json() == offer


@pytest.mark.parametrize("what", ["", "stop/"])
def test_visitor_is_asked_to_sign_in(sale: SeckillVoucher, client: Client, what: str) -> None:
    assert_refused(client.post(url_of(sale, what)), 401, "login_required")

    response = client.get(url_of(sale), headers=HTML)
    assert response["Location"] == f"/accounts/login/?next={url_of(sale)}"
    assert live() == 0


def test_reader_without_address_is_led_to_confirm_one(sale: SeckillVoucher) -> None:
    client = browser_of(make_buyer())

    page = client.get(url_of(sale), headers=HTML).text
    assert "/accounts/email/" in page
    assert "/accounts/phone/change/" in page
    assert_refused(client.post(url_of(sale)), 409, "no_contact")


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"begins_in_s": 300}, 409, "too_late"),
        ({"paused": True}, 409, "paused"),
        ({"stage": "draft"}, 404, "not_found"),
    ],
)
def test_nothing_to_tell_has_a_reason(
    reader: User, fields: dict[str, Any], status: int, code: str
) -> None:
    sale, client = make_sale(**fields), browser_of(reader)

    assert_refused(client.post(url_of(sale)), status, code)
    if status == 409:
        assert client.get(url_of(sale)).json()["code"] == code
        assert "<form" not in client.get(url_of(sale), headers=HTML).text.split("</header>")[-1]


def test_too_late_to_ask_is_said_on_the_page(reader: User) -> None:
    sale, client = make_sale(begins_in_s=300), browser_of(reader)
    assert "it is too late for a reminder" in client.get(url_of(sale), headers=HTML).text

    make_notice(sale, reader)
    assert "We will remind" in client.get(url_of(sale), headers=HTML).text


def test_sold_out_sale_offers_a_notice_in_both_languages(reader: User) -> None:
    sale, client = make_sale(stock=1), browser_of(reader)
    reserved(sale, [make_buyer()])

    assert "Tell me when one is back" in client.get(url_of(sale), headers=HTML).text
    assert "有货时通知我" in client.get(url_of(sale), headers=CHINESE).text
    client.post(url_of(sale), headers=HTML)
    assert Notice.objects.get().kind == "back"
    assert "先到先得" in client.get(url_of(sale), headers=CHINESE).text


def test_get_changes_nothing(sale: SeckillVoucher, reader: User) -> None:
    make_notice(sale, reader)
    other, client = make_sale(begins_in_s=3_600, ends_in_s=9_000), browser_of(reader)
    before = list(Notice.objects.values())

    for path in (url_of(sale), url_of(other), "/accounts/notices/", stop_path(reader)):
        assert client.get(path, headers=HTML).status_code == 200
    assert client.get(url_of(sale, "stop/")).status_code == 405

    assert list(Notice.objects.values()) == before


@pytest.mark.parametrize("what", ["", "stop/"])
def test_request_of_another_site_is_refused(sale: SeckillVoucher, reader: User, what: str) -> None:
    client = browser_of(reader, enforce_csrf_checks=True)

    assert client.post(url_of(sale, what)).status_code == 403
    assert client.post("/accounts/notices/").status_code == 403


def test_reader_stops_only_their_own(sale: SeckillVoucher, reader: User) -> None:
    other = make_reader()
    make_notice(sale, other)
    client = browser_of(reader)

    client.post(url_of(sale, "stop/"))
    client.post("/accounts/notices/")
    client.post(stop_path(reader))

    assert live() == 1
    assert sale.voucher.title not in client.get("/accounts/notices/").text


def test_profile_leads_to_all_reminders(sale: SeckillVoucher, reader: User) -> None:
    make_notice(sale, reader)
    client = browser_of(reader)

    assert "/accounts/notices/" in client.get("/accounts/profile/", headers=HTML).text
    assert sale.voucher.title in client.get("/accounts/notices/", headers=HTML).text
    assert client.post("/accounts/notices/")["Location"] == "/accounts/notices/"
    assert live() == 0


# --- The link in each mail ------------------------------------------------------------------------


def stop_path(user: User) -> str:
    return "/notices/stop/" + stop_link(user.pk).partition("/notices/stop/")[2]


def test_link_stops_by_post_without_a_session(sale: SeckillVoucher, reader: User) -> None:
    make_notice(sale, reader)
    client = Client(enforce_csrf_checks=True)

    page = client.get(stop_path(reader), headers=HTML)
    assert "<form" in page.text
    assert page["Cache-Control"] == "private, no-store"
    assert live() == 1
    done = client.post(stop_path(reader), {"List-Unsubscribe": "One-Click"}, headers=HTML)
    assert (done.status_code, live()) == (200, 0)
    assert "Done." in done.text


@pytest.mark.parametrize("token", ["x", "é"])
def test_forged_link_is_not_found(client: Client, token: str) -> None:
    for ask in (client.get, client.post):
        assert_refused(ask(f"/notices/stop/{token}/"), 404, "not_found")


def test_link_outlives_a_change_of_the_key(
    settings: Any, client: Client, sale: SeckillVoucher, reader: User
) -> None:
    make_notice(sale, reader)
    path = stop_path(reader)
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another key of more than fifty characters for the tests"

    assert client.post(path).status_code == 200
    assert live() == 0


def test_link_of_deleted_account_is_harmless(client: Client, reader: User) -> None:
    path = stop_path(reader)
    EmailAddress.objects.all().delete()
    reader.delete()

    assert client.post(path).status_code == 200
