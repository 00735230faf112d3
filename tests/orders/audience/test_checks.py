"""Every rule of a sale has a check, a column and a form field, and every check has a rule."""

from __future__ import annotations

from dataclasses import fields

import pytest

from orders.audience.checks import CHECKS
from orders.models import RuleRefusal
from vouchers.catalogue.audience import RULES, SALE_RULES, Audience
from vouchers.forms.sale import SaleForm

pytestmark = pytest.mark.quick


def test_every_rule_has_a_check_and_every_check_a_rule() -> None:
    assert set(CHECKS) == {it.name for it in SALE_RULES}


def test_every_rule_has_a_column_and_every_column_a_rule() -> None:
    assert {it.name for it in fields(Audience)} == {it.field for it in SALE_RULES}
    assert {it.form_field for it in SALE_RULES} <= set(SaleForm.Meta.fields)


def test_name_of_each_rule_fits_into_its_refusals() -> None:
    column = RuleRefusal._meta.get_field("rule")
    assert [name for name, _ in column.choices or ()] == list(RULES)
    assert max(map(len, RULES)) <= (column.max_length or 0)
