"""Every list of the admin, with queries and selections that nobody clicks together."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db import connection, models
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from api.models import WebhookDelivery
from backoffice.admin.pages import ReadOnlyAdmin
from locks.django.models import Lock
from orders.models import InvitationCode, OrderStatus, Payment, VoucherOrder
from orders.roles import Role, make_roles
from seckill_site.models import ShopSettings
from tests.support.orders import make_buyer, make_buyers, make_order, make_sale
from tests.support.staff import staff_with
from tests.support.tiers import slow_after

pytestmark = pytest.mark.django_db

NO_LISTS = (Lock, ShopSettings)
"""What has no rows, and what has one."""

LISTS = [model for model in admin.site._registry if model not in NO_LISTS]
LARGE = [VoucherOrder, Payment, InvitationCode, WebhookDelivery, User]
ODD = [
    ("__year", "99999999999"),
    ("__year__gte", "0"),
    ("__range", "a,b"),
    ("__in", "9" * 40),
    ("__date", "9999999-1-1"),
    ("", "\0"),
]


def list_url(model: type[models.Model]) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


@pytest.mark.slow
@pytest.mark.parametrize("model", LISTS, ids=lambda it: it.__name__)
def test_odd_query_is_no_server_error(shop: Client, model: Any) -> None:
    shop.raise_request_exception = False
    queries = [
        {f"{field.name}{lookup}": value} for field in model._meta.fields for lookup, value in ODD
    ]
    answers = {str(query): shop.get(list_url(model), query).status_code for query in queries}
    assert {query: it for query, it in answers.items() if it >= 500} == {}


@pytest.mark.parametrize("selected", slow_after(1, ["abc", "9" * 40, "\0", "-1", ""]))
@pytest.mark.parametrize("model", slow_after(2, LISTS), ids=lambda it: it.__name__)
def test_odd_selection_is_no_server_error(shop: Client, model: Any, selected: str) -> None:
    shop.raise_request_exception = False
    page = shop.get(list_url(model))
    form = page.context["cl"].model_admin.get_action_choices(page.wsgi_request)
    for action, _ in form:
        sent = {"action": action, "_selected_action": selected, "index": 0}
        assert shop.post(list_url(model), sent).status_code < 500


def test_older_pages_of_a_large_list_have_each_row_once(
    shop: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin.site._registry[VoucherOrder], "list_per_page", 3)
    sale = make_sale(loaded=False)
    orders = [make_order(sale, it).pk for it in make_buyers(6)]
    shown, query = [], "?status__exact=unpaid"
    while query:
        page = shop.get(list_url(VoucherOrder) + query).context["cl"]
        shown.append([it.pk for it in page.result_list])
        query = page.older
        if len(shown) == 1:  # an order that comes meanwhile moves none
            make_order(sale, make_buyer())
    assert shown == [sorted(orders, reverse=True)[:3], sorted(orders, reverse=True)[3:]]
    assert page.newest == "?status__exact=unpaid"


@pytest.mark.parametrize("last", slow_after(1, ["0", "-1", "x", "9" * 19, "9" * 40]))
def test_odd_page_of_a_large_list_is_no_server_error(shop: Client, last: str) -> None:
    assert shop.get(list_url(VoucherOrder), {"p": last}).status_code in (200, 302)


def test_action_for_the_whole_list_takes_what_no_page_shows(
    shop: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin.site._registry[VoucherOrder], "list_per_page", 3)
    sale = make_sale(loaded=False)
    orders = [make_order(sale, it).pk for it in make_buyers(5)]
    assert "question hidden" in shop.get(list_url(VoucherOrder)).text
    sent = {"action": "cancel_selected", "_selected_action": orders[-1:], "select_across": "1"}
    assert shop.post(list_url(VoucherOrder), sent).context["total"] == 5


LOOKUPS = ("", "__exact", "__gte", "__startswith", "__in", "__regex")


def hidden_paths(model_admin: Any) -> set[str]:
    """Return every field of a list's rows, and of what they refer to, that no filter is about."""
    filters = (getattr(it, "parameter_name", it) for it in model_admin.list_filter)
    shown = {it if isinstance(it, str) else it[0] for it in filters if not isinstance(it, type)}
    paths = set()
    for field in model_admin.opts.get_fields():
        related = field.related_model._meta.get_fields() if field.is_relation else []
        paths |= {field.name, *(f"{field.name}__{it.name}" for it in related if it.name != "id")}
    return paths - shown - {model_admin.opts.pk.name}


@pytest.mark.parametrize("model", slow_after(1, admin.site._registry), ids=lambda it: it.__name__)
def test_list_asks_for_no_column_without_a_filter(model: Any) -> None:
    model_admin: Any = admin.site._registry[model]
    asked = {path + lookup for path in hidden_paths(model_admin) for lookup in LOOKUPS}
    assert {it for it in asked if model_admin.lookup_allowed(it, "x")} == set()


@pytest.mark.parametrize("model", slow_after(2, LISTS), ids=lambda it: it.__name__)
def test_filters_and_primary_key_work(shop: Client, model: Any) -> None:
    shown = shop.get(list_url(model)).context["cl"]
    choices = [choice for it in shown.filter_specs for choice in it.choices(shown)]
    links = [it["query_string"] for it in choices]
    for link in [*links, "?pk__in=1,2", "?id=1", "?id__exact=1"]:
        assert shop.get(list_url(model) + link).status_code == 200, link


@pytest.mark.parametrize(
    "role", slow_after(1, [Role.READ_ONLY, Role.SHOP_STAFF, Role.OPERATOR, None])
)
def test_no_role_reads_voucher_codes_by_lookups(role: Role | None) -> None:
    order = make_order(make_sale(loaded=False), make_buyer(), status=OrderStatus.PAID)
    browser = staff_with(is_owner=role is None)
    if role:
        make_roles()
        User.objects.get(username="clerk").groups.add(Group.objects.get(name=role))
    url = list_url(VoucherOrder)
    assert str(order.pk) in browser.get(url, {"status__exact": "paid"}).text
    for guess in ({"code__gte": "0"}, {"code": "0"}, {"status__exact": "paid", "code__lt": "Z"}):
        assert browser.get(url, guess).status_code == 400


def test_broken_pattern_is_refused(shop: Client) -> None:
    for name in ("status", "id", "user__username", "seckill_voucher"):
        assert shop.get(list_url(VoucherOrder), {f"{name}__regex": "("}).status_code == 400


@pytest.mark.parametrize("model", slow_after(1, LARGE), ids=lambda it: it.__name__)
def test_large_table_is_searched_by_whole_values(shop: Client, model: Any) -> None:
    """By columns with an index; a pattern would read the whole table."""
    with CaptureQueriesContext(connection) as asked:
        for text in ("4711", "whole value"):
            assert shop.get(list_url(model), {"q": text}).status_code == 200
    assert not [it["sql"] for it in asked if "LIKE '%" in it["sql"]]
    indexed = {it.name for it in model._meta.fields if it.unique or it.db_index}
    indexed |= {index.fields[0] for index in model._meta.indexes}
    model_admin: Any = admin.site._registry[model]
    if type(model_admin).get_search_results is ReadOnlyAdmin.get_search_results:
        assert {it for it in model_admin.search_fields if "__" not in it} <= indexed
