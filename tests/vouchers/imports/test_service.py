"""The import: it does what its preview showed, all of it or nothing, once."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.core.cache import cache
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import translation
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests.support.sales import HOUR, make_sale, make_user, make_voucher
from tests.support.spreadsheets import CHINESE, ENGLISH, HOTPOT, NOODLES, as_csv, as_xlsx
from tests.support.tiers import slow_after
from vouchers.catalogue.history import text_of
from vouchers.catalogue.series import MOST_SALES
from vouchers.imports import service as importing
from vouchers.imports.plan import Importer, RowOutcome
from vouchers.imports.rows import HEADINGS
from vouchers.imports.service import (
    Preview,
    PreviewGone,
    PreviewNotKept,
    VouchersChanged,
    add_merchants,
    confirm_import,
    preview_import,
)
from vouchers.inventory.sale_state import snapshot
from vouchers.models import Merchant, SaleStage, SeckillVoucher, Voucher

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("english", "in_shanghai")]

NOW = dt.datetime(2029, 12, 1, tzinfo=dt.UTC)
BEGINS_AT = dt.datetime(2030, 1, 1, 2, tzinfo=dt.UTC)  # that of HOTPOT: 10:00 in Shanghai


@pytest.fixture
def boss() -> Importer:
    return Importer(make_user("boss").pk, may_sell=True)


def preview(boss: Importer, *rows: list[Any], content: Any = b"") -> Preview:
    content = content or as_csv(ENGLISH, *rows)
    return preview_import(content=content, file_name="spring.csv", by=boss, now=NOW)


def confirm(boss: Importer, shown: Preview) -> Any:
    return confirm_import(key=shown.key, by=boss, now=NOW)


def stored() -> list[tuple[Any, ...]]:
    vouchers = Voucher.objects.order_by("pk").values_list()
    return [*vouchers, *SeckillVoucher.objects.order_by("pk").values_list()]


def row_of(voucher: Voucher, **cells: object) -> list[object]:
    """Return a row with the id of a stored voucher and these cells."""
    given = {"id": voucher.pk, **cells}
    return [given.get(name.replace(" ", "_"), "") for name in ENGLISH]


# --- The preview ----------------------------------------------------------------------------------


def test_preview_plans_each_row_and_writes_nothing(boss: Importer) -> None:
    changes, stays = make_voucher(rules="One bowl"), make_voucher(title="Stays")
    before = stored()

    plan = preview(
        boss,
        row_of(changes, price="79.90", rules="Two bowls"),
        row_of(stays, title="Stays", price="80"),
        NOODLES,
        HOTPOT,
    ).plan

    assert {row.number: row.what for row in plan.rows} == {
        2: RowOutcome.CHANGED,
        3: RowOutcome.UNCHANGED,
        4: RowOutcome.NEW,
        5: RowOutcome.NEW,
    }
    assert plan.rows[0].changes == [
        ("Rules", "One bowl", "Two bowls"),
        ("Price", "¥80.00", "¥79.90"),
    ]
    assert plan.rows[2].changes == [
        ("Rules", "", "One bowl, big"),
        ("Price", "", "¥79.90"),
        ("Face value", "", "¥100.00"),
    ]
    assert (plan.counts[RowOutcome.NEW], plan.counts[RowOutcome.WRONG], plan.sales) == (2, 0, 1)
    assert stored() == before
    assert LogEntry.objects.count() == 0


@pytest.mark.parametrize(
    "content",
    slow_after(1, [
        as_csv(CHINESE, NOODLES, HOTPOT, encoding="gb18030", delimiter="\t"),
        as_csv(ENGLISH, NOODLES, HOTPOT, encoding="utf-8-sig", delimiter=";"),
        as_xlsx(CHINESE, NOODLES, HOTPOT),
        as_xlsx(
            ENGLISH,
            ["", "牛肉面", "One bowl, big", 79.9, 100],
            ["", "Hotpot", "", 168, 1200, 500,
             dt.datetime(2030, 1, 1, 10), dt.datetime(2030, 1, 1, 12), 2],
        ),
    ]),
    ids=["GBK with tabs", "UTF-8 with semicolons", "XLSX as text", "XLSX with numbers and dates"],
)  # fmt: skip
def test_every_file_type_gives_the_same_plan(boss: Importer, content: bytes) -> None:
    confirm(boss, preview(boss, content=content))

    noodles, hotpot = Voucher.objects.order_by("pk")
    assert (noodles.title, noodles.rules) == ("牛肉面", "One bowl, big")
    assert (noodles.price_cents, noodles.face_value_cents) == (7_990, 10_000)
    assert (hotpot.price_cents, hotpot.face_value_cents) == (16_800, 120_000)
    sale = SeckillVoucher.objects.get()
    assert (sale.voucher, sale.stock, sale.limit, sale.stage) == (hotpot, 500, 2, SaleStage.DRAFT)
    assert (sale.begins_at, sale.ends_at) == (BEGINS_AT, BEGINS_AT + 2 * HOUR)


def test_empty_cell_keeps_stored_value(boss: Importer) -> None:
    voucher = make_voucher(rules="One bowl")
    confirm(boss, preview(boss, row_of(voucher, title="Soup")))
    voucher.refresh_from_db()
    assert (voucher.title, voucher.rules, voucher.price_cents) == ("Soup", "One bowl", 8_000)


def test_other_line_endings_are_no_change(boss: Importer) -> None:
    voucher = make_voucher(rules="one\r\ntwo")
    plan = preview(boss, row_of(voucher, rules="one\ntwo", price="80.00")).plan
    assert plan.rows[0].what == RowOutcome.UNCHANGED


def test_repeated_title_warns(boss: Importer) -> None:
    there = [make_voucher(title="noodles").pk for _ in range(5)]
    row = ["", "Noodles", *NOODLES[2:]]

    plan = preview(boss, row, row, HOTPOT).plan

    named = ", ".join(map(str, there[:3]))
    assert plan.rows[0].warnings == [
        "The same title is in row 3.",
        f"There is already a voucher with this title: id {named} and 2 more.",
    ]
    assert plan.rows[2].warnings == []
    assert plan.writes


def test_kept_title_does_not_warn(boss: Importer) -> None:
    voucher = make_voucher()
    plan = preview(boss, row_of(voucher, title="Noodles", price="1")).plan
    assert plan.rows[0].warnings == []


def test_overlapping_and_ended_sales_warn(boss: Importer) -> None:
    voucher = make_voucher()
    sale = make_sale(voucher=voucher, begins_at=BEGINS_AT - HOUR, ends_at=BEGINS_AT + HOUR)
    over = [*HOTPOT[:6], "2029-01-01 10:00", "2029-01-01 12:00", ""]

    plan = preview(boss, [voucher.pk, *[""] * 4, *HOTPOT[5:]], over).plan

    assert plan.rows[0].warnings == [
        f"The voucher is already on sale at that time: sale {sale.pk}."
    ]
    assert plan.rows[1].warnings == ["The end of the sale has already passed."]


def test_problems_with_stored_rows_name_row_and_cell(boss: Importer) -> None:
    voucher = make_voucher()
    make_sale(voucher=voucher, begins_at=BEGINS_AT, ends_at=BEGINS_AT + HOUR)

    shown = preview(
        boss,
        ["999999999", "x", *[""] * 7],
        [voucher.pk, *[""] * 4, *HOTPOT[5:]],
        row_of(voucher, title="Again"),
        ["", "Dear", "", "101", "100", *[""] * 4],
        NOODLES,
    )

    assert [row.problems for row in shown.plan.rows] == [
        ("id (编号), “999999999”: There is no voucher with this id. Leave the id "
"empty for a new voucher.",),
        ("begins at (开始时间): The voucher already has a sale that starts at this "
"time. Change one of them.",),
        (f"id (编号), “{voucher.pk}”: Row 3 is about the same voucher. "
"Combine them into one row.",),
        ("price (售价): The price cannot be above the face value.",),
        (),
    ]  # fmt: skip
    assert shown.key == ""


def test_price_above_stored_face_value_is_reported(boss: Importer) -> None:
    voucher = make_voucher()
    plan = preview(boss, row_of(voucher, price="100.01")).plan
    assert plan.rows[0].problems == ("price (售价): The price cannot be above the face value.",)


def test_merchant_is_found_by_its_exact_name_first(boss: Importer) -> None:
    there = ("Tea", "tea", "Caf\u00e9")
    tea, other, cafe = (Merchant.objects.create(name=name) for name in there)
    headings, row = ["title", "price", "face value", "merchant"], ["Noodles", "1", "2"]
    names = ["Tea", "tea", "CAFE\u0301", "TEA"]

    plan = preview(boss, content=as_csv(headings, *([*row, name] for name in names))).plan

    assert [it.after.get("merchant") for it in plan.rows] == [tea, other, cafe, None]
    assert "There is no merchant of this name" in plan.rows[3].problems[0]


def test_importer_without_sale_permission_imports_vouchers_only(boss: Importer) -> None:
    clerk = Importer(boss.user_id, may_sell=False)
    assert (
        "You do not have permission to create sales."
        in preview(clerk, HOTPOT).plan.rows[0].problems[0]
    )
    assert preview(clerk, NOODLES).plan.writes


def test_voucher_on_sale_needs_permission_to_run(boss: Importer) -> None:
    clerk = Importer(boss.user_id, may_sell=True, may_run=False)
    running, coming = make_voucher(title="Running"), make_voucher(title="Coming")
    make_sale(voucher=running, begins_at=NOW, ends_at=NOW + HOUR)
    make_sale(voucher=coming, begins_at=NOW + HOUR, ends_at=NOW + 2 * HOUR)
    cheap = [row_of(voucher, price="1") for voucher in (running, coming)]
    found = preview(clerk, *cheap).plan.rows
    assert "Only staff who can run sales may change it" in found[0].problems[0]
    assert not found[1].problems
    assert not preview(clerk, row_of(running)).plan.rows[0].problems  # nothing would change
    assert not any(row.problems for row in preview(boss, *cheap).plan.rows)


def test_one_file_creates_at_most_a_hundred_sales(boss: Importer) -> None:
    rows = [["", f"Hotpot {number}", *HOTPOT[2:]] for number in range(MOST_SALES + 1)]
    plan = preview(boss, *rows).plan
    assert [row.number for row in plan.rows if row.problems] == [MOST_SALES + 2]


@pytest.mark.slow
def test_preview_queries_do_not_depend_on_rows(boss: Importer) -> None:
    vouchers = [make_voucher(title=f"Voucher {number}") for number in range(20)]

    def queries(count: int) -> int:
        rows = [[it.pk, *[""] * 4, *HOTPOT[5:]] for it in vouchers[:count]]
        new = [["", f"New {number}", *NOODLES[2:]] for number in range(50 * count)]
        with CaptureQueriesContext(connection) as captured:
            preview(boss, *rows, *new)
        return len(captured)

    assert queries(20) == queries(1) == 5


def test_plan_without_changes_cannot_be_confirmed(boss: Importer) -> None:
    voucher = make_voucher()
    shown = preview(boss, row_of(voucher, price="80"))
    assert (shown.plan.counts[RowOutcome.UNCHANGED], shown.key) == (1, "")


@pytest.mark.parametrize("day", ["0001-01-01", "2029-11-30", "2049-12-02", "9999-12-31"])
def test_last_day_is_in_twenty_years_unless_it_is_stored(boss: Importer, day: str) -> None:
    voucher = make_voucher(valid_until=dt.date.fromisoformat(day))
    headings = ["id", "title", "price", "face value", "valid until"]
    new, stored = ["", "Soup", "1", "2", day], [voucher.pk, "Soup", "", "", day]
    plan = preview(boss, content=as_csv(headings, new, stored)).plan
    assert [len(row.problems) for row in plan.rows] == [1, 0]
    assert plan.rows[0].problems[0].startswith(f"valid until (有效期至), “{day}”: Choose a day")
    assert preview(boss, content=as_csv(headings, [*new[:4], "2049-12-01"])).key


# --- The confirmation -----------------------------------------------------------------------------


def test_import_is_logged_for_each_voucher_and_sale(boss: Importer) -> None:
    voucher = make_voucher()
    confirm(boss, preview(boss, row_of(voucher, price="79.90"), row_of(make_voucher()), HOTPOT))

    entries = LogEntry.objects.order_by("pk").values_list(
        "user_id", "content_type__model", "object_id", "action_flag", "change_message"
    )
    found = [(*it[:4], text_of(it[4])) for it in entries]
    new, sale = Voucher.objects.last(), SeckillVoucher.objects.get()
    assert new is not None
    assert found == [
        (boss.user_id, "voucher", str(voucher.pk), CHANGE,
         "Imported from spring.csv, row 2. Price: ¥80.00 → ¥79.90"),
        (boss.user_id, "voucher", str(new.pk), ADDITION, "Imported from spring.csv, row 4."),
        (boss.user_id, "seckillvoucher", str(sale.pk), ADDITION, "Imported from spring.csv."),
    ]  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_imported_draft_is_loaded_after_commit(boss: Importer) -> None:
    confirm(boss, preview(boss, HOTPOT))
    found = snapshot(sale_id=SeckillVoucher.objects.get().pk)
    assert (found.remaining, found.terms.paused) == (500, True)


def test_preview_is_confirmed_once(boss: Importer) -> None:
    shown = preview(boss, NOODLES)
    confirm(boss, shown)
    after = stored()
    with pytest.raises(PreviewGone):
        confirm(boss, shown)
    assert stored() == after


@pytest.mark.django_db(transaction=True)
def test_simultaneous_confirmations_import_once(boss: Importer) -> None:
    shown = preview(boss, NOODLES, HOTPOT)

    def answer(_number: int) -> str:
        try:
            confirm(boss, shown)
        except PreviewGone:
            return "gone"
        finally:
            connections.close_all()
        return "imported"

    with ThreadPoolExecutor(4) as pool:
        answers = sorted(pool.map(answer, range(4)))

    assert answers == ["gone", "gone", "gone", "imported"]
    assert Voucher.objects.count() == 2


@pytest.fixture
def tea(monkeypatch: pytest.MonkeyPatch) -> Merchant:
    """A merchant of the name in ``USUAL``, and imports that take rows for files."""
    monkeypatch.setattr(importing, "read_sheet", lambda rows: rows)
    return Merchant.objects.create(name="Tea")


USUAL = [
    "", "Hotpot", "", "¥168", "1,200", "500", "2030-01-01 10:00", "2030-01-01 12:00", "2",
    "Tea", "", "", "", "2030-12-31",
]  # fmt: skip
ODD_CELLS = [
    "", "0", "00", "1", "１", "-1", "+1", "1.0", "1e2", "1E+999999", "0E+999999", "NaN", "sNaN",
    "80元", "¥ 1,200", "9" * 20, "2030-01-01 10:00", "2030/1/1", "0001-01-01", "9999-12-31 23:59",
    "Tea", "tea", "\u200b", "\u2800", "a\0b", "x" * 121, "\r", "=1",
]  # fmt: skip
CELLS = st.sampled_from(["元", "¥", "￥元"]) | st.sampled_from(ODD_CELLS) | st.text(max_size=20)


@pytest.mark.slow
@examples(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(odd=st.dictionaries(st.integers(0, 13), CELLS, min_size=1, max_size=3))
def test_confirmation_does_whatever_the_preview_accepted(
    boss: Importer, tea: Merchant, odd: dict[int, str]
) -> None:
    row = [odd.get(place, cell).strip() for place, cell in enumerate(USUAL)]
    before = Voucher.objects.count(), SeckillVoucher.objects.count()

    shown = preview(boss, content=[(1, [it[0] for it in HEADINGS.values()]), (2, row)])

    if shown.plan.writes:
        confirm(boss, shown)
        new = shown.plan.counts[RowOutcome.NEW], shown.plan.sales
        after = Voucher.objects.count(), SeckillVoucher.objects.count()
        assert after == (before[0] + new[0], before[1] + new[1])
        assert new[1] == any(row[place] for place in (5, 6, 7, 8))
    else:
        assert shown.plan.rows[0].problems or shown.plan.rows[0].what == RowOutcome.UNCHANGED


def test_language_of_the_reader_may_change_before_the_confirmation(boss: Importer) -> None:
    make_voucher(title="Hotpot")
    shown = preview(boss, HOTPOT)
    assert shown.plan.rows[0].warnings

    with translation.override("zh-hans"):
        confirm(boss, shown)

    assert Voucher.objects.filter(title="Hotpot").count() == 2


def test_reader_of_english_confirms_what_was_previewed_in_chinese(boss: Importer) -> None:
    Merchant.objects.create(name="老街茶馆", name_en="Old Street")
    voucher = make_voucher(merchant=Merchant.objects.create(name="Tea", name_en="Teahouse"))
    row = [*row_of(voucher, price="79.90"), "老街茶馆", "", "", ""]
    with translation.override("zh-hans"):
        shown = preview(boss, content=as_csv(FACTS, row, [*HOTPOT, "", "", "", ""]))

    confirm(boss, shown)

    assert list(Voucher.objects.values_list("merchant__name", flat=True)) == ["老街茶馆"] * 2


def test_second_upload_warns_or_does_nothing(boss: Importer) -> None:
    first, second = preview(boss, NOODLES), preview(boss, NOODLES)
    confirm(boss, first)
    with pytest.raises(VouchersChanged) as error:
        confirm(boss, second)
    assert "already" in error.value.preview.plan.rows[0].warnings[0]
    assert Voucher.objects.count() == 1


@pytest.mark.parametrize(
    "meanwhile",
    slow_after(
        1,
        [
            lambda voucher: Voucher.objects.filter(pk=voucher.pk).update(price_cents=1),
            lambda voucher: voucher.delete(),
            lambda voucher: make_voucher(title="Hotpot"),
            lambda voucher: make_sale(
                voucher=voucher, begins_at=BEGINS_AT, ends_at=BEGINS_AT + HOUR
            ),
        ],
    ),
    ids=["its price was changed", "it was deleted", "its title came up", "it was put on sale"],
)
def test_change_since_preview_writes_nothing(boss: Importer, meanwhile: Any) -> None:
    voucher = make_voucher()
    shown = preview(boss, [voucher.pk, "", "", "79", "", *HOTPOT[5:]], HOTPOT)
    meanwhile(voucher)
    before = stored()

    with pytest.raises(VouchersChanged) as error:
        confirm(boss, shown)

    assert stored() == before
    assert error.value.preview.plan.digest != shown.plan.digest


def test_change_of_untouched_column_does_not_matter(boss: Importer) -> None:
    voucher = make_voucher()
    shown = preview(boss, row_of(voucher, price="79"))
    Voucher.objects.update(rules="Another rule")
    confirm(boss, shown)
    voucher.refresh_from_db()
    assert (voucher.price_cents, voucher.rules) == (7_900, "Another rule")


def test_failing_last_row_writes_nothing(boss: Importer, monkeypatch: pytest.MonkeyPatch) -> None:
    voucher = make_voucher()
    shown = preview(boss, row_of(voucher, price="79"), NOODLES, HOTPOT)
    before = stored()

    def fail(**_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(importing, "create_sales", fail)
    with pytest.raises(RuntimeError):
        confirm(boss, shown)
    assert stored() == before
    assert LogEntry.objects.count() == 0


def test_preview_of_another_user_is_gone(boss: Importer) -> None:
    shown = preview(boss, NOODLES)
    other = Importer(make_user("other").pk, may_sell=True)
    with pytest.raises(PreviewGone):
        confirm(other, shown)
    confirm(boss, shown)


@pytest.mark.parametrize("key", ["", "*", "ключ\n"])
def test_invented_key_confirms_nothing(boss: Importer, key: str) -> None:
    preview(boss, NOODLES)
    with pytest.raises(PreviewGone):
        confirm_import(key=key, by=boss, now=NOW)


def test_unavailable_cache_refuses_preview(boss: Importer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "add", lambda *_args, **_options: False)
    with pytest.raises(PreviewNotKept):
        preview(boss, NOODLES)


def test_preview_is_kept_for_an_hour(boss: Importer) -> None:
    shown = preview(boss, NOODLES)
    name = importing._cache_key(boss, shown.key)
    assert 3_590 < cache.ttl(name) <= 3_600  # type: ignore[attr-defined]


# --- Merchants and what buyers read ---------------------------------------------------------------

FACTS = [*ENGLISH, "merchant", "english title", "valid where", "valid until"]


def test_file_without_a_merchant_column_uses_the_default_merchant(boss: Importer) -> None:
    confirm(boss, preview(boss, NOODLES))
    assert Voucher.objects.get().merchant == Merchant.default()
    assert Merchant.objects.count() == 1


def test_import_names_merchant_english_title_place_and_last_day(boss: Importer) -> None:
    Merchant.objects.create(name="First")
    tea = Merchant.objects.create(name="Old Street Tea")
    row = [*NOODLES, "old street TEA", "Beef noodles", "2F", "2030/12/31"]
    confirm(boss, preview(boss, content=as_csv(FACTS, row)))
    voucher = Voucher.objects.get()
    assert (voucher.merchant, voucher.title_en, voucher.valid_where) == (tea, "Beef noodles", "2F")
    assert voucher.valid_until == dt.date(2030, 12, 31)


def test_date_cell_of_excel_is_a_last_day(boss: Importer) -> None:
    row = [*NOODLES, "", "", "", dt.datetime(2030, 12, 31)]
    confirm(boss, preview(boss, content=as_xlsx(FACTS, row)))
    assert Voucher.objects.get().valid_until == dt.date(2030, 12, 31)


def test_empty_merchant_cell_keeps_the_stored_merchant(boss: Importer) -> None:
    Merchant.default()
    tea = Merchant.objects.create(name="Tea")
    voucher = make_voucher(merchant=tea, valid_until=dt.date(2030, 1, 1))
    row = [*row_of(voucher, title="Soup"), "", "", "", ""]
    confirm(boss, preview(boss, content=as_csv(FACTS, row)))
    voucher.refresh_from_db()
    assert (voucher.title, voucher.merchant) == ("Soup", tea)
    assert voucher.valid_until == dt.date(2030, 1, 1)


def test_stored_merchant_is_no_change(boss: Importer) -> None:
    voucher = make_voucher(merchant=Merchant.objects.create(name="Tea"))
    row = [*row_of(voucher), "tea", "", "", ""]
    [planned] = preview(boss, content=as_csv(FACTS, row)).plan.rows
    assert planned.what == RowOutcome.UNCHANGED


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        (["Nobody", "", "", ""], "There is no merchant of this name."),
        (["", "", "", "soon"], "This is not a date. Write it like 2026-12-01."),
        (["", "", "", "2030-02-30"], "This is not a date. Write it like 2026-12-01."),
    ],
)
def test_unknown_merchant_or_day_is_named(boss: Importer, cells: list[str], text: str) -> None:
    plan = preview(boss, content=as_csv(FACTS, [*NOODLES, *cells])).plan
    assert plan.rows[0].what == RowOutcome.WRONG
    assert text in plan.rows[0].problems[0]
    assert not plan.writes


def test_row_shows_problems_of_cells_and_of_the_shop_at_once(boss: Importer) -> None:
    clerk = Importer(boss.user_id, may_sell=False)
    row = ["99", "x" * 121, "", "abc", "100", "5", "soon", "", "", "Nobody", "", "", "2020-01-01"]

    [found] = preview(clerk, content=as_csv(FACTS, row)).plan.rows

    assert sorted(it.partition(" (")[0] for it in found.problems) == [
        *("begins at", "ends at", "id", "merchant", "price", "stock", "title", "valid until"),
    ]


def test_price_that_cannot_be_read_is_not_compared(boss: Importer) -> None:
    voucher = make_voucher()
    [row] = preview(boss, row_of(voucher, price="abc", face_value="1")).plan.rows
    assert [it.partition(" (")[0] for it in row.problems] == ["price"]


def test_preview_names_the_default_merchant(boss: Importer) -> None:
    Merchant.objects.create(name="First")
    shown = preview(boss, NOODLES, row_of(make_voucher(merchant=None), title="Soup"))
    assert ("Merchant", "", "First") in shown.plan.rows[0].changes
    assert [name for name, *_ in shown.plan.rows[1].changes] == ["Title"]


def test_cell_merged_over_rows_names_the_merchant_of_each(boss: Importer) -> None:
    Merchant.objects.create(name="First")
    tea = Merchant.objects.create(name="Tea")
    rows = [[*NOODLES, "Tea"], [*HOTPOT, ""]]

    confirm(boss, preview(boss, content=as_xlsx(FACTS[:10], *rows, merged=("J2:J3",))))

    assert {it.merchant for it in Voucher.objects.all()} == {tea}


# --- Merchants that the shop does not have --------------------------------------------------------


@pytest.fixture
def adder(boss: Importer) -> Importer:
    return replace(boss, may_add_merchants=True)


def unknown(by: Importer, *names: str) -> Preview:
    """Preview a voucher of each of these merchants."""
    rows = [["", f"Noodles {number}", "80", "100", name] for number, name in enumerate(names)]
    return preview(by, content=as_csv(["id", "title", "price", "face value", "merchant"], *rows))


def add(by: Importer, shown: Preview, *names: str) -> Preview:
    return add_merchants(key=shown.key, names=names, by=by, now=NOW)


def test_unknown_merchants_are_added_from_the_preview(adder: Importer) -> None:
    first = Merchant.objects.create(name="First")
    shown = unknown(adder, "Tea", "First", "Tea", "Rice")
    assert shown.plan.unknown_merchants == ("Tea", "Rice")

    again = add(adder, shown, "Tea", "Rice", "Not in the file")

    assert set(Merchant.objects.values_list("name", flat=True)) == {"First", "Tea", "Rice"}
    assert LogEntry.objects.filter(content_type__model="merchant").count() == 2
    assert again.plan.writes
    confirm(adder, again)
    assert Voucher.objects.filter(merchant=first).count() == 1
    assert Voucher.objects.filter(merchant__name="Tea").count() == 2


def test_merchant_that_is_not_ticked_stays_unknown(adder: Importer) -> None:
    again = add(adder, unknown(adder, "Tea", "Taa"), "Tea")
    assert again.plan.unknown_merchants == ("Taa",)
    assert not again.plan.writes


def test_added_merchant_is_never_the_default(adder: Importer) -> None:
    add(adder, unknown(adder, "Tea"), "Tea")
    assert Merchant.default().name == "Seckill"


def test_merchants_are_added_by_permission_and_once(boss: Importer, adder: Importer) -> None:
    assert add(boss, unknown(boss, "Tea"), "Tea").plan.unknown_merchants == ("Tea",)
    shown = unknown(adder, "Tea")
    add(adder, shown, "Tea")
    with pytest.raises(PreviewGone):
        add(adder, shown, "Tea")


def test_preview_with_wrong_rows_writes_nothing_if_confirmed(adder: Importer) -> None:
    shown = unknown(adder, "Tea", "")
    with pytest.raises(VouchersChanged):
        confirm(adder, shown)
    assert not Voucher.objects.exists()


def test_other_problems_are_there_after_merchants_were_added(adder: Importer) -> None:
    row = ["", "Noodles", "", "80", "100", *[""] * 4, "Tea", "", "", "", "more"]
    again = add(adder, preview(adder, content=as_csv(FACTS, row)), "Tea")
    assert [len(it.problems) for it in again.plan.rows] == [1]
    assert "has no heading" in again.plan.rows[0].problems[0]
