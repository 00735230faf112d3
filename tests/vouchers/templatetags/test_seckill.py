"""The pages' filters: cents, moments in the shop's time zone, the first state of a page."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable
from pathlib import Path
from string import Formatter
from typing import Any
from zoneinfo import ZoneInfo

import polib
import pytest
import time_machine
from django.conf import settings
from django.template import Context, Template
from django.utils import timezone, translation
from hypothesis import given
from hypothesis import strategies as st

from orders.draws.standing import Stage
from orders.models import OrderStatus, RefusalReason
from orders.receipts.service import ENTERED, QUEUED
from seckill_site.clocks.machine import epoch_ms, from_epoch_ms
from seckill_site.formatting import (
    date_and_time,
    exact_date_and_time,
    money,
    spelled_duration,
    utc_offset,
)
from vouchers.catalogue.audience import RULES, SALE_RULES
from vouchers.models import Merchant, SaleState, SeckillVoucher, Voucher
from vouchers.templatetags import seckill
from vouchers.templatetags.buyer_texts import MAIL, MAIL_SUBJECTS, PAGES, RECEIPT, RULES_LISTED

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("in_shanghai")]

CATALOGUE = Path(settings.BASE_DIR) / "locale/zh_Hans/LC_MESSAGES/django.po"
SCRIPTS = Path(settings.BASE_DIR) / "static/seckill"
NOON = dt.datetime(2026, 11, 21, 4, 0, tzinfo=dt.UTC)  # 12:00 in Shanghai


@pytest.mark.parametrize(
    ("cents", "text"),
    [
        (1250, "¥12.50"),
        (0, "¥0.00"),
        (5, "¥0.05"),
        (100, "¥1.00"),
        (1_000_000_00, "¥1,000,000.00"),
        (-250, "-¥2.50"),
    ],
)
def test_money_shows_cents_as_yuan(cents: int, text: str) -> None:
    assert money(cents) == text


@given(st.integers())
def test_money_never_rounds(cents: int) -> None:
    assert int(re.sub(r"[¥.,]", "", money(cents))) == cents


def test_less_is_difference_of_amounts() -> None:
    assert seckill.less(10_000, 8_000) == 2_000


@given(st.datetimes(min_value=dt.datetime(1970, 1, 1), timezones=st.just(dt.UTC)))
def test_epoch_ms_keeps_milliseconds(moment: dt.datetime) -> None:
    whole = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    assert from_epoch_ms(epoch_ms(moment)) == whole


def test_epoch_ms_counts_in_utc() -> None:
    shanghai = dt.timezone(dt.timedelta(hours=8))
    assert epoch_ms(dt.datetime(1970, 1, 1, 8, 0, 1, tzinfo=shanghai)) == 1000


def test_missing_moment_is_shown_empty() -> None:
    source = "{% load seckill %}{{ nothing|date_and_time }}{{ nothing|money }}"
    assert Template(source).render(Context({"nothing": None})) == ""


@pytest.mark.parametrize(
    ("language", "this_year", "next_year"),
    [
        ("zh-hans", "11月21日 12:00", "2026年11月21日 12:00"),
        ("en", "21 Nov, 12:00", "21 Nov 2026, 12:00"),
    ],
)
def test_date_uses_shop_zone_and_page_language(
    language: str, this_year: str, next_year: str
) -> None:
    with translation.override(language):
        with time_machine.travel(NOON, tick=False):
            assert date_and_time(NOON) == this_year
        with time_machine.travel(NOON + dt.timedelta(days=60), tick=False):
            assert date_and_time(NOON) == next_year


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("Asia/Shanghai", "UTC+8"),
        ("UTC", "UTC+0"),
        ("America/St_Johns", "UTC-3:30"),
        ("Asia/Kathmandu", "UTC+5:45"),
    ],
)
def test_utc_offset_names_time_zone(zone: str, text: str) -> None:
    with timezone.override(ZoneInfo(zone)):
        assert utc_offset(NOON) == text


@pytest.mark.parametrize(("left_ms", "seconds"), [(10_000, 11), (9_999, 10), (0, 1), (-5_000, 1)])
def test_page_without_script_reloads_after_start(left_ms: int, seconds: int) -> None:
    live = {"server_time_ms": 1_000_000, "begins_at_ms": 1_000_000 + left_ms}
    assert seckill.seconds_to_start(live) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (60, "1 minute"),
        (900, "15 minutes"),
        (90, "1 minute"),
        (3_600, "1 hour"),
        (5_400, "90 minutes"),
        (7_200, "2 hours"),
        (86_400, "1 day"),
        (7 * 86_400, "7 days"),
    ],
)
def test_spelled_duration_uses_largest_exact_unit(seconds: int, text: str) -> None:
    with translation.override("en"):
        assert spelled_duration(seconds) == text


def test_qr_code_is_black_on_white_without_style() -> None:
    picture = seckill.qr("https://shop.example/?code=ABCD-EFGH")
    assert picture.startswith('<svg viewBox="0 0 ')
    assert 'fill="#fff"' in picture
    assert 'stroke="#000"' in picture
    assert "style" not in picture
    assert picture != seckill.qr("https://shop.example/?code=ABCD-EFGJ")


@pytest.mark.parametrize(
    ("status", "pay_by_ms", "shown"),
    [
        ("unpaid", None, "unpaid"),
        ("unpaid", 1_001, "unpaid"),
        ("unpaid", 1_000, "overdue"),
        ("expired", None, "expired"),
    ],
)
def test_receipt_state_is_overdue_after_deadline(
    status: str, pay_by_ms: int | None, shown: str
) -> None:
    receipt = {
        "status": status, "pay_by_ms": pay_by_ms, "server_time_ms": 1_000,
        "payment": "", "late_payment": "", "reason": "",
    }  # fmt: skip
    assert seckill.receipt_state(receipt) == shown


@pytest.mark.parametrize(
    ("remaining", "total", "words"),
    [
        (None, 100, "Vouchers in total: 100"),
        (100, 100, "100 of 100 left"),  # nothing is gone
        (999, 1_000, "1% gone · 999 of 1000 left"),  # something is
        (3, 100, "97% gone · 3 of 100 left"),
        (1, 1_000, "99% gone · 1 of 1000 left"),  # not all
        (0, 100, "100% gone · 0 of 100 left"),
        (0, 0, "0 of 0 left"),
    ],
)
def test_stock_words_say_how_much_is_gone(remaining: int | None, total: int, words: str) -> None:
    with translation.override("en"):
        assert seckill.stock_words(remaining, total) == words


def test_stock_words_are_translated() -> None:
    with translation.override("zh-hans"):
        assert seckill.stock_words(3, 100) == "已抢 97% · 剩余 3 / 100 份"
        assert seckill.stock_words(100, 100) == "剩余 100 / 100 份"


@pytest.mark.parametrize(("remaining", "sold"), [(None, 0), (100, 0), (3, 97), (0, 100)])
def test_bar_shows_what_is_gone(remaining: int | None, sold: int) -> None:
    assert seckill.sold_of(remaining, 100) == sold


FREE: dict[str, Any] = {"waits": False, "status": None}
LIVE = {"begins_at_ms": 3_600_000, "server_time_ms": 1_000}


@pytest.mark.parametrize(
    ("shown", "told", "facts"),
    [
        ("open", "open", {"token": "x"}),
        ("open", "closed", {}),
        ("open", "challenge", {"challenge": object()}),
        ("scheduled", "starts_soon", {"live": LIVE}),
        ("scheduled", "scheduled", {"live": LIVE | {"begins_at_ms": 7_200_000}}),
        ("scheduled", "scheduled", {}),
        ("sold_out", "sold_out", {"token": "x"}),
        ("sold_out", "waits", {"buyer": FREE | {"waits": True}}),
        ("paused", "paused", {"remaining": 1}),
        ("paused", "paused_sold_out", {"remaining": 0}),
        ("paused", "waits", {"remaining": 0, "buyer": FREE | {"waits": True}}),
        ("yours", "overdue", {"buyer": FREE}),
        ("sign_in_open", "sign_in_open", {"buyer": None}),
        ("ended", "ended", {}),
    ],
)
def test_page_without_javascript_says_what_it_can_keep(
    shown: str, told: str, facts: dict[str, Any]
) -> None:
    known = {"buyer": FREE, "live": None, "remaining": 5, "token": "", "challenge": None}
    assert seckill.plain_status(shown=shown, **known | facts) == told
    assert PAGES["purchase_form"]["status"][told]


@pytest.mark.parametrize(
    ("state", "signed_in", "own_state", "shown"),
    [
        ("open", True, None, "open"),
        ("open", False, None, "sign_in_open"),
        ("scheduled", True, None, "scheduled"),
        ("scheduled", False, None, "sign_in"),
        ("sold_out", False, None, "sold_out"),
        ("paused", True, None, "paused"),
        ("ended", False, None, "ended"),
        ("open", True, "queued", "queued"),
        ("sold_out", True, "yours", "yours"),
        ("ended", True, "already_ordered", "already_ordered"),
    ],
)
def test_button_starts_in_state_of_its_buyer(
    state: str, signed_in: bool, own_state: str | None, shown: str
) -> None:
    buyer = {"own_state": own_state} if signed_in else None
    assert seckill.button_state(state=state, signed_in=signed_in, buyer=buyer) == shown


@pytest.mark.parametrize(
    ("status", "pay_by_ms", "to_pay"),
    [("unpaid", None, True), ("unpaid", 1_001, True), ("unpaid", 1_000, False), ("paid", 0, False)],
)
def test_order_can_be_paid_until_deadline(status: str, pay_by_ms: int | None, to_pay: bool) -> None:
    mine = {"status": status, "pay_by_ms": pay_by_ms, "server_time_ms": 1_000}
    assert seckill.is_to_pay(mine) is to_pay
    assert not seckill.is_to_pay(None)


def noon_and(**later: int) -> int:
    return epoch_ms(NOON + dt.timedelta(**later))


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        ({"milliseconds": -422}, "at 11:59:59.578, 0.4 s earlier."),
        ({"milliseconds": -42}, "at 11:59:59.958, 42 ms earlier."),
        ({"seconds": -59, "milliseconds": -999}, "at 11:59:00.001, 59.9 s earlier."),
        ({"minutes": -3}, "at 11:57:00.000, 3 min earlier."),
        ({"hours": -2}, "at 10:00:00.000, 2 h earlier."),
        ({"days": -3}, "at 18 Nov, 12:00:00.000, 3 d earlier."),
        ({}, "The last voucher went in the same millisecond."),
    ],
)
def test_late_buyer_learns_by_how_much(gone: dict[str, int], words: str) -> None:
    with translation.override("en"), time_machine.travel(NOON, tick=False):
        why = seckill.why_sold_out(noon_and(), noon_and(**gone))
    assert why.startswith("Your request arrived at 12:00:00.000. The last voucher ")
    assert why.endswith(words)


def test_unknown_sell_out_time_shows_arrival_only() -> None:
    with translation.override("en"):
        why = seckill.why_sold_out(noon_and(milliseconds=7), None)
    assert why == "Your request arrived at 12:00:00.007. No vouchers were left by then."


def test_exact_date_has_milliseconds() -> None:
    moment = NOON + dt.timedelta(milliseconds=5)
    with translation.override("en"):
        with time_machine.travel(NOON, tick=False):
            assert exact_date_and_time(moment) == "21 Nov, 12:00:00.005"
        with time_machine.travel(NOON + dt.timedelta(days=60), tick=False):
            assert exact_date_and_time(moment) == "21 Nov 2026, 12:00:00.005"


def test_tags_work_in_a_template() -> None:
    source = (
        "{% load seckill %}{% sentences 'purchase' as say %}"
        "{% button_state state='open' signed_in=True buyer=None as shown %}"
        "{{ say.button|at:shown }} {{ 1250|money }} {{ say.button|at:'nothing' }}"
    )
    with translation.override("en"):
        assert Template(source).render(Context()) == "Buy now ¥12.50 "


def test_sentences_are_json_in_page_language() -> None:
    source = "{% load seckill %}{% sentences 'purchase' as say %}{{ say|json_script:'say' }}"
    with translation.override("zh-hans"):
        html = Template(source).render(Context())
    assert json.loads(html.split(">", 1)[1].rsplit("<", 1)[0])["button"]["open"] == "立即抢购"


def test_every_button_state_has_label_and_sentence() -> None:
    table = (SCRIPTS / "purchase_states.js").read_text("utf-8")
    states = set(re.findall(r"^  (\w+): \{ press:", table, re.MULTILINE)) - {"null"}
    assert {state.value for state in SaleState} <= states
    for page in ("purchase", "purchase_draw"):
        assert states | {"paused_sold_out"} == set(PAGES[page]["status"])
        assert states | {"countdown"} == set(PAGES[page]["button"])


def test_scripts_import_only_what_is_exported() -> None:
    scripts = {it.name: it.read_text("utf-8") for it in SCRIPTS.glob("*.js")}
    exported = {
        name: set(
            re.findall(r"^export (?:async )?(?:const|function|class) (\w+)", text, re.MULTILINE)
        )
        for name, text in scripts.items()
    }
    for text in scripts.values():
        for names, source in re.findall(r'import \{([^}]*)\} from "\./([^"]+)"', text):
            assert {it.strip() for it in names.split(",")} - {""} <= exported[source]


def test_every_status_and_reason_has_a_sentence() -> None:
    statuses = {status.value for status in OrderStatus} | {QUEUED, ENTERED, *Stage.values}
    back = {"confirming", "silent", "unconfirmed", "not_paid"}
    shown = statuses | back | {"overdue", "not_drawn", "withdrawn"}
    assert shown == set(RECEIPT["heading"]) == set(RECEIPT["text"])
    assert {status.value for status in OrderStatus} | set(MAIL_SUBJECTS) == set(MAIL)
    assert {reason.value for reason in RefusalReason} <= set(RECEIPT["reason"])


def test_every_text_has_compiled_translation() -> None:
    catalogue = polib.pofile(str(CATALOGUE))
    assert catalogue.untranslated_entries() == []
    assert catalogue.fuzzy_entries() == []
    compiled = polib.mofile(str(CATALOGUE.with_suffix(".mo")))
    assert _said(compiled) == _said(catalogue)


def _said(entries: Iterable[polib.POEntry | polib.MOEntry]) -> dict[tuple[str, str], object]:
    return {(it.msgctxt or "", it.msgid): it.msgstr or it.msgstr_plural for it in entries}


def test_placeholders_agree_between_languages() -> None:
    for sentence in _sentences(PAGES):
        with translation.override("en"):
            english = _fields(str(sentence))
        with translation.override("zh-hans"):
            assert _fields(str(sentence)) == english


def _sentences(value: object) -> list[object]:
    if isinstance(value, dict):
        return [sentence for inner in value.values() for sentence in _sentences(inner)]
    return [value]


def _fields(sentence: str) -> set[str | None]:
    return {field for _, field, _, _ in Formatter().parse(sentence)} - {None}


# --- The terms of a voucher -----------------------------------------------------------------------


def sale_of(
    *,
    refundable: bool = True,
    refund_unused: bool | None = False,
    address: str = "",
    price_cents: int = 1,
    **fields: Any,
) -> SeckillVoucher:
    merchant = Merchant(name="Tea", address=address)
    amounts = {"price_cents": price_cents, "face_value_cents": 2}
    voucher = Voucher(title="Tea", merchant=merchant, **amounts, **fields)
    return SeckillVoucher(voucher=voucher, refundable=refundable, refund_unused=refund_unused)


@pytest.mark.parametrize(
    ("sale", "english", "chinese"),
    [
        (
            sale_of(address="18 Old Street", valid_until=dt.date(2026, 12, 31)),
            ["At 18 Old Street", "valid until 31 Dec 2026", "refundable until used"],
            ["适用于18 Old Street", "有效期至 2026年12月31日", "未使用可退"],
        ),
        (
            sale_of(refundable=False),
            ["No expiry date", "not refundable"],
            ["长期有效", "不支持退款"],
        ),
        (
            sale_of(valid_where="2F", valid_until=dt.date(2026, 1, 2)),
            ["At 2F", "valid until 2 Jan 2026", "refundable until used"],
            ["适用于2F", "有效期至 2026年1月2日", "未使用可退"],
        ),
    ],
)
def test_terms_say_where_until_when_and_whether_refundable(
    sale: SeckillVoucher, english: list[str], chinese: list[str]
) -> None:
    with translation.override("en"):
        assert seckill.voucher_terms(sale) == english
    with translation.override("zh-hans"):
        assert seckill.voucher_terms(sale) == chinese


@pytest.mark.parametrize(
    ("fields", "english", "chinese"),
    [
        ({}, "refundable until used, automatically after the last day", "未使用可退，过期自动退"),
        (
            {"refundable": False},
            "refunded automatically after the last day if not used",
            "未使用过期自动退，此前不可退",
        ),
        ({"refund_unused": None}, "refundable until used", "未使用可退"),
        ({"valid_until": None}, "refundable until used", "未使用可退"),
        ({"price_cents": 0}, "refundable until used", "未使用可退"),
    ],
    ids=str,
)
def test_terms_say_whether_unused_vouchers_are_refunded(
    fields: dict[str, Any], english: str, chinese: str
) -> None:
    of = {"refund_unused": True, "valid_until": dt.date(2026, 12, 31), **fields}
    for language, words in (("en", english), ("zh-hans", chinese)):
        with translation.override(language):
            assert seckill.voucher_terms(sale_of(**of))[-1] == words


def test_every_rule_has_its_sentences() -> None:
    assert set(RULES_LISTED) == {it.name for it in SALE_RULES}
    # No page of a sale offers what this one refuses.
    assert set(PAGES["purchase"]["rule"]) == RULES.keys() - {"cancellations"}
    assert PAGES["purchase"]["rule_button"].keys() <= RULES.keys()
