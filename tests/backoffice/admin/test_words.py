"""Django's own sentences, where the shop's catalogue translates them better."""

from __future__ import annotations

from pathlib import Path

import django
import polib
import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils.translation import gettext, override

from backoffice.admin.words import PLAIN

pytestmark = [pytest.mark.django_db, pytest.mark.quick]

CATALOGUE = Path(django.__file__).parent / "contrib/admin/locale/zh_Hans/LC_MESSAGES/django.po"


@pytest.fixture
def owner() -> Client:
    client = Client(headers={"Accept": "text/html", "Accept-Language": "zh-hans"})
    client.force_login(User.objects.create_superuser("owner"))
    return client


def test_overridden_sentences_are_djangos() -> None:
    known = {entry.msgid for entry in polib.pofile(str(CATALOGUE))}
    assert set(PLAIN) <= known


def test_catalogue_of_the_shop_comes_before_djangos() -> None:
    with override("zh-hans"):
        assert gettext("Select %s to change") % "优惠券" == "优惠券列表"
        assert gettext("Add %s") % "优惠券" == "新增优惠券"


@pytest.mark.parametrize(
    ("url", "reads", "not_"),
    [
        ("/admin/vouchers/voucher/", "优惠券", "来修改"),
        ("/admin/vouchers/seckillvoucher/", "暂无内容", "来修改"),
        ("/admin/vouchers/voucher/add/", "新增优惠券", "增加 优惠券"),
        ("/admin/auth/group/", "批量操作", "选中了"),
    ],
)
def test_page_reads_well_in_chinese(owner: Client, url: str, reads: str, not_: str) -> None:
    Group.objects.get_or_create(name="门店")  # an empty list has no actions
    page = owner.get(url).text

    assert reads in page
    assert not_ not in page
