"""The public pages: the list, live figures, pictures and reminders."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils import timezone
from icalendar import Calendar

from seckill_site.clocks.machine import epoch_ms
from tests.support.draws import make_draw
from tests.support.photos import give_picture, noise_file, opened
from tests.support.sales import (
    HOUR,
    make_loaded_sale,
    make_sale,
    make_user,
    make_voucher,
    redis_now_ms,
    reserve,
)
from tests.support.tiers import slow_after
from vouchers.catalogue import public_sales
from vouchers.catalogue.pictures import store_picture
from vouchers.catalogue.public_sales import revision_of
from vouchers.inventory.keys import LedgerKeys
from vouchers.models import Merchant, SaleStage

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def live(client, sale_id, **extra):
    return client.get(f"/vouchers/{sale_id}/live/", **extra)


ENGLISH = {"HTTP_ACCEPT": "text/html", "HTTP_ACCEPT_LANGUAGE": "en"}


# --- The list -------------------------------------------------------------------------------------


def make_sales(*titles):
    for title in titles:
        make_sale(voucher=make_voucher(title=title))


@pytest.mark.django_db
def test_each_card_offers_a_reminder(client):
    sale = make_sale()
    page = client.get("/", **ENGLISH).text
    assert page.count(f'href="/vouchers/{sale.pk}/notice/"') == 2  # of the start, and of a unit


@pytest.mark.django_db
@pytest.mark.parametrize(("sales", "searches"), [(10, False), (11, True)])
def test_list_of_more_than_ten_has_a_search(client, sales, searches):
    make_sales(*[f"Noodles {number}" for number in range(sales)])
    assert ('action="/search/"' in client.get("/", **ENGLISH).text) is searches


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("query", "found"),
    slow_after(
        2,
        [
            ("tea", ["Tea for two"]),
            ("TWO tea", ["Tea for two"]),
            ("茶", ["Tea for two"]),
            ("老街", ["Tea for two"]),
            ("zzz", []),
            ("", ["Hotpot", "Tea for two"]),
            ("x" * 5_000, []),
        ],
    ),
)
def test_search_finds_title_and_merchant_in_both_languages(client, query, found):
    shop = Merchant.objects.create(name="老街茶馆")
    tea = make_voucher(title="双人茶", title_en="Tea for two", merchant=shop)
    make_sale(voucher=tea)
    make_sale(voucher=make_voucher(title="火锅", title_en="Hotpot"))
    page = client.get("/search/", {"q": query}, **ENGLISH).text
    assert sorted(re.findall(r'<a href="/vouchers/\d+/">([^<]+)</a>', page)) == found
    assert ("No sale has these words." in page) is bool(query)
    listed = client.get("/search/", {"q": query}).json()["vouchers"]
    assert len(listed) == len(found)


@pytest.mark.django_db
def test_card_of_a_draw_has_the_units_to_win(client):
    make_draw(stock=20)
    page = client.get("/", **ENGLISH).text
    assert "Vouchers to win: 20" in page
    assert "20 of 20 left" not in page


# --- live -----------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_live_has_exactly_the_documented_fields(client):
    sale = make_loaded_sale(stock=5)
    reserve(sale_id=sale.pk, order_id=501, user_id=1)
    before_ms = redis_now_ms()

    response = live(client, sale.pk)

    body = response.json()
    assert response.status_code == 200
    assert before_ms <= body.pop("server_time_ms") <= redis_now_ms()
    assert body == {
        "state": "open",
        "begins_at_ms": epoch_ms(sale.begins_at),
        "ends_at_ms": epoch_ms(sale.ends_at),
        "total": 5,
        "remaining": 4,
        "me_pace_ms": body["me_pace_ms"],  # depends on how busy the process is
        "revision": revision_of(sale),
    }


@pytest.mark.django_db
def test_live_is_public_and_cached_for_a_second(client):
    sale = make_loaded_sale()

    response = live(client, sale.pk)

    assert response["Cache-Control"] == "public, max-age=1"
    assert "Cookie" not in response.get("Vary", "")
    assert not response.cookies


@pytest.mark.django_db
def test_live_costs_one_round_trip_and_no_sql(
    client, django_assert_num_queries, ledger_trips, monkeypatch
):
    monkeypatch.setattr(public_sales._known, "for_s", 3600.0)
    sale = make_loaded_sale()
    live(client, sale.pk)
    ledger_trips.clear()

    with django_assert_num_queries(0):
        live(client, sale.pk)

    assert len(ledger_trips) == 1


def assert_unavailable(response):
    assert response.status_code == 503
    assert int(response["Retry-After"]) >= 1
    assert response["Cache-Control"] == "no-store"


@pytest.fixture
def loading_elsewhere(ledger, db):
    """Return a sale that another process is loading."""
    sale = make_sale()
    ledger.set(LedgerKeys(sale.pk).loading, "1")
    return sale


def test_live_of_sale_being_loaded_returns_503(client, loading_elsewhere):
    response = live(client, loading_elsewhere.pk)

    assert_unavailable(response)
    assert response.json()["code"] == "unavailable"
    assert set(response.json()) == {"code", "message"}


def test_refusal_is_a_page_for_html(client, loading_elsewhere):
    response = live(client, loading_elsewhere.pk, headers=HTML)

    assert_unavailable(response)
    assert response["Content-Type"].startswith("text/html")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path",
    slow_after(
        1, ["/", "/vouchers/1/live/", "/vouchers/1/calendar.ics", f"/pictures/{'0' * 32}.webp"]
    ),
)
@pytest.mark.parametrize("method", ["post", "options"])
def test_other_methods_return_405_with_allow(client, path, method):
    response = getattr(client, method)(path)

    assert response.status_code == 405
    assert response["Allow"] == "GET, HEAD"
    assert response.json()["code"] == "invalid"


@pytest.mark.django_db
def test_head_has_no_body(client):
    sale = make_loaded_sale()

    for path in ("/", f"/vouchers/{sale.pk}/live/"):
        response = client.head(path)
        assert response.status_code == 200
        assert response.content == b""


# --- the list -------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_list_as_json(client):
    sale = make_loaded_sale(stock=5)
    reserve(sale_id=sale.pk, order_id=501, user_id=1)

    response = client.get("/")

    assert response.json() == {
        "vouchers": [
            {
                "voucher_id": str(sale.pk),
                "title": "Noodles",
                "merchant": "",
                "price_cents": 8_000,
                "face_value_cents": 10_000,
                "state": "open",
                "begins_at_ms": epoch_ms(sale.begins_at),
                "ends_at_ms": epoch_ms(sale.ends_at),
                "total": 5,
                "remaining": 4,
                "url": f"/vouchers/{sale.pk}/",
            }
        ]
    }


@pytest.mark.django_db
def test_empty_list_is_a_page(client):
    assert client.get("/", headers=HTML).status_code == 200
    assert client.get("/").json() == {"vouchers": []}


@pytest.mark.django_db
def test_list_page_links_to_each_sale_and_escapes_its_title(client):
    sale = make_loaded_sale(voucher=make_voucher(title="<script>alert(1)</script>"))

    response = client.get("/", headers=HTML)

    assert response["Content-Type"].startswith("text/html")
    page = response.content.decode()
    assert f'href="/vouchers/{sale.pk}/"' in page
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("accept", "kept", "varies"),
    [
        ("text/html", "max-age=0, must-revalidate", {"Accept", "Cookie"}),
        ("application/json", "max-age=1", {"Accept"}),
    ],
)
def test_list_is_cached_for_everybody(client, accept, kept, varies):
    """No cache may mix a page and JSON up, nor pages of two languages."""
    response = client.get("/", headers={"Accept": accept})

    assert response["Cache-Control"] == f"public, {kept}"
    assert varies <= {part.strip() for part in response["Vary"].split(",")}
    assert not response.cookies


@pytest.mark.django_db
def test_list_is_the_same_for_everybody(client):
    visitors = client.get("/", headers=HTML)
    client.force_login(make_user("ada"), backend="django.contrib.auth.backends.ModelBackend")

    response = client.get("/", headers=HTML)

    assert response.content == visitors.content
    assert response.headers == visitors.headers


@pytest.mark.django_db
def test_card_shows_picture(client):
    sale, plain = make_loaded_sale(), make_loaded_sale()
    picture = give_picture(sale.voucher, size=(800, 400))

    page = client.get("/", headers=HTML).content.decode()

    [image] = re.findall(r"<img[^>]*>", page)
    assert f'src="/pictures/{picture.pk}.webp"' in image
    assert 'width="800"' in image
    assert 'height="400"' in image
    assert 'alt=""' in image
    assert 'loading="lazy"' in image
    assert plain.voucher.picture is None


@pytest.mark.django_db
def test_visitor_page_costs_two_queries(client, django_assert_num_queries):
    for colour in ("red", "blue", "green"):
        give_picture(make_loaded_sale().voucher, colour=colour)

    with django_assert_num_queries(2) as asked:
        page = client.get("/", headers=HTML).content.decode()

    assert page.count("<img") == 3
    assert not any("content" in query["sql"] for query in asked)


# --- pictures -------------------------------------------------------------------------------------


@pytest.fixture
def picture(db):
    return give_picture(make_voucher())


@pytest.mark.slow
@pytest.mark.django_db
def test_thumbnail_is_small_and_kept_for_ever(client: Client) -> None:
    picture = store_picture(content=noise_file())
    response = client.get(f"/pictures/{picture.pk}-small.webp")
    assert (response.status_code, response["Content-Type"]) == (200, "image/webp")
    assert "immutable" in response["Cache-Control"]
    assert opened(response.content).size == (192, 108)
    assert len(response.content) < 8_000
    known = client.get(
        f"/pictures/{picture.pk}-small.webp", headers={"If-None-Match": response["ETag"]}
    )
    assert known.status_code == 304
    assert client.get(f"/pictures/{'f' * 32}-small.webp").status_code == 404


def test_picture_is_cached_for_ever(client, picture):
    response = client.get(f"/pictures/{picture.pk}.webp")

    assert response.status_code == 200
    assert response["Content-Type"] == "image/webp"
    assert response["Cache-Control"] == "public, max-age=31536000, immutable"
    assert response["ETag"] == f'"{picture.pk}"'
    assert response["X-Content-Type-Options"] == "nosniff"
    assert opened(response.content).size == (640, 360)
    assert not response.cookies
    assert "Cookie" not in response.get("Vary", "")


def test_known_picture_returns_304(client, picture):
    url, etag = f"/pictures/{picture.pk}.webp", f'"{picture.pk}"'

    same = client.get(url, headers={"If-None-Match": etag})
    other = client.get(url, headers={"If-None-Match": '"another"'})

    assert (same.status_code, same.content) == (304, b"")
    assert same["ETag"] == etag
    assert same["Cache-Control"] == "public, max-age=31536000, immutable"
    assert other.status_code == 200


def test_picture_costs_one_query(client, picture, django_assert_num_queries):
    client.force_login(make_user("ada"), backend="django.contrib.auth.backends.ModelBackend")

    with django_assert_num_queries(1):
        assert client.get(f"/pictures/{picture.pk}.webp").status_code == 200


@pytest.mark.parametrize(
    "name", ["0" * 32 + ".webp", "0" * 31 + ".webp", "A" * 32 + ".webp", "0" * 32 + ".png", ""]
)
@pytest.mark.django_db
def test_missing_picture_returns_404(client, name):
    response = client.get(f"/pictures/{name}", headers={"If-None-Match": "*"})

    assert response.status_code == 404
    assert response.json()["code"] == "not_found"
    assert response["Cache-Control"] == "no-store"


# --- reminders ------------------------------------------------------------------------------------


def reminder(client, sale, **headers):
    return client.get(f"/vouchers/{sale.pk}/calendar.ics", headers=headers)


def coming_sale(**fields):
    now = timezone.now()
    return make_sale(begins_at=now + HOUR, ends_at=now + 2 * HOUR, **fields)


@pytest.mark.django_db
def test_reminder_is_calendar_file_linking_to_sale(client):
    sale = coming_sale()

    response = reminder(client, sale, **{"Accept-Language": "en"})

    assert response.status_code == 200
    assert response["Content-Type"] == "text/calendar; charset=utf-8"
    disposition = f'attachment; filename="flash-sale-{sale.pk}.ics"'
    assert response["Content-Disposition"] == disposition
    [event] = Calendar.from_ical(response.content).walk("VEVENT")
    assert str(event["url"]) == f"http://testserver/vouchers/{sale.pk}/"
    assert str(event["summary"]) == "Flash sale: Noodles"
    assert event.decoded("dtstart") == sale.begins_at.replace(microsecond=0)


@pytest.mark.django_db
def test_reminder_is_cached_a_minute_per_language(client):
    response = reminder(client, coming_sale())

    assert response["Cache-Control"] == "public, max-age=60"
    varies = {part.strip() for part in response["Vary"].split(",")}
    assert {"Accept-Language", "Cookie"} <= varies
    assert not response.cookies


@pytest.mark.django_db
def test_reminder_costs_one_query(client, django_assert_num_queries):
    sale = coming_sale()
    client.force_login(make_user("ada"), backend="django.contrib.auth.backends.ModelBackend")

    with django_assert_num_queries(1):
        assert reminder(client, sale).status_code == 200


@pytest.mark.django_db
@pytest.mark.parametrize("stage", [SaleStage.DRAFT, SaleStage.REHEARSAL])
def test_reminder_of_draft_or_rehearsal_returns_404(client, shop, stage):
    sale = coming_sale(stage=stage)

    assert reminder(client, sale).json()["code"] == "not_found"
    assert reminder(shop, sale).status_code == 404
    assert reminder(client, sale).status_code == 404


@pytest.mark.django_db
def test_reminder_of_ended_sale_returns_410(client):
    now = timezone.now()
    sale = make_sale(begins_at=now - 2 * HOUR, ends_at=now - HOUR)

    response = reminder(client, sale, **{"Accept-Language": "en"})

    assert response.status_code == 410
    assert response.json() == {
        "code": "ended",
        "message": "This sale has ended, so there is nothing to be reminded of.",
    }
    assert response["Cache-Control"] == "no-store"
