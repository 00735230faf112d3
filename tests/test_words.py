"""Every page, mail and text message that a person can see keeps to ``docs/glossary.md``.

Each is rendered in both languages. The names of the data are Greek: a Latin word on a Chinese page,
or a Chinese one on an English page, is a sentence that nobody translated. The tables are complete:
an address of the site, a template or a mail that no scene shows fails a test.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import allauth
import pytest
from allauth.account.adapter import get_adapter
from allauth.account.models import EmailAddress, EmailConfirmationHMAC
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP
from allauth.usersessions.models import UserSession
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core import mail, signing
from django.core.cache import cache
from django.core.files.uploadedfile import SimpleUploadedFile
from django.template.loader import render_to_string
from django.test import Client
from django.test.signals import template_rendered
from django.urls import URLResolver, get_resolver, reverse
from django.utils import timezone, translation
from fido2.cose import ES256
from fido2.utils import websafe_encode
from fido2.webauthn import AttestationObject, AttestedCredentialData, AuthenticatorData
from redis import Redis

from accounts.invitations import send_invitation
from accounts.models import Invitation, Phone, Reader
from api.models import ApiToken
from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.notices import send_notices, stop_link
from orders.lifecycle.notifications import tell_buyers
from orders.lifecycle.redemption import written_code
from orders.lifecycle.waiting_list import join
from orders.models import (
    ActorKind,
    EventCode,
    Notice,
    OrderEvent,
    OrderStatus,
    Payment,
    RefusalReason,
    SandboxTrade,
    VoucherOrder,
)
from orders.roles import Role, make_roles
from tests.orders import test_roles
from tests.orders.test_roles import ACTIONS, PAGES, address, keep_all, sent, undone
from tests.orders.test_roles import unprobed as unprobed  # the fixtures of that table
from tests.orders.test_roles import world as world
from tests.support.accounts import PASSWORD
from tests.support.draws import draw_to_the_end, end, enter, entered, make_draw
from tests.support.html_forms import filled
from tests.support.notices import make_notice, make_reader, move_start
from tests.support.orders import (
    make_buyer,
    make_order,
    make_sale,
    reserved,
    reserved_purchase,
    token_for,
)
from tests.support.payments import FakeProvider, make_payment, make_unpaid_order, pay, pay_all
from tests.support.rooms import make_room
from tests.support.sales import redis_now_ms
from tests.support.words import CHINESE, strings_in, texts_of_page, wrong_in
from vouchers.inventory.purchases import ids_of_purchase
from vouchers.models import Merchant, SeckillVoucher, Voucher, Work

ROOT = Path(settings.BASE_DIR)
SANDBOX = "orders.payments.sandbox.Sandbox"
LANGUAGES = ("zh-hans", "en")
PHONE_BROWSER = "Mozilla/5.0 (Linux; Android 14) Chrome/120.0 Mobile Safari/537.36"
PHONE, OTHER_PHONE = "+8613800138000", "+8613800138009"


# --- The shop -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """A page as somebody sees it: where, who, and what they sent."""

    url: str
    who: str = "buyer"
    send: dict[str, str] | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Shop:
    """Sales and orders in each state, of one buyer."""

    buyer: User
    sales: dict[str, SeckillVoucher]
    orders: dict[str, VoucherOrder]
    payments: dict[str, Payment]

    def sale(self, route: str) -> list[Scene]:
        """Return a page of every sale, for a visitor and for the buyer."""
        ids = [sale.pk for sale in self.sales.values()]
        return [Scene(reverse(route, args=[it]), who) for it in ids for who in ("visitor", "buyer")]

    def order(self, route: str, *names: str) -> list[Scene]:
        """Return a page of these orders, or of every order."""
        found = [self.orders[it] for it in names or self.orders]
        return [Scene(reverse(route, args=[it.seckill_voucher_id, it.pk])) for it in found]


class CodeProvider(FakeProvider):
    """One whose payments are shown as a QR code."""

    label = "Πληρωμή"
    code_apps = {"https://": "Εφαρμογή"}


@pytest.fixture
def shop(db: None, settings: Any, cheap_passwords: None, tmp_path: Path) -> Shop:
    """A shop whose data has Greek names only, so that its own words stand out."""
    settings.SECKILL_SHOP_TERMS = settings.SECKILL_SHOP_TERMS_EN = str(tmp_path / "terms.txt")
    (tmp_path / "terms.txt").write_text("Όροι")
    settings.SECKILL_PAYMENT_PROVIDERS = [SANDBOX]
    cache.clear()
    buyer = User.objects.create_user("αλέξης", password=PASSWORD, first_name="Αλέξης")
    EmailAddress.objects.create(user=buyer, email="a@example.com", verified=True, primary=True)
    Phone.objects.create(user=buyer, number=PHONE)
    sales = make_sales(buyer)
    orders, payments = make_orders(buyer)
    settings.SECKILL_PAYMENT_PROVIDERS = [f"{__name__}.CodeProvider", SANDBOX]
    make_payment(orders["scanned"])
    SandboxTrade.objects.update(subject="Ρύζι")
    merchant = Merchant.objects.create(name="Αγορά", address="Οδός", contact="Τηλέφωνο")
    Voucher.objects.update(title="Ρύζι", rules="Κανόνες", merchant=merchant)
    shown = Voucher.objects.latest("pk")
    Voucher.objects.filter(pk=shown.pk).update(valid_until=timezone.now() + dt.timedelta(days=9))
    return Shop(buyer, sales, orders, payments)


def make_sales(buyer: User) -> dict[str, SeckillVoucher]:
    """Return a sale in each state, and with each rule."""
    everything: dict[str, Any] = {"needs_code": True, "account_age_h": 30, "first_order_only": True}
    sales = {
        "open": make_sale(),
        "coming": make_sale(begins_in_s=9_000, ends_in_s=99_000),
        "paused": make_sale(paused=True),
        "ended": make_sale(begins_in_s=-99, ends_in_s=-9),
        "gone": make_sale(stock=1),
        "one": make_sale(stock=1, limit=3, refundable=False),
        "ruled": make_sale(**everything, group=Group.objects.create(name="Ομάδα")),
        "code": make_sale(needs_code=True),
        "work": make_sale(work=Work.LIGHT),
        "contact": make_sale(needs_contact=True),
        "room": make_room(),
        "drawing": make_draw(stock=1, needs_contact=True),
        "drawn": make_draw(stock=1),
    }
    make_unpaid_order(sales["gone"])
    join(
        token_text=token_for(sales["gone"], buyer).sign(),
        sale_id=sales["gone"].pk,
        user_id=buyer.pk,
        now_ms=redis_now_ms(),
    )
    reserved(sales["open"], [buyer])
    enter(token_for(sales["drawing"], buyer))
    entered(sales["drawn"], [make_buyer(), buyer, make_buyer()])
    end(sales["drawn"])
    draw_to_the_end(sales["drawn"])
    return sales


def make_orders(buyer: User) -> tuple[dict[str, VoucherOrder], dict[str, Payment]]:
    """Return an order in each state and of each refusal, and what was paid for some."""
    orders = {
        it.value: make_order(make_sale(), buyer, status=it, reason="sold_out" * (it == "refused"))
        for it in OrderStatus
    }
    VoucherOrder.objects.filter(pk=orders["unpaid"].pk).update(
        pay_by=timezone.now() + dt.timedelta(minutes=9)
    )
    for reason in RefusalReason:
        sale = make_sale()
        orders[reason] = make_order(sale, buyer, status=OrderStatus.REFUSED, reason=reason)
    orders |= {
        name: make_unpaid_order(make_sale(), [buyer]) for name in ("opened", "sold", "scanned")
    }
    for name in ("several", "several-paid"):
        sale = make_sale(limit=3)
        ids = reserved_purchase(sale, buyer, 2)
        fulfil_sale(sale_id=sale.pk)
        of_purchase = list(VoucherOrder.objects.filter(pk__in=ids).order_by("pk"))
        pay_all(of_purchase if name == "several-paid" else [])
        orders[name] = of_purchase[0]
    payments = {"opened": make_payment(orders["opened"]), "sold": pay(orders["sold"])}
    orders["sold"].refresh_from_db()
    return orders, payments


# --- The scenes -----------------------------------------------------------------------------------

LAB = "lab"
"""About the making of the shop, in its own words."""

NO_PAGES = {
    "files": {
        *("calendar", "picture", "thumbnail", "code-picture", "captcha-image"),
        *("codes-worker", "redeem-worker"),
    },
    "of the shop's face": {"face-theme", "face-icon", "face-manifest"},
    "answers of programs": {
        *(
            "live",
            "me",
            "token",
            "own-entry",
            "place-order",
            "notify",
            "draw-record",
            "chain-list",
            "chain-part",
            "account-data",
        ),
        *("api-sales", "api-sale", "api-orders", "api-order", "api-redeem"),
        *("healthz", "readyz", "metrics", "mfa_login_webauthn"),
        *("admin:jsi18n", "admin:autocomplete"),
    },
    "the page of a sale, for staff before it is public": {"preview"},
    "a press that leads to another page": {
        *(
            "pay",
            "extend",
            "payment-return",
            "cancel",
            "refund",
            "withdraw",
            "leave-line",
            "invitation",
        ),
        *("stop-notice", "sign-out-everywhere", "set-language-link", "mfa_download_recovery_codes"),
        *("admin:", "admin:view_on_site", "admin:logout"),
    },
}
"""Addresses that show no page of their own, by the reason."""


def scenes_of(shop: Shop) -> dict[str, list[Scene]]:
    """Return the scenes of each address, by its name."""
    sales = shop.sales
    return {
        "search": [Scene("/search/?q=x", "visitor"), Scene("/search/")],
        "voucher-list": [Scene("/", "visitor"), Scene("/"), Scene("/?page=2")],
        **{name: shop.sale(name) for name in ("purchase", "purchase-form", "notice")},
        "room": [
            Scene(f"/vouchers/{sales['room'].pk}/"),
            Scene(f"/vouchers/{sales['room'].pk}/form/"),
        ],
        "draw": [Scene(f"/vouchers/{sales[it].pk}/draw/") for it in ("drawing", "drawn")],
        "chain": [Scene(f"/vouchers/{sales[it].pk}/chain/") for it in ("gone", "ended")],
        "waiting": [Scene(f"/vouchers/{sales[it].pk}/waiting/") for it in ("gone", "open")],
        "receipt": shop.order("receipt"),
        "code": shop.order("code", "sold"),
        "pay-code": shop.order("pay-code", "scanned"),
        "codes": [Scene("/orders/codes/"), Scene("/orders/codes/", "newcomer")],
        "my-orders": [
            Scene(f"/orders/{it}") for it in ("", "?state=use", "?state=past", "?page=1")
        ],
        "my-notices": [Scene("/accounts/notices/"), Scene("/accounts/notices/", "newcomer")],
        "stop-notices": [
            Scene(stop_link(shop.buyer.pk).removeprefix(settings.SECKILL_SITE_URL)),
            Scene("/notices/stop/x/"),
        ],
        "sandbox": [Scene(f"/sandbox/{it.reference}/") for it in shop.payments.values()],
        "redeem": counter(shop),
        "redemptions": [Scene("/staff/redemptions/", "owner")],
        "undo-redemption": undoing(shop),
        "terms": [Scene("/terms/")],
        **account_scenes(shop),
        **factor_scenes(shop),
        "errors": error_scenes(shop),
    }


def end_validity(order: VoucherOrder) -> None:
    yesterday = timezone.localdate() - dt.timedelta(days=1)
    Voucher.objects.filter(sales=order.seckill_voucher).update(valid_until=yesterday)


def counter(shop: Shop) -> list[Scene]:
    """Return what a cashier sees."""
    codes = [
        "",
        "AAAA-AAAA-AAAA-AAAA",
        *(written_code(shop.orders["sold"].code or "") for _ in "ab"),
    ]
    code = written_code(shop.orders["sold"].code or "")
    sent = [{"code": it} for it in codes]
    sent += [{"code": code, "check": "1"}, {"code": "AAAA", "check": "1"}]
    late = {"code": "AB01CDEF0V1TVWXY", "check": "1"}
    VoucherOrder.objects.filter(pk=shop.orders["paid"].pk).update(code=late["code"])
    end_validity(shop.orders["paid"])
    sent += [late]
    return [
        Scene("/staff/redeem/", "owner"),
        *(Scene("/staff/redeem/", "owner", it) for it in sent),
    ]


def undoing(shop: Shop) -> list[Scene]:
    """Return the pages on which the use of a voucher is undone, or not."""
    code = "0123456789ABCDEF"
    VoucherOrder.objects.filter(pk=shop.orders["used"].pk).update(code=code)
    event = OrderEvent.objects.create(
        order=shop.orders["used"], before="paid", after="used", at=timezone.now(),
        actor_kind="staff",
    )  # fmt: skip
    url = f"/staff/redemptions/{event.pk}/undo/"
    return [
        Scene("/staff/redeem/", "owner", {"code": code, "check": "1"}),
        Scene(url, "owner"),
        *(Scene(url, "owner", {"why": "x"}) for _ in "ab"),
    ]


def account_scenes(shop: Shop) -> dict[str, list[Scene]]:
    """Return the pages of accounts: empty, filled in wrongly, from links that work or not."""
    short = {"username": "a b", "email": "x", "phone": "1", "password1": "12", "password2": "3"}
    address = EmailAddress.objects.get(user=shop.buyer)
    key = EmailConfirmationHMAC(
        EmailAddress(pk=address.pk, email=address.email, user=shop.buyer)
    ).key
    group = Group.objects.get_or_create(name=Role.OPERATOR.value)[0]
    invitation = Invitation.objects.create(email="b@example.com", role=group, invited_by=shop.buyer)
    token = signing.dumps(invitation.pk, salt="staff invitation")

    def page(path: str, *sent: dict[str, str], who: str = "buyer") -> list[Scene]:
        return [Scene(f"/accounts/{path}", who, it) for it in (None, *sent)]

    wrong = {"oldpassword": "x", "password1": "1", "password2": "2", "password": "x", "code": "x"}
    return {
        "login": page("login/", {"login": "a", "password": "b"}, {}, who="visitor"),
        "account_login": page("login/", who="visitor"),
        "account_logout": page("logout/"),
        "logout": page("logout/"),
        "signup": page("signup/", short, {}, {**short, "username": "αλέξης"}, who="visitor"),
        "account_signup": page("signup/", who="visitor"),
        "profile": [*page("profile/"), *page("profile/", who="newcomer")],
        "account-delete": [*page("delete/", wrong), *page("delete/", who="newcomer")],
        "account_inactive": page("inactive/", who="visitor"),
        "account_reauthenticate": page("reauthenticate/", wrong, who="forgotten"),
        "account_email": [
            *page(
                "email/",
                {"email": "x", "action_add": ""},
                {"email": "a@example.com", "action_add": ""},
            ),
            *page("email/", {"email": "c@example.com", "action_add": ""}, who="newcomer"),
            *page("email/", {"email": "a@example.com", "action_remove": ""}),
        ],
        "account_email_verification_sent": page("confirm-email/", who="visitor"),
        "account_confirm_email": [*page(f"confirm-email/{key}/"), *page("confirm-email/x/")],
        "account_change_password": page("password/change/", wrong),
        "account_set_password": page("password/set/", wrong, who="newcomer"),
        "account_reset_password": page("password/reset/", {"email": "x"}, {}, who="visitor"),
        "account_reset_password_done": page("password/reset/done/", who="visitor"),
        "account_reset_password_from_key": page("password/reset/key/1-x/", who="visitor"),
        "account_reset_password_from_key_done": page("password/reset/key/done/", who="visitor"),
        "account_request_login_code": page("login/code/", {"email": "x"}, {}, who="visitor"),
        "account_confirm_login_code": page("login/code/confirm/", wrong, who="coder"),
        "account_change_phone": page("phone/change/", {"phone": "1"}, {"phone": PHONE}),
        "account_verify_phone": page("phone/verify/", wrong, who="caller"),
        "staff-invitation": [*page(f"invitations/{token}/"), *page("invitations/x/")],
        "usersessions_list": page("sessions/"),
    }


def factor_scenes(shop: Shop) -> dict[str, list[Scene]]:
    """Return the pages of two-step sign-in, with and without its factors."""
    armed = User.objects.create_user("νίκος", password=PASSWORD)
    TOTP.activate(armed, "JBSWY3DPEHPK3PXP")
    RecoveryCodes.activate(armed)
    held = Authenticator.objects.create(
        user=armed,
        type=Authenticator.Type.WEBAUTHN,
        data={"name": "Κλειδί", "credential": security_key()},
    )

    def page(path: str, who: str = "armed", *sent: dict[str, str]) -> list[Scene]:
        return [Scene(f"/accounts/2fa/{path}", who, it) for it in (None, *sent)]

    return {
        "mfa_index": [*page(""), *page("", "buyer")],
        "mfa_authenticate": page("authenticate/", "half in", {"code": "000000"}),
        "mfa_reauthenticate": page("reauthenticate/", "forgotten armed", {"code": "x"}),
        "mfa_view_recovery_codes": page("recovery-codes/"),
        "mfa_generate_recovery_codes": page("recovery-codes/generate/"),
        "mfa_activate_totp": page("totp/activate/", "buyer", {"code": "1"}),
        "mfa_deactivate_totp": page("totp/deactivate/"),
        "mfa_list_webauthn": [*page("webauthn/"), *page("webauthn/", "buyer")],
        "mfa_add_webauthn": page("webauthn/add/", "buyer", {"name": ""}),
        "mfa_reauthenticate_webauthn": page("webauthn/reauthenticate/", "forgotten armed"),
        "mfa_remove_webauthn": page(f"webauthn/keys/{held.pk}/remove/"),
        "mfa_edit_webauthn": page(f"webauthn/keys/{held.pk}/edit/"),
    }


def security_key() -> dict[str, Any]:
    """Return what a browser answers when a key is added."""
    public = ES256.from_cryptography_key(generate_private_key(SECP256R1()).public_key())
    credential = AttestedCredentialData.create(bytes(16), b"key", public)
    answer = AttestationObject.create(
        "none", AuthenticatorData.create(bytes(32), AuthenticatorData.FLAG(0x41), 0, credential), {}
    )
    asked = {"type": "webauthn.create", "challenge": "AA", "origin": "https://shop.example"}
    key_id = websafe_encode(b"key")
    return {
        "id": key_id,
        "rawId": key_id,
        "type": "public-key",
        "clientExtensionResults": {},
        "response": {
            "clientDataJSON": websafe_encode(json.dumps(asked).encode()),
            "attestationObject": websafe_encode(answer),
        },
    }


def error_scenes(shop: Shop) -> list[Scene]:
    """Return pages that say that something cannot be done."""
    place = reverse("place-order", args=[shop.sales["open"].pk])
    cancel = shop.order("cancel", "paid", "used")
    return [
        Scene("/nowhere/"),
        Scene("/vouchers/404/", "visitor"),
        Scene(place),
        Scene(place, send={"token": "x"}),
        *(Scene(it.url, send={}) for it in cancel),
        *(Scene(it.url, send={}) for it in shop.order("refund", "unpaid", "sold")),
        *(Scene(it.url, "visitor") for it in shop.order("receipt", "paid")),
        Scene("/admin/", "buyer"),
    ]


# --- Who looks ------------------------------------------------------------------------------------


def browser(who: str, shop: Shop, language: str) -> Client:
    """Return the browser of somebody; who is "forgotten" has to enter the password again."""
    client = Client(headers={"Accept": "text/html", "Accept-Language": language})
    names = {"buyer": "αλέξης", "forgotten": "αλέξης", "caller": "αλέξης"}
    names |= {"armed": "νίκος", "forgotten armed": "νίκος", "newcomer": "νέος", "owner": "μαρία"}
    if who in names:
        user = User.objects.get_or_create(username=names[who], defaults={"password": "!"})[0]
        if who == "owner":
            User.objects.filter(pk=user.pk).update(is_staff=True, is_superuser=True)
        client.force_login(user)
        seen = {"user": user, "ip": "203.0.113.7", "user_agent": PHONE_BROWSER}
        UserSession.objects.create(session_key=client.session.session_key, **seen)
        if not who.startswith("forgotten"):
            client.post("/accounts/reauthenticate/", {"password": PASSWORD})
    if who == "coder":
        client.post("/accounts/login/code/", {"email": "a@example.com"})
    elif who == "caller":
        client.post("/accounts/phone/change/", {"phone": "+8613800138001"})
    elif who == "half in":
        client.post("/accounts/login/", {"username": "νίκος", "password": PASSWORD})
    return client


def look(scene: Scene, client: Client) -> list[str]:
    """Return what a scene shows, after the pages that it leads to."""
    if scene.send is None:
        answer = client.get(scene.url, headers=scene.headers, follow=True)
    else:
        answer = client.post(scene.url, scene.send, headers=scene.headers, follow=True)
    assert answer.status_code < 500, scene
    return texts_of_page(answer.text)


@pytest.fixture
def templates() -> Iterator[set[str]]:
    """The names of the templates that are rendered during the test."""
    names: set[str] = set()

    def remember(template: Any, **kwargs: Any) -> None:
        names.add(template.name)

    template_rendered.connect(remember)
    yield names
    template_rendered.disconnect(remember)


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_page_keeps_to_the_glossary(shop: Shop, templates: set[str], language: str) -> None:
    wrong: dict[str, Any] = {}
    for name, scenes in scenes_of(shop).items():
        for scene in scenes:
            cache.clear()  # nobody waits for the limits on attempts
            texts = look(scene, browser(scene.who, shop, language))
            if found := wrong_in(texts, language):
                wrong[f"{name} {scene.url} {scene.send or ''}"] = found
    assert wrong == {}
    ours = {
        str(path.relative_to(ROOT / "templates"))
        for path in (ROOT / "templates").rglob("*.html")
        if not {"admin", "lab"} & set(path.relative_to(ROOT / "templates").parts)
    }
    assert sorted(ours - templates) == []


def test_every_address_has_scenes_or_shows_no_page(shop: Shop) -> None:
    found = {name for _, name in patterns(get_resolver()) if name and not name.startswith(LAB)}
    office = {key.split(",")[0] for key in PAGES} | set(OWN_OF_ADMIN)
    assert found - set().union(*NO_PAGES.values()) - set(scenes_of(shop)) - office == set()


def patterns(resolver: URLResolver, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Return route and full name of every address below a resolver."""
    for it in resolver.url_patterns:
        if isinstance(it, URLResolver):
            space = f"{it.namespace}:" if it.namespace else ""
            yield from ((route, space + name) for route, name in patterns(it))
        else:
            yield prefix + str(it.pattern), it.name or ""


# --- The back office ------------------------------------------------------------------------------

OWN_OF_ADMIN = {
    "admin:login": "/admin/login/",
    "admin:password_change": "/admin/password_change/",
    "admin:password_change_done": "/admin/password_change/done/",
    "admin:app_list": "/admin/vouchers/",
}
"""Pages of the admin site itself; all others are in the table of roles."""

WORDS_OF_FORMS = ("title", "name", "first_name", "username", "reason", "why")
"""Fields whose texts are shown again, so that they have to be Greek."""


BOTH_NAMES = re.compile(rf"[{CHINESE}]+ · [a-z ]+")
"""A heading of a file to import, in both languages on every page."""


def greek_file() -> dict[str, Any]:
    rows = "title,price,face_value\nΡύζι,8,10\nΤσάι,9,10\n"
    return {"file": SimpleUploadedFile("ρύζι.csv", rows.encode())}


def name_in_greek() -> None:
    """Give all that has a name a Greek one."""
    Voucher.objects.update(title="Ρύζι", rules="Κανόνες")
    for model, name in (
        (Merchant, "name"), (User, "username"), (Group, "name"), (ApiToken, "name"),
    ):  # fmt: skip
        for row in model._default_manager.all():
            if getattr(row, name) not in Role.values:
                model._default_manager.filter(pk=row.pk).update(**{name: f"Όνομα{row.pk}"})


def member(role: Role | None, language: str) -> Client:
    """Return the browser of a member of staff: of the owner without a role."""
    name = {None: "μαρία", Role.READ_ONLY: "νίκη", Role.CASHIER: "άρης"}[role]
    user = User.objects.create(username=name, is_staff=True, is_superuser=role is None)
    if role:
        user.groups.add(Group.objects.get(name=role))
    client = Client(headers={"Accept": "text/html", "Accept-Language": language})
    client.force_login(user)
    return client


def texts_of_answer(answer: Any) -> list[str]:
    """Return what an answer says to people: a page, or figures for its script; no files."""
    assert answer.status_code < 500, answer
    kind = answer.headers.get("Content-Type", "")
    if "attachment" in answer.headers.get("Content-Disposition", ""):
        return []
    if kind.startswith("application/json"):  # codes are for the page's script
        return [it for it in strings_in(answer.json()) if not re.fullmatch("[a-z_-]+", it)]
    texts = texts_of_page(answer.text) if kind.startswith("text/html") else []
    return [it for it in texts if not BOTH_NAMES.fullmatch(it)]


def greek(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: "Ρύζι" if name in WORDS_OF_FORMS and it else it for name, it in fields.items()}


def answers_of(
    key: str, world: Mapping[str, Any], owner: Client, others: Sequence[Client], ledger: Redis
) -> Iterator[Any]:
    """Yield what a page of the back office answers: read, filled in wrongly, and sent."""
    url = address(key, world)
    for client in (owner, *others):
        yield client.get(url, follow=True)
    if key.endswith("_changelist"):
        yield owner.get(f"{url}?q=%CF%87", follow=True)
    with undone(ledger):
        data = sent(key, url, world, by=owner, owner=owner)
        words = {it: "x" for it in data if it not in ("csrfmiddlewaretoken", "seen", "key")}
        yield owner.post(url, words, follow=True)
        yield owner.post(url, follow=True)
        if not key.endswith("_delete"):
            yield owner.post(url, greek(data), follow=True)


def pages_of_draws() -> Iterator[str]:
    """Yield the boards and reports of a draw that takes entries and of one that was drawn."""
    for is_over in (False, True):
        sale = make_draw(stock=1)
        entered(sale, [make_buyer(), make_buyer()])
        if is_over:
            end(sale)
            draw_to_the_end(sale)
        name_in_greek()
        yield from (f"/admin/vouchers/seckillvoucher/{sale.pk}/{it}/" for it in ("board", "report"))


def answers_to_staff(
    world: Mapping[str, Any], owner: Client, others: Sequence[Client], ledger: Redis
) -> Iterator[tuple[str, Any]]:
    """Yield what every page and every action of the back office answers, by its place."""
    for name, url in OWN_OF_ADMIN.items():
        yield name, owner.get(url, follow=True)
        yield name, owner.post(url, {"old_password": "x"}, follow=True)
    for key in PAGES:
        for answer in answers_of(key, world, owner, others, ledger):
            yield key, answer
    for url in (f"/admin/customers/{world['paid'].user_id}/", *pages_of_draws()):
        yield url, owner.get(url)
    url = address("admin:vouchers_voucher_change, on sale", world)
    yield "a new price", owner.post(url, {**filled(owner.get(url)), "price_cents": "7"})
    for (model, action), row in ACTIONS.items():
        data = {"action": action, "_selected_action": world[row.of].pk}
        with undone(ledger):
            for more in ({}, row.send):
                url = reverse(f"admin:{model}_changelist")
                yield action, owner.post(url, {**data, **more}, follow=True)


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_page_of_staff_keeps_to_the_glossary(
    world: dict[str, Any],
    redis_databases: list[Redis],
    templates: set[str],
    monkeypatch: pytest.MonkeyPatch,
    language: str,
) -> None:
    monkeypatch.setattr(test_roles, "a_file", greek_file)
    make_roles()
    name_in_greek()
    world = {name: type(it)._default_manager.get(pk=it.pk) for name, it in world.items()}
    owner, *others = (member(it, language) for it in (None, Role.READ_ONLY, Role.CASHIER))
    keep_all(redis_databases[0])
    wrong: dict[str, Any] = {}
    for place, answer in answers_to_staff(world, owner, others, redis_databases[0]):
        if found := wrong_in(texts_of_answer(answer), language):
            wrong.setdefault(place, {}).update(found)
    assert wrong == {}
    ours = {
        str(it.relative_to(ROOT / "templates")) for it in (ROOT / "templates/admin").rglob("*.html")
    }
    assert sorted(ours - templates) == []


# --- Mails and text messages ----------------------------------------------------------------------


def texts_of_account(user: User) -> dict[str, Any]:
    """Return what mails and messages of allauth are filled in with."""
    return {
        "user": user,
        "user_display": user.username,
        "username": user.username,
        "name": user.username,
        **dict.fromkeys(("email", "from_email", "to_email", "deleted_email"), "a@example.com"),
        **dict.fromkeys(("activate_url", "password_reset_url"), "https://shop.example/x/"),
        "signup_url": "https://shop.example/x/",
        "code": "ABCD-EFGH",
        "recipient": "a@example.com",
        "phone": PHONE,
        "ip": "203.0.113.7",
        "user_agent": "Chrome",
        "timestamp": timezone.now(),
        "current_site": {"name": "Αγορά", "domain": "shop.example"},
    }


def kinds(folder: str, ending: str) -> set[str]:
    """Return the templates of allauth and ours in folders of this name, without their ending."""
    roots = (Path(allauth.__file__).parent / "templates", ROOT / "templates")
    found = {
        str(path.relative_to(root)).removesuffix(ending)
        for root in roots
        for app in ("account", "mfa", "usersessions")
        for path in (root / app / folder).glob(f"*{ending}")
    }
    return {it for it in found if not it.endswith("/base")}


@pytest.mark.parametrize("language", LANGUAGES)
def test_mails_of_accounts_keep_to_the_glossary(language: str) -> None:
    wrong, context = {}, texts_of_account(User(username="αλέξης"))
    with translation.override(language):
        for kind in kinds("email", "_message.txt"):
            made = get_adapter().render_mail(kind, "a@example.com", context)
            if found := wrong_in([made.subject, *made.body.splitlines()], language):
                wrong[kind] = found
        for kind in kinds("messages", ".txt"):
            text = render_to_string(f"{kind}.txt", context)
            if found := wrong_in(text.splitlines(), language):
                wrong[kind] = found
    assert wrong == {}
    assert len(kinds("email", "_message.txt")) > 10


class Texts:
    """Keeps the text messages that are sent."""

    sent: list[str] = []

    def send(self, phone: str, text: str) -> None:
        self.sent.append(text)


def make_event(order: VoucherOrder, **fields: Any) -> None:
    OrderEvent.objects.create(
        order=order,
        **{"after": order.status, "at": timezone.now(), "actor_kind": ActorKind.SYSTEM, **fields},
    )


def make_events_of_purchase(first: VoucherOrder) -> None:
    """Let all orders of a purchase come to each status."""
    for order in VoucherOrder.objects.filter(pk__in=ids_of_purchase(first.pk)):
        for status in OrderStatus:
            make_event(order, after=status)


def invite_staff(shop: Shop) -> None:
    """Send an invitation for each role."""
    make_roles()
    for group in Group.objects.filter(name__in=list(Role)):
        invitation = Invitation(email=f"{group.pk}@example.com", role=group)
        send_invitation(invitation, invited_by=shop.buyer, tell=lambda *_: None)


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_mails_and_texts_of_orders_keep_to_the_glossary(
    shop: Shop,
    settings: Any,
    templates: set[str],
    django_capture_on_commit_callbacks: Any,
    language: str,
) -> None:
    settings.SECKILL_SMS_BACKEND = f"{__name__}.Texts"
    Texts.sent.clear()
    Reader.objects.update_or_create(user=shop.buyer, defaults={"language": language})
    OrderEvent.objects.all().delete()
    told = [*OrderStatus, *RefusalReason, "sold"]
    for name in told:
        make_event(shop.orders[name])
    for code in EventCode:
        make_event(shop.orders["paid"], before=OrderStatus.PAID, code=code)
    for name in ("paid", "sold"):
        make_event(shop.orders[name], before=OrderStatus.USED)  # an undone use
    end_validity(shop.orders["sold"])
    make_events_of_purchase(shop.orders["several-paid"])
    told += OrderStatus
    assert tell_buyers(now=timezone.now()) == len(told) + len(EventCode) + 2

    Notice.objects.all().delete()
    by_text = make_reader(email=False, phone=OTHER_PHONE, language=language)
    readers = [make_reader(language=language), by_text]
    asked = {"start": "coming", "back": "one", "result": "drawn", "last_day": "open"}
    for kind in Notice.Kind:
        for reader in readers:
            make_notice(shop.sales[asked[kind.value]], reader, kind)
    move_start(shop.sales["coming"], begins_in_s=60)
    today, valid = timezone.localdate(), shop.sales["open"]
    for reader in readers:
        make_order(valid, reader, status=OrderStatus.PAID)
    Voucher.objects.filter(pk=valid.voucher_id).update(valid_until=today)
    SeckillVoucher.objects.filter(pk=valid.pk).update(reminded_for=today)
    while send_notices(now=timezone.now()):
        pass
    with translation.override(language), django_capture_on_commit_callbacks(execute=True):
        invite_staff(shop)
    Client(headers={"Accept-Language": language}).post("/accounts/login/code/", {"phone": PHONE})

    lines = [it for each in mail.outbox for it in (str(each.subject), *str(each.body).splitlines())]
    assert wrong_in([*lines, *Texts.sent], language) == {}
    assert len(mail.outbox) == len(told) + len(EventCode) + 2 + len(Notice.Kind) + len(Role)
    assert len(Texts.sent) == len(Notice.Kind) + 1
    ours = {
        str(path.relative_to(ROOT / "templates"))
        for path in (ROOT / "templates").rglob("*.txt")
        if not {"account", "lab"} & set(path.relative_to(ROOT / "templates").parts)
    }
    assert sorted(ours - templates) == []
