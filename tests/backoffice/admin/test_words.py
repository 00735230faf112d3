"""Django's own sentences, where the shop's catalogue translates them better."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import django
import polib
import pytest
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import Group
from django.core.handlers.wsgi import WSGIRequest
from django.test import Client
from django.utils.translation import gettext, override

from tests.support.orders import make_sale
from tests.support.staff import staff_with

pytestmark = [pytest.mark.django_db, pytest.mark.quick]

CATALOGUE = Path(django.__file__).parent / "contrib/admin/locale/zh_Hans/LC_MESSAGES/django.po"
TEXTS = Path(settings.BASE_DIR) / "backoffice/admin/django_texts.toml"


@pytest.fixture
def owner() -> Client:
    return staff_with(name="owner", language="zh-hans", is_owner=True)


def test_overridden_sentences_are_djangos() -> None:
    known = {entry.msgid for entry in polib.pofile(str(CATALOGUE))}
    assert set(tomllib.loads(TEXTS.read_text())["sentences"]) <= known


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


STIFF = re.compile(r"Select [a-z ]+ to (?:change|view)|objects? (?:on|for|across)|Yes, I’m sure")


@pytest.mark.slow
def test_lists_and_forms_read_well_in_english(owner: Client) -> None:
    owner.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"
    make_sale(loaded=False)
    for model, model_admin in admin.site._registry.items():
        base = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        pages = [base]
        if model._meta.managed and (row := model_admin.get_queryset(request_of(owner)).first()):
            pages += [f"{base}{row.pk}/{it}/" for it in ("change", "history", "delete")]
        for url in pages:
            assert STIFF.search(owner.get(url).text) is None, url


def test_heading_of_a_list_is_its_name(owner: Client) -> None:
    owner.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"
    page = owner.get("/admin/vouchers/seckillvoucher/").text
    assert "<h1>Sales</h1>" in page
    assert "Sales | " in page.partition("</title>")[0]


def request_of(client: Client) -> WSGIRequest:
    """Return a request of the same user."""
    request: WSGIRequest = client.get("/admin/").wsgi_request
    return request
