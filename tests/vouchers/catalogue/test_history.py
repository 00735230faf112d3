"""Entries of the admin's history: stored as codes with values, read in any language."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from django.contrib.admin.models import LogEntry
from django.utils import timezone, translation

from vouchers.catalogue.history import (
    SENTENCES,
    Change,
    cents,
    choice,
    entry,
    field_change,
    history_text,
    length,
    moment,
    text_of,
    yes_or_no,
)
from vouchers.models import SaleStage

NOON = dt.datetime(2026, 11, 11, 4, tzinfo=dt.UTC)

CHANGES: list[tuple[Change, str, str]] = [
    (("paused", {}), "Paused", "已暂停"),
    (field_change("stock", 5, 1_900), "Stock: 5 → 1,900", "库存：5 → 1,900"),
    (field_change("ends_at", moment(NOON), None),
     "Ends at: 2026-11-11 12:00:00 → –", "结束时间：2026-11-11 12:00:00 → –"),
    (field_change("price", cents(7_990), cents(8_000)),
     "Price: ¥79.90 → ¥80.00", "售价：¥79.90 → ¥80.00"),
    (field_change("pay_within_s", length(900), length(5_400)),
     "Time to pay: 15 min → 1 h 30 min", "支付时限：15 分钟 → 1 小时 30 分钟"),
    (field_change("paused", yes_or_no(False), yes_or_no(True)),
     "Paused: no → yes", "已暂停：否 → 是"),
    (field_change("stage", choice("stage", SaleStage.DRAFT), choice("stage", "public")),
     "Stage: draft → public", "阶段：草稿 → 公开"),
    (("codes_made", {"count": 1}), "Made 1 invitation code.", "已生成 1 个邀请码。"),
    (field_change("title", "Paused", "no"), "Title: Paused → no", "标题：Paused → no"),
]  # fmt: skip


def shown(stored: str, language: str) -> str:
    with translation.override(language), timezone.override("Asia/Shanghai"):
        return text_of(stored)


@pytest.mark.parametrize(("change", "english", "chinese"), CHANGES)
def test_entry_is_read_in_each_language(change: Change, english: str, chinese: str) -> None:
    stored = entry(change)
    assert shown(stored, "en") == english
    assert shown(stored, "zh-hans") == chinese


def test_entry_is_stored_alike_in_every_language() -> None:
    def stored() -> str:
        return entry(
            ("ended_now", {}), field_change("stage", choice("stage", SaleStage.DRAFT), None)
        )

    with translation.override("en"):
        english = stored()
    with translation.override("zh-hans"):
        assert stored() == english
    assert json.loads(english)["changes"][0] == ["ended_now", {}]


def test_reason_stays_as_it_was_typed() -> None:
    stored = entry(("paused", {}), ("ended_now", {}), why="Paused 100 %(count)s")
    assert shown(stored, "en") == "Paused; Ended now. Reason: Paused 100 %(count)s"
    assert "Paused 100 %(count)s" in shown(stored, "zh-hans")


def test_sentence_is_followed_by_its_changes() -> None:
    stored = entry(
        ("imported_row", {"file": "a.csv", "row": 2}), field_change("price_cents", None, cents(1))
    )
    assert shown(stored, "en") == "Imported from a.csv, row 2. Price: – → ¥0.01"


@pytest.mark.parametrize("text", ["Stock: 5 → 9", "[not json", '{"other": 1}', ""])
def test_entry_of_an_earlier_release_is_shown_as_it_is(text: str) -> None:
    assert history_text(LogEntry(change_message=text)) == text


def test_entry_of_django_is_shown_by_django() -> None:
    row = LogEntry(change_message='[{"added": {}}]')
    with translation.override("en"):
        assert history_text(row) == "Added."


def test_unknown_code_shows_its_values() -> None:
    assert text_of(entry(("of_tomorrow", {"count": 3, "at": moment(NOON)}))).startswith(
        "of_tomorrow 3 "
    )


def test_value_of_an_unknown_kind_is_shown_as_it_is() -> None:
    assert text_of(entry(("of_tomorrow", {"at": {"place": "A4"}}))).startswith("of_tomorrow A4")


def test_codes_are_never_renamed() -> None:
    """Rows have them. A new code is added here; none may go."""
    assert set(SENTENCES) == {
        "field", "rewritten", "unchanged", "paused", "resumed", "ended_now", "room_opened",
        "room_closed", "limits_lifted", "unwritten_retried", "unwritten_refused", "codes_made",
        "codes_imported", "codes_downloaded", "rehearsed", "rehearsal_cancelled", "order_retried",
        "order_cancelled", "order_refunded", "refund_rest", "refund_count", "imported",
        "imported_row", "customer_deleted", "voucher_sent_again", "invitation_sent_again",
    }  # fmt: skip
