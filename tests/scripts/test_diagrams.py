"""What ``script/diagrams.py`` writes is what the models, the sources and the Lua scripts say."""

from __future__ import annotations

import pytest

from orders.models import VoucherOrder
from tests.faults.private import script_library
from vouchers.inventory.keys import LedgerKeys

pytestmark = pytest.mark.quick

diagrams = script_library("diagrams", "script")


@pytest.mark.parametrize("part", diagrams.parts())
def test_document_has_the_diagram_of_today(part: str) -> None:
    document = diagrams.DOCUMENT.read_text(encoding="utf-8")
    shown = document.partition(f"<!-- {part}: begin -->\n")[2].partition("\n<!--")[0]
    assert shown == diagrams.parts()[part], "run script/diagrams.py"


def test_asked_for_design_names_the_lines_of_today() -> None:
    text = diagrams.ASKED_FOR.read_text(encoding="utf-8")
    assert text == diagrams.with_lines(text), "run script/diagrams.py"
    with pytest.raises(LookupError, match="no_such_function"):
        diagrams.with_lines("`orders/tasks.py:1` `no_such_function`")


def test_new_column_changes_the_diagram(monkeypatch: pytest.MonkeyPatch) -> None:
    before = diagrams.parts()["orders"]
    monkeypatch.setattr(VoucherOrder._meta.get_field("code"), "column", "secret")
    assert before != diagrams.parts()["orders"]
    assert "Char secret" in diagrams.parts()["orders"]


def test_call_that_is_gone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagrams, "CALLS", "Buyer Web orders/tasks.py no_such_call gone")
    with pytest.raises(LookupError, match="no_such_call"):
        diagrams.parts()


def test_key_without_description_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    key = type(vars(LedgerKeys)["kick"])("seckill:{%d}:undescribed")
    monkeypatch.setattr(LedgerKeys, "undescribed", key, raising=False)
    with pytest.raises(KeyError, match="undescribed"):
        diagrams.parts()
