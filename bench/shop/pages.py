"""The pages of the back office and of a buyer, and what each costs: statements, rows read, time."""

import datetime as dt
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connection
from django.db.models import Min
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone

from bench.shop.filling import MERCHANTS
from orders.lifecycle.redemption import written_code
from orders.models import OrderStatus, Payment, VoucherOrder
from vouchers.models import Merchant, SeckillVoucher, Voucher

LIST_S, DESK_S, BUYER_S, REPORT_S, YEAR_S = 1.0, 0.5, 0.05, 1.0, 3.0
"""The most that a page may take: lists, *Today* and customers, *My orders*, reports."""

MOST_STATEMENTS = 30
MOST_CHOICES = 6
"""The choices of a filter that are measured."""


@dataclass(frozen=True)
class Page:
    """A page by its address; a form that is sent has ``data``, and a buyer sees ``of_buyer``."""

    name: str
    url: str
    most_s: float = LIST_S
    data: dict[str, str] = field(default_factory=dict)
    of_buyer: bool = False


@dataclass(frozen=True)
class Sample:
    """One request: ``rows`` is the sum of ``Handler_read_%``."""

    status: int
    statements: int
    rows: int
    seconds: float


@dataclass(frozen=True)
class Subjects:
    """What the pages are about: a big sale, the last and the next one, an order and a buyer."""

    big: SeckillVoucher
    last: SeckillVoucher
    coming: SeckillVoucher
    order: VoucherOrder
    payment: Payment
    buyer: User
    merchant: Merchant


def find_subjects() -> Subjects:
    sales = SeckillVoucher.objects.filter(ends_at__lt=timezone.now())
    big = sales.order_by("-sold", "-begins_at")[0]
    last = SeckillVoucher.objects.filter(sold__gt=0).order_by("-begins_at")[0]
    order = VoucherOrder.objects.filter(seckill_voucher=last, status=OrderStatus.PAID).latest("pk")
    merchant = Merchant.objects.order_by("pk")[MERCHANTS // 2]
    buyer = User.objects.filter(username__startswith="buyer-").earliest("pk")
    coming = SeckillVoucher.objects.latest("begins_at")
    return Subjects(big, last, coming, order, order.payments.get(), buyer, merchant)


def pages(subjects: Subjects) -> Iterator[Page]:
    """Yield all pages; of lists, each choice of each filter as well."""
    yield from _desk(subjects)
    yield from _lists()
    yield from _filtered_and_searched(subjects)
    yield from _single(subjects)
    yield from _reports(subjects)
    orders = reverse("my-orders")
    for query in ("", "?page=5", "?state=paid"):
        yield Page(f"my orders {query}".strip(), f"{orders}{query}", BUYER_S, of_buyer=True)


def measure(client: Client, page: Page) -> Sample:
    """Ask for a page once, with a cold cache."""
    cache.clear()
    statements = 0

    def count(execute: Any, *args: Any) -> Any:
        nonlocal statements
        statements += 1
        return execute(*args)

    before = rows_read()
    started = time.perf_counter()
    with connection.execute_wrapper(count):
        response: Any = client.post(page.url, page.data) if page.data else client.get(page.url)
        if response.streaming:
            for _ in response.streaming_content:
                pass
    seconds = time.perf_counter() - started
    return Sample(response.status_code, statements, rows_read() - before, seconds)


def rows_read() -> int:
    """Return how many rows this connection has read so far."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read_%'")
        return sum(int(value) for _, value in cursor.fetchall())


def _desk(of: Subjects) -> Iterator[Page]:
    customers = reverse("admin:customers")
    yield Page("today", reverse("admin:index"), DESK_S)
    yield Page("customers", customers, DESK_S)
    yield Page("customers, further", f"{customers}?before={of.buyer.pk + 100}", DESK_S)
    for what, text in {
        "name": "buyer-00000",
        "email": of.buyer.email,
        "phone": f"+86139{of.buyer.pk | 1:08}",
        "order": str(of.order.pk),
        "nothing": "nobody",
    }.items():
        yield Page(f"customers, by {what}", customers, DESK_S, {"q": text})
    for user_id in (of.buyer.pk, of.order.user_id):
        yield Page(f"customer {user_id}", reverse("admin:customer", args=[user_id]), DESK_S)


def _lists() -> Iterator[Page]:
    """Yield every list of the admin, plain and with its filters."""
    request = RequestFactory().get("/")
    request.user = User.objects.filter(is_superuser=True)[0]
    for model in apps.get_models():
        if not admin.site.is_registered(model) or model._meta.label == "locks.Lock":
            continue
        url = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        name = str(model._meta.verbose_name_plural)
        yield Page(name, url)
        model_admin: Any = admin.site.get_model_admin(model)
        shown = model_admin.get_changelist_instance(request)
        for spec in shown.filter_specs:
            choices = [it for it in spec.choices(shown) if it.get("query_string", "?") != "?"]
            for choice in choices[:MOST_CHOICES]:
                label = f"{name}, {spec.title}: {choice['display']}"
                yield Page(label, f"{url}{choice['query_string']}")


def _filtered_and_searched(of: Subjects) -> Iterator[Page]:
    orders = reverse("admin:orders_voucherorder_changelist")
    old = SeckillVoucher.objects.order_by("begins_at")[0]
    middle = VoucherOrder.objects.filter(seckill_voucher=of.big).aggregate(pk=Min("pk"))["pk"]
    day = f"{timezone.localdate(old.begins_at):%Y-%m-%d}"
    queries: dict[str, dict[str, object]] = {
        "further": {"p": middle},
        "of a big sale": {"seckill_voucher__id__exact": of.big.pk},
        "of an old sale": {"seckill_voucher__id__exact": old.pk},
        "of a merchant": {"seckill_voucher__voucher__merchant__id__exact": of.merchant.pk},
        "paid, of a merchant": {
            "seckill_voucher__voucher__merchant__id__exact": of.merchant.pk,
            "status__exact": "paid",
        },
        "refused, of an old sale": {
            "seckill_voucher__id__exact": old.pk,
            "status__exact": "refused",
        },
        "of an old day": {"day": day},
        "refunding, of an old day": {"day": day, "status__exact": "refunding"},
    }
    for name, query in queries.items():
        yield Page(f"orders, {name}", f"{orders}?{urlencode(query)}")
    for name, text in {
        "id": str(of.order.pk),
        "buyer": of.buyer.username,
        "payment": of.payment.reference,
        "nothing": "nothing at all",
    }.items():
        yield Page(f"orders, by {name}", f"{orders}?{urlencode({'q': text})}")
    for name, text in {
        "code": written_code(of.order.code or ""),
        "email": of.buyer.email,
        "phone": f"+86139{of.buyer.pk | 1:08}",
    }.items():
        yield Page(
            f"orders, find {name}", reverse("admin:orders_voucherorder_find"), data={"q": text}
        )
    voucher = Voucher.objects.order_by("pk")[0]
    searched: dict[str, tuple[str, ...]] = {
        "orders_payment": (
            of.payment.reference,
            of.payment.provider_reference,
            str(of.order.pk),
            "no",
        ),
        "vouchers_seckillvoucher": (str(of.big.pk), voucher.title, voucher.title_en, "Vouch", "no"),
        "vouchers_voucher": (voucher.title, "Voucher 1", of.merchant.name, "no"),
        "vouchers_merchant": (of.merchant.name, "Merch", "no"),
        "orders_invitationcode": ("ABCDEF", of.buyer.username, str(of.big.pk)),
        "orders_settlementdifference": (of.payment.reference,),
        "auth_user": (of.buyer.username, "buyer", of.buyer.email, "no"),
        "api_webhookdelivery": (str(of.order.pk),),
    }
    for model, texts in searched.items():
        url = reverse(f"admin:{model}_changelist")
        for text in texts:
            yield Page(f"{model}, search {text}", f"{url}?{urlencode({'q': text})}")
    for field_name, model, term in (
        ("seckill_voucher", "orders.voucherorder", "代金券 1"),
        ("merchant", "vouchers.voucher", "商家 1"),
    ):
        app, name = model.split(".")
        of_field = {"app_label": app, "model_name": name, "field_name": field_name, "term": term}
        url = f"{reverse('admin:autocomplete')}?{urlencode(of_field)}"
        yield Page(f"complete {field_name}", url)


def _single(of: Subjects) -> Iterator[Page]:
    for name in ("change", "history", "delete"):
        for model, pk in {
            "vouchers_seckillvoucher": of.coming.pk,
            "vouchers_voucher": of.big.voucher_id,
            "vouchers_merchant": of.merchant.pk,
            "auth_user": of.buyer.pk,
        }.items():
            yield Page(f"{model}, {name}", reverse(f"admin:{model}_{name}", args=[pk]))
    for model, pk in {"voucherorder": of.order.pk, "payment": of.payment.pk}.items():
        yield Page(f"{model}, change", reverse(f"admin:orders_{model}_change", args=[pk]))
    yield Page("new sale", reverse("admin:vouchers_seckillvoucher_add"))
    url = reverse("admin:vouchers_seckillvoucher_change", args=[of.big.pk])
    yield Page("change of a big sale", url)
    for name in ("sale-board", "sale-board-data", "sale-codes", "sale-waiting", "sale-copy"):
        for which, sale in {"a big sale": of.big, "the last sale": of.last}.items():
            yield Page(f"{name} of {which}", reverse(f"admin:{name}", args=[sale.pk]))
    yield Page("staff", reverse("admin:staff"))
    yield Page("system", reverse("admin:system"))
    yield Page("redeem", reverse("redeem"))


def _reports(of: Subjects) -> Iterator[Page]:
    for name in ("sale-report", "sale-report-csv"):
        for which, sale in {"a big sale": of.big, "the last sale": of.last}.items():
            yield Page(f"{name} of {which}", reverse(f"admin:{name}", args=[sale.pk]), REPORT_S)
    today = timezone.localdate()
    year = {"since": today - dt.timedelta(days=365), "until": today}
    for by in ("day", "sale", "voucher", "merchant"):
        for name in ("reports", "reports-csv"):
            url = f"{reverse(f'admin:{name}')}?{urlencode({**year, 'by': by})}"
            yield Page(f"{name} over a year by {by}", url, YEAR_S)
    yield Page("reports", reverse("admin:reports"), YEAR_S)
