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
from django.contrib.auth.models import Group, User
from django.core.handlers.wsgi import WSGIRequest
from django.test import Client
from django.utils.translation import gettext, override

from orders.roles import make_roles
from tests.support.orders import make_sale
from tests.support.staff import staff_with

pytestmark = [pytest.mark.django_db, pytest.mark.quick]

CATALOGUES = [
    Path(django.__file__).parent / part / f"locale/{language}/LC_MESSAGES/django.po"
    for part in ("conf", "contrib/admin", "contrib/auth")
    for language in ("en", "zh_Hans")
]
TEXTS = Path(settings.BASE_DIR) / "backoffice/admin/django_texts.toml"


@pytest.fixture
def owner() -> Client:
    return staff_with(name="owner", language="zh-hans", is_owner=True)


def test_overridden_sentences_are_djangos() -> None:
    known = {entry.msgid for path in CATALOGUES for entry in polib.pofile(str(path))}
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


def test_names_of_the_database_are_in_the_readers_language(owner: Client) -> None:
    make_roles()
    user = User.objects.get()
    page = owner.get(f"/admin/auth/user/{user.pk}/change/?advanced=1").text
    for name in ("收银员", "API 令牌 · 新增", "订单 · 可核销优惠券"):
        assert name in page, name
    for name in ("Cashier<", "Can add", "Can redeem"):
        assert name not in page, name


def test_roles_of_staff_are_no_groups_of_buyers(owner: Client) -> None:
    make_roles()
    Group.objects.create(name="会员")
    url = "/admin/vouchers/seckillvoucher/add/"
    assert "会员</option>" in owner.get(url).text
    assert "Cashier</option>" not in owner.get(url).text
    sale = make_sale(group=Group.objects.get(name="Cashier"), loaded=False)
    assert "Cashier</option>" in owner.get(url.replace("add", f"{sale.pk}/change")).text


def test_labels_of_a_new_thing_start_with_a_capital() -> None:
    request = request_of(staff_with(name="boss", is_owner=True))
    admins = [it for it in admin.site._registry.values() if it.has_add_permission(request)]
    labels = [str(field.label) for it in admins for field in it.get_form(request)()]
    assert {"Address", "Allowed", "Title"} <= set(labels)
    assert [it for it in labels if not it[0].isupper()] == []
