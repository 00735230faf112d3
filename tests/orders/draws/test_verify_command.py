"""``manage.py verify_draw ID``."""

from __future__ import annotations

import io
import re

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from tests.support.draws import draw_to_the_end, end, entered, make_draw
from tests.support.inspection import live_ids
from tests.support.orders import make_buyers, make_sale

pytestmark = pytest.mark.django_db


def test_draw_of_this_database_is_verified() -> None:
    sale, out = make_draw(stock=2), io.StringIO()
    entered(sale, make_buyers(5))
    with pytest.raises(CommandError, match="open"):
        call_command("verify_draw", str(sale.pk))
    end(sale)
    draw_to_the_end(sale)
    call_command("verify_draw", str(sale.pk), stdout=out, stderr=io.StringIO())
    assert sorted(map(int, out.getvalue().split())) == live_ids(sale)


def test_sale_without_a_draw_is_refused() -> None:
    for number, text in ((make_sale().pk, "is no draw"), (999_999, "there is no public sale")):
        with pytest.raises(CommandError, match=re.escape(text)):
            call_command("verify_draw", str(number))
