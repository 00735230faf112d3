"""The history page of the admin: coded entries in the reader's language."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.urls import reverse

from tests.support.browsers import HTML, browser_of
from tests.support.orders import make_sale
from vouchers.catalogue.history import entry, field_change

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("language", "text"), [("en", "Stock: 5 → 9. Reason: Much asked for."), ("zh-hans", "库存")]
)
def test_history_page_is_in_the_readers_language(language: str, text: str) -> None:
    sale, boss = make_sale(loaded=False), User.objects.create_superuser("boss")
    for message in (entry(field_change("stock", 5, 9), why="Much asked for."), "Old words: 1 → 2"):
        LogEntry.objects.log_actions(
            boss.pk, [sale], CHANGE, change_message=message, single_object=True
        )
    browser = browser_of(boss, headers={**HTML, "Accept-Language": language})
    page = browser.get(reverse("admin:vouchers_seckillvoucher_history", args=[sale.pk])).text
    assert text in page
    assert "Old words: 1 → 2" in page
    assert "changes&quot;" not in page
