"""Permissions: every staff page and action for every role, by link and by forged POST.

The tables below are complete: a page or an action that has no row fails a test.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.db import connection, transaction
from django.db.migrations.loader import MigrationLoader
from django.test import Client, RequestFactory
from django.urls import URLResolver, get_resolver, reverse
from django.utils import timezone
from redis import Redis

from accounts.models import Invitation
from backoffice.admin import system
from backoffice.bulk_jobs import start_job
from backoffice.today import figures
from orders.lifecycle.redemption import written_code
from orders.lifecycle.transitions import Actor
from orders.models import (
    InvitationCode,
    OrderEvent,
    OrderJob,
    OrderStatus,
    Payment,
    PaymentStatus,
    Rehearsal,
    RehearsalPhase,
    SettlementDifference,
    VoucherOrder,
)
from orders.roles import PREPARE, RUN, SHOP_APPS, Role, RoleChange, make_roles
from seckill_site.models import ShopSettings
from seckill_site.process_memory import forget_everything
from tests.support.api import make_delivery, make_endpoint, make_token
from tests.support.html_forms import filled
from tests.support.inspection import ledger_contents
from tests.support.orders import make_buyer, make_order, make_sale, pending, reserved
from tests.support.payments import make_unpaid_order, pay
from tests.support.sales import reserve
from vouchers.inventory.batch_journal import set_aside
from vouchers.inventory.reservations import OrdersLimited
from vouchers.models import Merchant, SeckillVoucher, Voucher

ROOT = Path(__file__).resolve().parents[2]

# --- Who may what ---------------------------------------------------------------------------------

EVERYBODY = ("visitor", "buyer", "newcomer", "cashier", "reader", "clerk", "operator", "owner")
"""Nobody known, a buyer, staff without a role, the four roles, and a superuser."""

ROLES = {
    "cashier": Role.CASHIER,
    "reader": Role.READ_ONLY,
    "clerk": Role.SHOP_STAFF,
    "operator": Role.OPERATOR,
}

NOBODY: set[str] = set()
OWNS = {"owner"}
RUNS = {"operator", "owner"}
WORKS = {"clerk", "operator", "owner"}
WATCHES = {"reader", "operator", "owner"}
LOOKS = {"reader", "clerk", "operator", "owner"}
STAFF = {"newcomer", "cashier", "reader", "clerk", "operator", "owner"}
REDEEMS = WORKS | {"cashier"}


@dataclass(frozen=True)
class Row:
    """Who may see a page and who may change something by it.

    ``of`` names the thing of the world that the address is about; ``send`` is what is typed into
    the page's own form, or all that is sent where it has none.
    """

    see: set[str]
    change: set[str] = field(default_factory=set)
    of: str = ""
    send: Mapping[str, Any] = field(default_factory=dict)
    query: str = ""


NEW_SALE = {
    **{"title": "Tea", "price": "8", "face_value": "10", "stock": "7"},
    **{"begins_at_0": "2030-01-01", "begins_at_1": "10:00:00"},
    **{"ends_at_0": "2030-01-01", "ends_at_1": "20:00:00"},
}
SERIES = {
    **{"begins_at_0": "2030-01-01", "begins_at_1": "10:00:00", "length": "60", "stock": "7"},
    **{"sales": "2", "_create": "yes"},
}
CREATE = {"_create": "yes"}
DELETE = {"post": "yes"}
END = {"reason": "a mistake"}

PAGES = {
    "admin:index": Row(STAFF),
    # The system and the staff
    "admin:system": Row(WATCHES),
    "admin:system-reconcile": Row(RUNS, RUNS, "unloaded"),
    "admin:staff": Row(OWNS),
    "admin:activity": Row(OWNS),
    # Sales
    "admin:vouchers_seckillvoucher_changelist": Row(LOOKS),
    "admin:vouchers_seckillvoucher_add": Row(WORKS, WORKS, send=NEW_SALE),
    "admin:vouchers_seckillvoucher_change": Row(LOOKS, WORKS, "coming", {"stock": "7"}),
    "admin:vouchers_seckillvoucher_change, begun": Row(LOOKS, RUNS, "sale", {"stock": "7"}),
    "admin:vouchers_seckillvoucher_history": Row(LOOKS, of="sale"),
    "admin:vouchers_seckillvoucher_delete": Row(WORKS, WORKS, "coming", DELETE),
    "admin:vouchers_seckillvoucher_delete, begun": Row(RUNS, RUNS, "sale", DELETE),
    "admin:sale-check": Row(WORKS, send=NEW_SALE),
    "admin:sale-check, coming": Row(WORKS, send=NEW_SALE, query="?sale={coming}"),
    "admin:sale-check, begun": Row(RUNS, send=NEW_SALE, query="?sale={sale}"),
    "admin:sale-copy": Row(WORKS, of="sale"),
    "admin:sale-publish": Row(WORKS, WORKS, query="?ids={draft}"),
    "admin:sale-withdraw": Row(WORKS, WORKS, query="?ids={coming}"),
    "admin:sale-withdraw, begun": Row(WORKS, RUNS, query="?ids={sale}"),
    "admin:sale-pause": Row(RUNS, RUNS, send=END, query="?ids={sale}"),
    "admin:sale-resume": Row(RUNS, RUNS, query="?ids={paused}"),
    "admin:sale-copies": Row(WORKS, WORKS, send=CREATE, query="?ids={sale}"),
    "admin:sale-series": Row(WORKS, WORKS, send=SERIES, query="?sale={sale}"),
    # The board
    "admin:sale-board": Row(LOOKS, of="sale"),
    "admin:sale-board-data": Row(LOOKS, of="sale"),
    "admin:sale-board-pause": Row(RUNS, RUNS, "sale", END),
    "admin:sale-board-resume": Row(RUNS, RUNS, "paused", END),
    "admin:sale-board-extend": Row(RUNS, RUNS, "sale", {"by": "5"}),
    "admin:sale-board-retry-unwritten": Row(RUNS, RUNS, "unwritten", END),
    "admin:sale-board-refuse-unwritten": Row(RUNS, RUNS, "unwritten", END),
    "admin:sale-board-stock": Row(RUNS, RUNS, "sale", {"stock": "7"}),
    "admin:sale-board-end": Row(RUNS, RUNS, "sale", END),
    "admin:sale-board-open-room": Row(RUNS, RUNS, "sale", {"rate": "7"}),
    "admin:sale-board-room-rate": Row(RUNS, RUNS, "in_line", {"rate": "7", "seen": "200"}),
    "admin:sale-board-close-room": Row(RUNS, RUNS, "in_line", {"reason": ""}),
    "admin:sale-board-lift-limits": Row(
        RUNS, RUNS, "limited", {"limits": "a:203.0.113.7", "reason": ""}
    ),
    # Invitation codes
    "admin:sale-codes": Row(WORKS, WORKS, "sale", {"count": "3"}),
    "admin:sale-codes-csv": Row(WORKS, of="sale"),
    "admin:orders_invitationcode_changelist": Row(WORKS),
    "admin:orders_invitationcode_add": Row(NOBODY),
    "admin:orders_invitationcode_change": Row(WORKS, of="code", send={"code": "ANOTHER1"}),
    "admin:orders_invitationcode_history": Row(WORKS, of="code"),
    "admin:orders_invitationcode_delete": Row(WORKS, WORKS, "code", DELETE),
    # Rehearsals
    "admin:sale-rehearse": Row(RUNS, RUNS, "sale", {"anyway": "on"}),
    "admin:orders_rehearsal_changelist": Row(WATCHES),
    "admin:orders_rehearsal_add": Row(NOBODY),
    "admin:orders_rehearsal_change": Row(WATCHES, of="rehearsal", send={"phase": "failed"}),
    "admin:orders_rehearsal_progress": Row(WATCHES, of="rehearsal"),
    "admin:orders_rehearsal_history": Row(WATCHES, of="rehearsal"),
    "admin:orders_rehearsal_cancel": Row(RUNS, RUNS, "rehearsal"),
    # Who may delete a sale deletes its rehearsals with it.
    "admin:orders_rehearsal_delete": Row(WORKS, WORKS, "rehearsal", DELETE),
    # Reports
    "admin:sale-report": Row(LOOKS, of="sale"),
    "admin:sale-report-csv": Row(LOOKS, of="sale"),
    "admin:sale-report-room": Row(RUNS, of="sale"),
    "admin:sale-waiting": Row(LOOKS, of="sale"),
    "admin:reports": Row(LOOKS),
    "admin:reports-csv": Row(LOOKS),
    # Customers
    "admin:customers": Row(RUNS),
    "admin:customer": Row(RUNS, of="user"),
    "admin:customer-data": Row(RUNS, of="user"),
    "admin:customer-delete": Row(RUNS, RUNS, "user"),
    "admin:customer-send": Row(RUNS, RUNS, "paid"),
    # Merchants
    "admin:vouchers_merchant_changelist": Row(LOOKS),
    "admin:vouchers_merchant_add": Row(WORKS, WORKS, send={"name": "Tea"}),
    "admin:vouchers_merchant_change": Row(LOOKS, WORKS, "merchant", {"name": "Tea"}),
    "admin:vouchers_merchant_history": Row(LOOKS, of="merchant"),
    "admin:vouchers_merchant_delete": Row(WORKS, WORKS, "merchant", DELETE),
    # Vouchers
    "admin:vouchers_voucher_changelist": Row(LOOKS),
    "admin:vouchers_voucher_add": Row(
        WORKS, WORKS, send={"title": "Tea", "price_cents": "8", "face_value_cents": "10"}
    ),
    "admin:vouchers_voucher_change": Row(LOOKS, WORKS, "voucher", {"title": "Tea"}),
    "admin:vouchers_voucher_change, on sale": Row(LOOKS, RUNS, "on_sale", {"title": "Tea"}),
    "admin:vouchers_voucher_history": Row(LOOKS, of="voucher"),
    "admin:vouchers_voucher_delete": Row(WORKS, WORKS, "voucher", DELETE),
    "admin:vouchers_voucher_import": Row(WORKS),
    "admin:vouchers_voucher_process_import": Row(WORKS, WORKS),
    "admin:vouchers_voucher_import_example": Row(WORKS),
    "admin:vouchers_voucher_export": Row(LOOKS),
    # Orders
    "admin:orders_voucherorder_changelist": Row(LOOKS),
    "admin:orders_voucherorder_add": Row(NOBODY),
    "admin:orders_voucherorder_change": Row(LOOKS, of="unpaid", send={"status": "paid"}),
    "admin:orders_voucherorder_history": Row(LOOKS, of="unpaid"),
    "admin:orders_voucherorder_delete": Row(NOBODY, of="unpaid", send=DELETE),
    "admin:orders_voucherorder_cancel": Row(RUNS, RUNS, "unpaid", END),
    "admin:orders_voucherorder_refund": Row(RUNS, RUNS, "paid", END),
    "admin:orders_voucherorder_rest_refund": Row(RUNS, RUNS, "disputed", END),
    "admin:orders_voucherorder_count_refund": Row(RUNS, RUNS, "disputed", END),
    "admin:orders_voucherorder_cancel_many": Row(RUNS, RUNS, send=END),
    "admin:orders_voucherorder_refund_many": Row(RUNS, RUNS, send=END),
    "admin:orders_voucherorder_export": Row(RUNS),
    "admin:orders_voucherorder_find": Row(LOOKS),
    # The counter
    "redeem": Row(REDEEMS, REDEEMS),
    "redeem-worker": Row(set(EVERYBODY)),
    "redemptions": Row(REDEEMS),
    "undo-redemption": Row(REDEEMS, RUNS, "use", {"why": "a mistake"}),
    # Payments
    "admin:orders_payment_changelist": Row(LOOKS),
    "admin:orders_payment_add": Row(NOBODY),
    "admin:orders_payment_change": Row(LOOKS, of="payment", send={"status": "refunded"}),
    "admin:orders_payment_history": Row(LOOKS, of="payment"),
    "admin:orders_payment_delete": Row(NOBODY, of="payment", send=DELETE),
    "admin:orders_settlementdifference_changelist": Row(LOOKS),
    "admin:orders_settlementdifference_add": Row(NOBODY),
    "admin:orders_settlementdifference_change": Row(
        LOOKS, of="difference", send={"day": "2026-1-1"}
    ),
    "admin:orders_settlementdifference_history": Row(LOOKS, of="difference"),
    "admin:orders_settlementdifference_delete": Row(NOBODY, of="difference", send=DELETE),
    # Jobs
    "admin:orders_orderjob_changelist": Row(WATCHES),
    "admin:orders_orderjob_add": Row(NOBODY),
    "admin:orders_orderjob_change": Row(WATCHES, of="job", send={"status": "done"}),
    "admin:orders_orderjob_history": Row(WATCHES, of="job"),
    "admin:orders_orderjob_delete": Row(NOBODY, of="job", send=DELETE),
    # Locks
    "admin:locks_lock_changelist": Row(WATCHES),
    "admin:locks_lock_add": Row(NOBODY),
    "admin:locks_lock_change": Row(NOBODY, of="lock"),
    "admin:locks_lock_history": Row(NOBODY, of="lock"),
    "admin:locks_lock_delete": Row(NOBODY, of="lock", send=DELETE),
    # Accounts and roles
    "admin:auth_user_changelist": Row(OWNS),
    "admin:auth_user_add": Row(
        OWNS, OWNS, send={"username": "eve", "password1": "t3a-t3a-t3a", "password2": "t3a-t3a-t3a"}
    ),
    "admin:auth_user_change": Row(OWNS, OWNS, "user", {"first_name": "Eve"}),
    "admin:auth_user_change, advanced": Row(
        OWNS, OWNS, "user", {"is_superuser": "on"}, query="?advanced=1"
    ),
    "admin:auth_user_password_change": Row(
        OWNS, OWNS, "user", {"password1": "t3a-t3a-t3a", "password2": "t3a-t3a-t3a"}
    ),
    "admin:auth_user_history": Row(OWNS, of="user"),
    "admin:auth_user_delete": Row(OWNS, OWNS, "user", DELETE),
    "admin:auth_group_changelist": Row(OWNS),
    "admin:auth_group_add": Row(OWNS, OWNS, send={"name": "Owners"}),
    "admin:auth_group_change": Row(OWNS, OWNS, "group", {"name": "Owners"}),
    "admin:auth_group_history": Row(OWNS, of="group"),
    "admin:auth_group_delete": Row(OWNS, OWNS, "group", DELETE),
    "admin:accounts_invitation_changelist": Row(OWNS),
    "admin:accounts_invitation_add": Row(
        OWNS, OWNS, send={"email": "new@example.com", "role": "Operator"}
    ),
    "admin:accounts_invitation_change": Row(OWNS, of="invitation"),
    "admin:accounts_invitation_history": Row(OWNS, of="invitation"),
    "admin:accounts_invitation_resend": Row(OWNS, OWNS, "invitation"),
    "admin:accounts_invitation_delete": Row(OWNS, OWNS, "invitation", DELETE),
    # The settings
    "admin:seckill_site_shopsettings_changelist": Row(OWNS),
    "admin:seckill_site_shopsettings_add": Row(NOBODY),
    "admin:seckill_site_shopsettings_change": Row(OWNS, OWNS, "settings", {"name": "Tea Market"}),
    "admin:seckill_site_shopsettings_history": Row(OWNS, of="settings"),
    "admin:seckill_site_shopsettings_delete": Row(NOBODY, of="settings", send=DELETE),
    # Programs
    "admin:api_apitoken_changelist": Row(OWNS),
    "admin:api_apitoken_add": Row(OWNS, OWNS, send={"name": "till", "scopes": "redeem"}),
    "admin:api_apitoken_change": Row(OWNS, of="token", send={"name": "another"}),
    "admin:api_apitoken_history": Row(OWNS, of="token"),
    "admin:api_apitoken_delete": Row(OWNS, OWNS, "token", DELETE),
    "admin:api_webhookendpoint_changelist": Row(OWNS),
    "admin:api_webhookendpoint_add": Row(OWNS, OWNS, send={"url": "https://example.com/new"}),
    "admin:api_webhookendpoint_change": Row(
        OWNS, OWNS, "webhook", {"url": "https://example.com/other"}
    ),
    "admin:api_webhookendpoint_history": Row(OWNS, of="webhook"),
    "admin:api_webhookendpoint_delete": Row(OWNS, OWNS, "webhook", DELETE),
    "admin:api_webhookdelivery_changelist": Row(OWNS),
    "admin:api_webhookdelivery_add": Row(NOBODY),
    "admin:api_webhookdelivery_change": Row(OWNS, of="delivery", send={"state": "failed"}),
    "admin:api_webhookdelivery_history": Row(OWNS, of="delivery"),
    "admin:api_webhookdelivery_delete": Row(OWNS, OWNS, "delivery", DELETE),
}

ACTIONS = {
    # The action of a list: who may, and of what.
    ("vouchers_seckillvoucher", "publish"): Row(LOOKS, NOBODY, "draft"),
    ("vouchers_seckillvoucher", "withdraw"): Row(LOOKS, NOBODY, "coming"),
    ("vouchers_seckillvoucher", "pause"): Row(LOOKS, NOBODY, "sale"),
    ("vouchers_seckillvoucher", "resume"): Row(LOOKS, NOBODY, "paused"),
    ("vouchers_seckillvoucher", "copy"): Row(LOOKS, NOBODY, "sale"),
    ("vouchers_seckillvoucher", "load_into_redis"): Row(LOOKS, RUNS, "unloaded"),
    ("vouchers_seckillvoucher", "reconcile"): Row(LOOKS, RUNS, "unloaded"),
    ("vouchers_merchant", "delete_selected"): Row(LOOKS, WORKS, "merchant", DELETE),
    ("vouchers_voucher", "delete_selected"): Row(LOOKS, WORKS, "voucher", DELETE),
    ("orders_voucherorder", "try_again"): Row(LOOKS, RUNS, "set_aside"),
    ("orders_voucherorder", "cancel_selected"): Row(LOOKS, NOBODY, "unpaid"),
    ("orders_voucherorder", "refund_selected"): Row(LOOKS, NOBODY, "paid"),
    ("orders_voucherorder", "export_selected"): Row(LOOKS, NOBODY, "paid"),
    ("orders_invitationcode", "delete_selected"): Row(WORKS, WORKS, "code", DELETE),
    ("auth_user", "delete_selected"): Row(OWNS, OWNS, "user", DELETE),
    ("auth_group", "delete_selected"): Row(OWNS, OWNS, "group", DELETE),
    ("api_apitoken", "revoke"): Row(OWNS, OWNS, "token"),
    ("api_apitoken", "delete_selected"): Row(OWNS, OWNS, "token", DELETE),
    ("api_webhookendpoint", "rotate"): Row(OWNS, OWNS, "webhook"),
    ("api_webhookendpoint", "delete_selected"): Row(OWNS, OWNS, "webhook", DELETE),
    ("api_webhookdelivery", "resend"): Row(OWNS, OWNS, "delivery"),
    ("api_webhookdelivery", "delete_selected"): Row(OWNS, OWNS, "delivery", DELETE),
}

LEAD_ON = {
    "cancel_selected": RUNS,
    "refund_selected": RUNS,
    "export_selected": RUNS,
    **dict.fromkeys(("pause", "resume"), RUNS),
    **dict.fromkeys(("copy", "publish", "withdraw"), WORKS),
}
"""Who gets an answer from actions that change nothing: a question, a file, a form."""

DJANGOS_OWN = {
    *("login", "logout", "jsi18n", "autocomplete", "password_change", "password_change_done"),
    *("view_on_site", "app_list"),
}
"""Pages of the admin site itself, about nothing of ours."""


def make_limited_sale() -> SeckillVoucher:
    """Return a sale in which an address has ordered once more than it may."""
    sale = make_sale(per_address=1)
    forget_everything()
    order = partial(reserve, sale_id=sale.pk, address="203.0.113.7")
    order(order_id=901, user_id=901)
    with pytest.raises(OrdersLimited):
        order(order_id=902, user_id=902)
    return sale


# --- The world ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def unprobed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Today and System probe no server: that takes seconds, and writes to each."""
    for module in (figures, system):
        monkeypatch.setattr(module, "current_parts", dict)
        monkeypatch.setattr(module, "current_errors", lambda parts: [])


@pytest.fixture
def world(db: None) -> dict[str, Any]:
    """One of each thing that a page of staff can be about."""
    sold, sale, unloaded = make_sale(), make_sale(), make_sale(loaded=False)
    voucher = Voucher.objects.create(title="Rice", price_cents=8, face_value_cents=10)
    unpaid, settled = make_unpaid_order(sold), make_unpaid_order(sold)
    payment, disputed = pay(settled), pay(make_unpaid_order(sold))
    Payment.objects.filter(pk=disputed.pk).update(status=PaymentStatus.DISPUTED)
    settled.refresh_from_db()
    told = {"verified": True, "primary": True}
    EmailAddress.objects.create(user=settled.user, email="ann@example.com", **told)
    settled.events.update(notified_at=timezone.now())
    by = Actor.staff(make_buyer().pk)
    webhook = make_endpoint("https://example.com/hook")
    return {
        "in_line": make_sale(room="busy", room_opened_ms=1, room_since_ms=1),
        "limited": make_limited_sale(),
        "sale": sale,
        "unloaded": unloaded,
        "coming": make_sale(begins_in_s=3_600, ends_in_s=7_200),
        "paused": make_sale(paused=True),
        "draft": make_sale(stage="draft"),
        "unwritten": make_unwritten(),
        "rehearsal": Rehearsal.objects.create(
            seckill_voucher=sold, buyers=8, stock=4, phase="failed", problem="x", running=None
        ),
        "code": InvitationCode.objects.create(seckill_voucher=sold, code="WELCOME1"),
        "merchant": Merchant.objects.create(name="Old Street"),
        "voucher": voucher,
        "on_sale": sale.voucher,
        "unpaid": unpaid,
        "paid": settled,
        "set_aside": make_order(
            sold, make_buyer(), status=OrderStatus.REFUSED, reason="failed"
        ),
        "use": make_use(sold),
        "payment": payment,
        "disputed": disputed,
        "difference": SettlementDifference.objects.create(
            provider="sandbox", day="2026-11-11", direction="payment", kind="missing_there",
            reference=payment.reference, payment=payment, our_cents=1, found_at=timezone.now(),
        ),
        "job": start_job(kind=OrderJob.Kind.CANCEL, order_ids=[unpaid.pk], by=by),
        "user": make_buyer(),
        "group": Group.objects.create(name="Others"),
        "settings": ShopSettings.objects.create(revision="1"),
        "invitation": Invitation.objects.create(
            email="old@example.com", role=Group.objects.get_or_create(name=Role.OPERATOR.value)[0]
        ),
        "token": make_token()[0],
        "webhook": webhook,
        "delivery": make_delivery(webhook, settled),
    }  # fmt: skip


def make_use(sale: SeckillVoucher) -> OrderEvent:
    """Return the use of a voucher by a cashier who has left."""
    order = make_order(sale, make_buyer(), status=OrderStatus.USED)
    VoucherOrder.objects.filter(pk=order.pk).update(code="0123456789ABCDEF")
    return OrderEvent.objects.create(
        order=order, before="paid", after="used", at=timezone.now(), actor_kind="staff"
    )


def make_unwritten() -> SeckillVoucher:
    """Return a sale with an accepted order that no row could hold."""
    sale = make_sale()
    reserved(sale, [make_buyer()])
    set_aside(sale_id=sale.pk, entries=[pending(sale)[0]])
    return sale


def browser_of(who: str) -> Client:
    """Return the browser of somebody with this role."""
    client = Client(headers={"accept": "text/html", "accept-language": "en"})
    if who != "visitor":
        user = User.objects.create(
            username=who, password="!", is_staff=who in STAFF, is_superuser=who in OWNS
        )
        if who in ROLES:
            make_roles()
            user.groups.add(Group.objects.get(name=ROLES[who]))
        client.force_login(user)
    return client


def let_run(rehearsal: Rehearsal) -> None:
    """One runs at a time, so none does in the world until then."""
    Rehearsal.objects.filter(pk=rehearsal.pk).update(running=True, phase=RehearsalPhase.BUYING)


def state() -> list[Any]:
    """Return a checksum of each table that staff could change, and the ledger."""
    tables = [
        model._meta.db_table
        for label in (*SHOP_APPS, "api", "auth", "accounts")
        for model in apps.get_app_config(label).get_models(include_auto_created=True)
        if model._meta.managed
    ]
    tables.append(ShopSettings._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(f"CHECKSUM TABLE {', '.join(tables)}")
        return [*cursor.fetchall(), ledger_contents()]


def keep_all(ledger: Redis) -> None:
    """Let nothing expire by itself during the test."""
    for key in ledger.scan_iter():
        ledger.persist(key)


@contextmanager
def undone(ledger: Redis) -> Iterator[None]:
    """Take back what the block does to the database and to the ledger."""
    savepoint = transaction.savepoint()
    with ledger.pipeline() as pipeline:
        keys = list(ledger.scan_iter())
        for key in keys:
            pipeline.dump(key)
        found = pipeline.execute()
        yield
        transaction.savepoint_rollback(savepoint)
        pipeline.flushdb()
        for key, content in zip(keys, found, strict=True):
            pipeline.restore(key, 0, content)
        pipeline.execute()


def address(key: str, world: Mapping[str, Any]) -> str:
    """Return where the page of a row is; locks have no table to look one up in."""
    row, ids = PAGES[key], {name: thing.pk for name, thing in world.items()}
    args = [ids.get(row.of, row.of)] if row.of else []
    if row.of == "disputed":
        args.insert(0, world["disputed"].order_id)
    return reverse(key.split(",")[0], args=args) + row.query.format(**ids)


def is_let_in(response: Any) -> bool:
    """Say whether somebody may be here: neither forbidden nor sent to sign in."""
    assert response.status_code < 500, response
    if response.status_code == 302 and "/login/" in response["Location"]:
        return False
    return response.status_code not in (401, 403)


def sent(
    key: str, url: str, world: Mapping[str, Any], *, by: Client, owner: Client
) -> dict[str, Any]:
    """Return what somebody would send who may, or has seen how it is done."""
    row = PAGES[key]
    if key == "redeem":
        return {"code": written_code(world["paid"].code)}
    if key.endswith("_many"):
        of = world["unpaid" if "cancel" in key else "paid"]
        return {"order_ids": str(of.pk), **row.send}
    if key.endswith("_import"):
        return {"key": looked_at(by) or looked_at(owner)} if "process" in key else a_file()
    if row.send == DELETE:
        return DELETE
    page = owner.get(url)
    if key == "admin:sale-series":  # shown first; what is then sent names what was looked at
        page = owner.post(url, {**filled(page), **SERIES})
    return {**filled(page), **row.send}


def a_file() -> dict[str, Any]:
    """Return an upload of two vouchers."""
    example = "title,price,face_value\nTea,8,10\nRice,9,10\n"
    return {"file": SimpleUploadedFile("vouchers.csv", example.encode())}


def looked_at(client: Client) -> str:
    """Upload a file, and return the key of its preview; nothing for who may not."""
    page = client.post(reverse("admin:vouchers_voucher_import"), a_file())
    return str(filled(page).get("key", ""))


# --- Tried ----------------------------------------------------------------------------------------


PARTS = 4
"""All pages take half a minute: each test has a part of them."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_roles_see_their_pages_and_forge_no_change(
    part: int, world: dict[str, Any], redis_databases: list[Redis]
) -> None:
    clients = {who: browser_of(who) for who in EVERYBODY}
    keep_all(redis_databases[0])
    before, wrong = state(), {}
    for name, row in list(PAGES.items())[part::PARTS]:
        url, changed = address(name, world), set()
        seen = {who for who, client in clients.items() if is_let_in(client.get(url))}
        for who, client in clients.items():
            if who == EVERYBODY[0] or name.endswith("_import"):  # a file is read as it is sent
                data = sent(name, url, world, by=client, owner=clients["owner"])
                assert state() == before, name
            with undone(redis_databases[0]):
                ready = before
                if name == "admin:orders_rehearsal_cancel":
                    let_run(world["rehearsal"])
                    ready = state()
                is_in = is_let_in(client.post(url, data))
                if state() != ready:
                    changed.add(who)
                assert is_in or who not in changed, (who, name)
        if (seen, changed) != (row.see, row.change):
            wrong[name] = seen, changed
    assert wrong == {}


@pytest.mark.slow
def test_roles_do_their_actions_and_forge_no_other(
    world: dict[str, Any], redis_databases: list[Redis]
) -> None:
    clients, wrong = {who: browser_of(who) for who in EVERYBODY}, {}
    keep_all(redis_databases[0])
    before = state()
    for key, row in ACTIONS.items():
        url = reverse(f"admin:{key[0]}_changelist")
        data = {"action": key[1], "_selected_action": world[row.of].pk, **row.send}
        seen, changed, led_on = set(), set(), set()
        for who, client in clients.items():
            with undone(redis_databases[0]):
                response = client.post(url, data)
                if is_let_in(response):
                    seen.add(who)
                if leads_on(response):
                    led_on.add(who)
                if state() != before:
                    changed.add(who)
        if (seen, changed, led_on) != (row.see, row.change, LEAD_ON.get(key[1], NOBODY)):
            wrong[key] = seen, changed, led_on
    assert wrong == {}


def leads_on(response: Any) -> bool:
    """Say whether an action answers with its question, its file or the form it leads to."""
    is_file = "attachment" in response.get("Content-Disposition", "")
    is_led = re.search(r"/(copy/|(publish|withdraw|pause|resume)/\?)", response.get("Location", ""))
    return is_file or bool(is_led) or b"end-orders" in response.getvalue()


def test_code_is_hidden_without_permission_to_redeem(world: dict[str, Any]) -> None:
    url = reverse("admin:orders_voucherorder_change", args=[world["paid"].pk])
    read = {who for who in LOOKS if world["paid"].code in browser_of(who).get(url).text}
    assert read == WORKS


# --- The tables are complete ----------------------------------------------------------------------


def patterns(resolver: URLResolver, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Return route and full name of every page below a resolver."""
    for it in resolver.url_patterns:
        if isinstance(it, URLResolver):
            space = f"{it.namespace}:" if it.namespace else ""
            yield from ((str(it.pattern) + route, space + name) for route, name in patterns(it))
        else:
            yield prefix + str(it.pattern), it.name or ""


def test_every_staff_page_has_a_row() -> None:
    found = {
        name
        for route, name in patterns(get_resolver())
        if route.startswith(("admin/", "staff/")) and not name.endswith(":")  # a redirect
    }
    ours = {key.split(",")[0] for key in PAGES}
    assert found == {*ours, *(f"admin:{name}" for name in DJANGOS_OWN)}


def test_every_action_has_a_row() -> None:
    request = RequestFactory().get("/admin/")
    request.user = User(is_active=True, is_staff=True, is_superuser=True)
    found = {
        (f"{model._meta.app_label}_{model._meta.model_name}", action)
        for model, its_admin in admin.site._registry.items()
        for action in its_admin.get_actions(request)
    }
    assert found == set(ACTIONS)


NOTHING = "The roles are as they should be; nothing was changed."

# --- Making the roles -----------------------------------------------------------------------------


def permissions_of(role: Role) -> set[str]:
    found = Permission.objects.filter(group__name=role).select_related("content_type")
    return {f"{it.content_type.app_label}.{it.codename}" for it in found}


@pytest.fixture
def no_roles(db: None) -> None:
    Group.objects.all().delete()


@pytest.mark.usefixtures("no_roles")
def test_roles_have_their_permissions() -> None:
    made = make_roles()
    assert [change.role for change in made] == list(Role)
    assert permissions_of(Role.SHOP_STAFF) == set(PREPARE)
    assert permissions_of(Role.OPERATOR) == {*PREPARE, *RUN}
    assert {name: set(added) for name, added in ((it.role, it.added) for it in made)} == {
        role: permissions_of(role) for role in Role
    }


@pytest.mark.usefixtures("no_roles")
def test_read_only_may_view_everything_and_change_nothing() -> None:
    make_roles()
    models = [it for label in SHOP_APPS for it in apps.get_app_config(label).get_models()]
    assert permissions_of(Role.READ_ONLY) == {
        f"{it._meta.app_label}.view_{it._meta.model_name}"
        for it in models
        if it._meta.default_permissions
    }


@pytest.mark.usefixtures("no_roles")
def test_making_roles_again_changes_nothing() -> None:
    make_roles()
    before = {role: permissions_of(role) for role in Role}
    assert make_roles() == []
    assert {role: permissions_of(role) for role in Role} == before


@pytest.mark.usefixtures("no_roles")
def test_lost_permissions_return_and_added_ones_stay_unless_reset() -> None:
    make_roles()
    group = Group.objects.get(name=Role.SHOP_STAFF)
    group.permissions.remove(Permission.objects.get(codename="redeem_voucherorder"))
    group.permissions.add(Permission.objects.get(codename="view_user"))
    assert make_roles() == [RoleChange(Role.SHOP_STAFF, ["orders.redeem_voucherorder"], [])]
    assert permissions_of(Role.SHOP_STAFF) == {*PREPARE, "auth.view_user"}
    assert make_roles(reset=True) == [RoleChange(Role.SHOP_STAFF, [], ["auth.view_user"])]
    assert permissions_of(Role.SHOP_STAFF) == set(PREPARE)


@pytest.mark.usefixtures("no_roles")
def test_other_groups_and_members_are_left_alone() -> None:
    other, user = Group.objects.create(name="Others"), make_buyer()
    other.permissions.add(Permission.objects.get(codename="view_user"))
    user.groups.add(other)
    make_roles(reset=True)
    assert [it.codename for it in other.permissions.all()] == ["view_user"]
    assert list(user.groups.all()) == [other]


def command(*arguments: str, **options: Any) -> list[str]:
    out = io.StringIO()
    call_command("make_roles", *arguments, stdout=out, **options)
    return out.getvalue().splitlines()


@pytest.mark.usefixtures("no_roles")
def test_make_roles_command_prints_changes() -> None:
    make_roles()
    group = Group.objects.get(name=Role.SHOP_STAFF)
    group.permissions.remove(Permission.objects.get(codename="redeem_voucherorder"))
    group.permissions.add(Permission.objects.get(codename="view_user"))
    assert command("--reset") == [
        "Shop staff:",
        "  + orders.redeem_voucherorder",
        "  - auth.view_user",
    ]
    assert command() == [NOTHING]
    Group.objects.all().delete()
    assert command(verbosity=0) == []
    assert Group.objects.count() == len(Role)


# --- On every installation ------------------------------------------------------------------------


@pytest.mark.slow
def test_migrations_make_the_roles_and_need_no_redis(tmp_path: Path) -> None:
    redis = ("REDIS_URL", "CACHE_URL", "CELERY_BROKER_URL")
    environ = {
        **os.environ,
        "DATABASE_URL": f"sqlite:///{tmp_path}/empty.sqlite3",
        **{name: f"redis://127.0.0.1:1/{db}" for db, name in enumerate(redis)},
    }

    def manage(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT, env=environ, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert not done.stderr
        return done.stdout

    manage("migrate", "--verbosity", "0")
    # Whoever adds a permission to a role, or a model to look at, without a migration that gives it
    # fails here.
    assert manage("make_roles", "--reset") == f"{NOTHING}\n"


@pytest.mark.usefixtures("no_roles")
def test_upgrade_makes_roles_and_their_permissions() -> None:
    of_the_shop = Permission.objects.filter(content_type__app_label__in=SHOP_APPS)
    of_the_shop.delete()
    migration = import_module("orders.migrations.0002_roles")
    # The last migration that gives a role a permission.
    state = MigrationLoader(connection).project_state(("orders", "0019_order_refusals"))
    migration.make_roles_with_permissions(state.apps, SimpleNamespace(connection=connection))
    assert permissions_of(Role.OPERATOR) == {*PREPARE, *RUN}
    assert of_the_shop.filter(codename="view_lock").exists()
