"""Kept settings: worked out once, and again after a change."""

import pytest
from django.conf import settings as django_settings
from pytest_django import Settings

from seckill_site.kept_settings import kept

pytestmark = pytest.mark.quick


def test_setting_is_worked_out_once_until_it_changes(settings: Settings) -> None:
    asked = []

    @kept
    def doubled() -> int:
        asked.append(1)
        return 2 * int(django_settings.SECKILL_KICK_MS)

    settings.SECKILL_KICK_MS = 5
    assert (doubled(), doubled(), len(asked)) == (10, 10, 1)
    settings.SECKILL_KICK_MS = 7
    assert doubled() == 14
