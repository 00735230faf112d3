"""A shop window: a shop in which every page has something to show, to look at and for pictures.

Made by the domain's own functions, as buyers, staff and the sandbox would. Only what lies hours
back is written straight into the rows.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import Group, User
from django.contrib.sessions.backends.cached_db import SessionStore
from django.db.models import F
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backoffice.bulk_jobs import start_job, take_turn
from backoffice.rehearsal.verdict import Verdict
from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.redemption import redeem, written_code
from orders.lifecycle.transitions import Actor
from orders.lifecycle.waiting_list import join
from orders.models import (
    OrderJob,
    OrderRefusal,
    OrderStatus,
    Payment,
    RefusalReason,
    Rehearsal,
    RehearsalPhase,
    VoucherOrder,
)
from orders.payments.expiry import expire_orders
from orders.payments.refunds import finish_refunds, refund_order
from orders.placing.places import visitor_of
from orders.receipts.token_admission import find_buyer_in_sale
from orders.roles import Role, make_roles
from tests.support.orders import both_at, make_buyers, make_order, reserved, tokens_for
from tests.support.payments import expire_pay_by, make_payment, make_unpaid_order, pay
from vouchers.catalogue.sales import (
    SaleTerms,
    VoucherDetails,
    create_sale,
    create_voucher_on_sale,
    edit_sale,
    terms_of,
)
from vouchers.inventory.rebuild import load_sale
from vouchers.models import AnswerCount, Merchant, RoomKind, SeckillVoucher, Voucher

MINUTE, DAY = dt.timedelta(minutes=1), dt.timedelta(days=1)


@dataclass(frozen=True)
class Offer:
    """A voucher in the window, in both languages, and from when to when it is on sale."""

    title: tuple[str, str]
    price_cents: int
    face_value_cents: int
    stock: int
    begins: dt.timedelta
    ends: dt.timedelta
    drawing: str = ""
    stage: str = "public"

    @property
    def merchant(self) -> int:
        return int(self.drawing in ("books", "cinema"))


MERCHANTS = (
    (("Lantern Kitchen", "18 Old Street, Shanghai"), ("City Books & Films", "7 Hengshan Road")),
    (("灯市小馆", "上海市老街 18 号"), ("城市书影", "衡山路 7 号")),
)
"""The merchants of the offers with their addresses, in both languages."""

OFFERS = {
    "soon": Offer(
        ("Hotpot for two", "双人火锅套餐"),
        *(12_900, 25_800, 200, 12 * MINUTE, 192 * MINUTE, "hotpot"),
    ),
    "open": Offer(
        ("¥100 dining voucher", "100元美食代金券"),
        *(8_000, 10_000, 120, -4 * MINUTE, 176 * MINUTE, "dinner"),
    ),
    "busy": Offer(
        ("Books, ¥50 worth", "50元图书代金券"),
        *(3_900, 5_000, 300, -2 * MINUTE, 118 * MINUTE, "books"),
    ),
    "sold_out": Offer(
        ("Afternoon tea for two", "双人下午茶"),
        *(6_800, 16_800, 60, -25 * MINUTE, 95 * MINUTE, "tea"),
    ),
    "paused": Offer(
        ("Cinema, any evening", "电影通兑票"),
        *(1_990, 4_500, 80, -40 * MINUTE, 140 * MINUTE, "cinema"),
    ),
    "ended": Offer(
        ("Breakfast set", "早餐套餐"),
        *(500, 1_500, 100, -240 * MINUTE, -60 * MINUTE, "breakfast"),
    ),
    "tomorrow": Offer(
        ("Coffee for a week", "一周咖啡券"),
        *(5_900, 12_600, 150, DAY, DAY + 180 * MINUTE, "coffee"),
    ),
    "draft": Offer(
        ("A morning at the spa", "汤泉半日票"),
        *(16_800, 39_800, 40, 3 * DAY, 4 * DAY, "", "draft"),
    ),
}

RULES = (
    "One per buyer. Valid every day for three months.\nCannot be combined with other offers.",
    "每人限购一份，三个月内每天可用。\n不与其他优惠同享。",
)

EVES: dict[str, tuple[str, dict[str, dt.timedelta]]] = {
    "confirming": ("open", {"returned_at": DAY}),
    "silent": ("busy", {"returned_at": DAY, "silent_since": DAY}),
    "unconfirmed": ("paused", {"returned_at": -MINUTE}),
    "not_paid": ("ended", {"returned_at": -MINUTE, "found_open_at": MINUTE}),
}
"""Eve's payments: the sale, and when she came back. From tomorrow: it is confirmed for a day."""

WHY = {
    "pause": ("the counter asks for a minute", "柜台请求暂缓一分钟"),
    "resume": ("", ""),
    "stock": ("ten more were delivered", "追加到货十份"),
}

ROLES = {
    "cashier": Role.CASHIER,
    "reader": Role.READ_ONLY,
    "clerk": Role.SHOP_STAFF,
    "operator": Role.OPERATOR,
}


@dataclass(frozen=True)
class Window:
    """What there is to look at, by what it is: sales by state, ann's orders by status.

    Eve is back from the payment provider (``EVES``). Ben may buy, cora waits in line, the boss may
    do everything.
    """

    sales: dict[str, SeckillVoucher]
    orders: dict[str, int]
    receipts: dict[str, str]
    trades: dict[str, str]
    job: OrderJob
    rehearsal: Rehearsal
    people: dict[str, User]

    def code_of(self, status: str) -> str:
        return written_code(VoucherOrder.objects.get(pk=self.orders[status]).code or "")

    def speak(self, language: str) -> None:
        """Write the vouchers in this language, as the shop of such buyers would."""
        number = ("en", "zh-hans").index(language)
        for name, sale in self.sales.items():
            words = {"title": OFFERS[name].title[number], "rules": RULES[number]}
            Voucher.objects.filter(pk=sale.voucher_id).update(**words)
        merchants = Merchant.objects.order_by("pk")
        for merchant, (title, address) in zip(merchants, MERCHANTS[number], strict=False):
            Merchant.objects.filter(pk=merchant.pk).update(name=title, address=address)

    def run(self, name: str, *, language: str) -> None:
        """Let the operator pause a sale, resume it and offer more, as the board does it."""
        sale, operator = self.sales[name], self.people["operator"]
        LogEntry.objects.filter(object_id=str(sale.pk)).delete()
        client = Client(headers={"host": "localhost", "accept-language": language})
        client.force_login(operator, backend=settings.AUTHENTICATION_BACKENDS[-1])
        stock = SeckillVoucher.objects.get(pk=sale.pk).stock
        more = {"seen": stock, "stock": stock + 10}
        for what, data in (("pause", {}), ("resume", {}), ("stock", more)):
            reason = WHY[what][("en", "zh-hans").index(language)]
            url = reverse(f"admin:sale-board-{what}", args=[sale.pk])
            response = client.post(url, {**data, "reason": reason})
            assert response.status_code == 302, response

    def open_room(self, *, people: int) -> SeckillVoucher:
        """Put a voucher on sale again, with a waiting room into which so many people come."""
        begins_at = timezone.now().replace(microsecond=0) - MINUTE
        terms = SaleTerms(
            stock=50,
            begins_at=begins_at,
            ends_at=begins_at + DAY,
            room=RoomKind.BUSY,
            room_rate=1,
        )
        sale = create_sale(voucher=self.sales["soon"].voucher, terms=terms)
        join_line(sale, *make_buyers(people))
        return sale


def join_line(sale: SeckillVoucher, *people: User) -> list[int]:
    """Let people come to the waiting room one after the other; return the numbers they get."""
    numbers = []
    for user in people:
        visitor = visitor_of(sale_id=sale.pk, user_id=user.pk)
        found = find_buyer_in_sale(sale_id=sale.pk, user_id=user.pk, visitor=visitor)
        assert found.place
        numbers.append(found.place.given)
    return numbers


def miss_turns(sale: SeckillVoucher) -> None:
    """Move the opening of a waiting room ten minutes back: whoever is in line missed their turn."""
    rows = SeckillVoucher.objects.filter(pk=sale.pk)
    rows.update(room_since_ms=F("room_since_ms") - 600_000)
    load_sale(sale_id=sale.pk)


def session_key(user: User) -> str:
    """Return the key of a new session in which this user is signed in."""
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[-1]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    assert session.session_key
    return session.session_key


def fill_window(*, crowd: int, pictures: Mapping[str, bytes] | None = None) -> Window:
    """Fill an empty shop; in the sale that is open ``crowd`` buyers have bought.

    :param pictures: files of the offers' drawings, as a shop would upload them
    """
    now = timezone.now().replace(microsecond=0)
    people = _make_people()
    files = pictures or {}
    sales = {
        name: _put_on_sale(offer, now=now, picture=files.get(offer.drawing))
        for name, offer in OFFERS.items()
    }
    eves = _come_back_from_the_provider(sales, people["eve"])
    orders, trades = _order_everything(sales, people["ann"])
    orders |= eves
    make_unpaid_order(sales["open"], make_buyers(crowd))
    make_unpaid_order(sales["sold_out"], make_buyers(OFFERS["sold_out"].stock - 1))
    _pay_most(sales["sold_out"], 0.9)
    _pay_most(sales["open"], 0.6)
    _wait_in_line(sales["sold_out"], [people["cora"], *make_buyers(4)])
    for reason, name in (("not_started", "soon"), ("sold_out", "sold_out"), ("paused", "paused")):
        OrderRefusal.objects.create(
            seckill_voucher=sales[name], user=people["ann"], reason=reason, refused_at=now
        )
    _count_a_stream(sales["open"], accepted=crowd)
    _count_a_rush(sales["sold_out"])
    _move_back(sales, now=now)
    job = start_job(
        kind=OrderJob.Kind.CANCEL,
        order_ids=[orders["cancelled"], orders["used"]],
        by=Actor.staff(people["operator"].pk),
        why="the supplier cannot deliver",
    )
    take_turn(job_id=job.pk, now=timezone.now())
    rehearsal = _rehearsed(sales["soon"], by=people["operator"])
    return Window(sales, orders, _receipts(sales, orders), trades, job, rehearsal, people)


# --- People and sales -----------------------------------------------------------------------------


def _make_people() -> dict[str, User]:
    make_roles()
    people = {name: _make_person(name) for name in ("ann", "ben", "cora", "eve")}
    for name, role in ROLES.items():
        people[name] = _make_person(name, is_staff=True)
        people[name].groups.add(Group.objects.get(name=role))
    people["boss"] = _make_person("boss", is_staff=True, is_superuser=True)
    return people


def _make_person(name: str, **fields: Any) -> User:
    user = User(username=name, email=f"{name}@example.com", **fields)
    user.set_unusable_password()
    user.save()
    return user


def _put_on_sale(offer: Offer, *, now: dt.datetime, picture: bytes | None) -> SeckillVoucher:
    """Put it on sale as if it had begun already where it is to be sold."""
    name, address = MERCHANTS[0][offer.merchant]
    merchant, _ = Merchant.objects.get_or_create(name=name, defaults={"address": address})
    details = VoucherDetails(
        offer.title[0],
        RULES[0],
        offer.price_cents,
        offer.face_value_cents,
        picture=picture,
        merchant=merchant,
        valid_until=(now + 90 * DAY).date(),
    )
    terms = SaleTerms(
        stock=offer.stock,
        begins_at=now + offer.begins,
        ends_at=now + max(offer.ends, DAY),
        stage=offer.stage,
    )
    return create_voucher_on_sale(details=details, terms=terms)


def _move_back(sales: Mapping[str, SeckillVoucher], *, now: dt.datetime) -> None:
    """Let the sales end when they should, pause one, and let their orders be of the begin."""
    for name, sale in sales.items():
        terms = terms_of(SeckillVoucher.objects.get(pk=sale.pk))
        ends_at, is_paused = now + OFFERS[name].ends, name == "paused"
        if (terms.ends_at, terms.paused) != (ends_at, is_paused):
            edit_sale(sale_id=sale.pk, terms=replace(terms, ends_at=ends_at, paused=is_paused))
    _spread(sales["sold_out"], over_s=4)
    _spread(sales["open"], over_s=230)
    _spread(sales["ended"], over_s=7_000)


def _spread(sale: SeckillVoucher, *, over_s: int) -> None:
    """Let a sale's orders come one after the other from its begin, and be paid minutes later."""
    dice, orders = random.Random(3), sale.orders.filter(live=True).order_by("pk")
    for number, order in enumerate(orders):
        at = sale.begins_at + dt.timedelta(seconds=over_s * number / len(orders))
        paid_at = at + dt.timedelta(seconds=dice.triangular(12, 600, 60))
        VoucherOrder.objects.filter(pk=order.pk).update(accepted_at=at)
        order.events.filter(after=OrderStatus.UNPAID).update(at=at)
        order.events.exclude(after=OrderStatus.UNPAID).update(at=paid_at)
        order.payments.update(created_at=at, changed_at=paid_at)


def _rehearsed(sale: SeckillVoucher, *, by: User) -> Rehearsal:
    """Note a rehearsal of a crowd twice as large as the stock, in which all went well."""
    units, clicks = sale.stock, 440
    verdict = Verdict(
        buyers=400, stock=units, requests=clicks, accepted=units, orders=units,
        answers={"accepted": units, "already_ordered": 18, "sold_out": clicks - units - 18},
        unanswered=0, refused=0, oversold=0, lost=0, doubled=0, undersold=0, difference=0,
        drained=True, p50_ms=21, p90_ms=48, p99_ms=83, max_ms=112, requests_per_s=812.0,
        drain_s=0.9, orders_per_s=222.0, interruptions=0, cleared=True,
    )  # fmt: skip
    return Rehearsal.objects.create(
        seckill_voucher=sale, buyers=400, stock=units, duplicates=10, actor=by, running=None,
        phase=RehearsalPhase.DONE, verdict=verdict.as_json(), url="https://shop.example",
    )  # fmt: skip


# --- What buyers have done ------------------------------------------------------------------------


def _order_everything(
    sales: Mapping[str, SeckillVoucher], ann: User
) -> tuple[dict[str, int], dict[str, str]]:
    """Bring an order of ann's into every state; return them, and the sandbox's charges."""
    by, shelf = Actor.buyer(ann.pk), sales["paused"]
    orders, trades = {}, {}
    orders["cancelled"] = make_unpaid_order(shelf, [ann])
    cancel_order(order_id=orders["cancelled"].pk, by=by, now=timezone.now())
    orders["expired"] = make_unpaid_order(shelf, [ann])
    expire_orders(clocks=both_at(expire_pay_by(orders["expired"])))
    orders["refunded"] = make_unpaid_order(shelf, [ann])
    pay(orders["refunded"])
    refund_order(order_id=orders["refunded"].pk, by=by, now=timezone.now())
    finish_refunds(now=timezone.now())
    orders["refunding"] = make_unpaid_order(shelf, [ann])
    pay(orders["refunding"])
    refund_order(order_id=orders["refunding"].pk, by=by, now=timezone.now())
    orders["used"] = make_unpaid_order(sales["ended"], [ann])
    pay(orders["used"])
    orders["used"].refresh_from_db()
    redeem(code=orders["used"].code or "", by=by, now=timezone.now())
    orders["paid"] = make_unpaid_order(sales["sold_out"], [ann])
    trades["paid"] = pay(orders["paid"]).reference
    orders["unpaid"] = make_unpaid_order(sales["open"], [ann])
    trades["open"] = make_payment(orders["unpaid"]).reference
    orders["refused"] = make_order(
        sales["ended"], ann, status=OrderStatus.REFUSED, reason=RefusalReason.SOLD_OUT
    )
    ids = {name: order.pk for name, order in orders.items()}
    return ids | {"queued": reserved(sales["busy"], [ann])[0].order_id}, trades


def _come_back_from_the_provider(sales: Mapping[str, SeckillVoucher], eve: User) -> dict[str, int]:
    """Bring a payment of eve's into every state of confirmation, and keep it there."""
    now, orders = timezone.now(), {}
    for name, (sale_name, moments) in EVES.items():
        order = make_unpaid_order(sales[sale_name], [eve])
        payment = make_payment(order)
        changes = {field: now + age for field, age in moments.items()}
        Payment.objects.filter(pk=payment.pk).update(**changes)
        orders[name] = order.pk
    return orders


def _receipts(sales: Mapping[str, SeckillVoucher], orders: Mapping[str, int]) -> dict[str, str]:
    of = dict(VoucherOrder.objects.values_list("pk", "seckill_voucher_id"))
    return {
        name: reverse("receipt", args=[of.get(order_id, sales["busy"].pk), order_id])
        for name, order_id in orders.items()
    }


def _pay_most(sale: SeckillVoucher, share: float) -> None:
    """Let this share of the orders be paid, not ann's and eve's: they have one in every state."""
    unpaid = sale.orders.filter(status=OrderStatus.UNPAID).exclude(
        user__username__in=("ann", "eve")
    )
    for order in unpaid[: int(share * len(unpaid))]:
        pay(order)


def _wait_in_line(sale: SeckillVoucher, buyers: Sequence[User]) -> None:
    now_ms = int(timezone.now().timestamp() * 1000)
    for token in tokens_for(sale, buyers):
        join(token_text=token.sign(), sale_id=sale.pk, user_id=token.user_id, now_ms=now_ms)


def _count_a_rush(sale: SeckillVoucher) -> None:
    """Note what a crowd was answered that came at the begin and emptied the shelf in seconds."""
    dice, left = random.Random(1), sale.stock
    seconds = []
    for second in range(-15, 180):
        asked = int(140 * math.exp(-second / 12)) if second >= 0 else max(0, 9 + second)
        asked += dice.randint(0, 4)
        accepted = min(left, asked // 5) if second >= 0 else 0
        left -= accepted
        why_not = "not_started" if second < 0 else "rate_limited" if left else "sold_out"
        again = (asked - accepted) // 8 if second > 0 else 0
        rest = asked - accepted - again
        seconds.append({"accepted": accepted, "already_ordered": again, why_not: rest})
    _note_answers(sale, first=-15, seconds=seconds)


def _count_a_stream(sale: SeckillVoucher, *, accepted: int) -> None:
    """Note what buyers were answered who keep coming, and will for a while from now."""
    dice, seconds = random.Random(2), []
    for second in range(60 * 30):
        asked = 34 + int(14 * math.sin(second / 11)) + dice.randint(0, 20)
        is_sold = second * accepted // 240 > (second - 1) * accepted // 240
        refused = {"already_ordered": asked // 3, "rate_limited": asked // 9}
        seconds.append({"accepted": int(is_sold), **refused})
    _note_answers(sale, first=0, seconds=seconds)


def _note_answers(sale: SeckillVoucher, *, first: int, seconds: list[dict[str, int]]) -> None:
    rows = [
        AnswerCount(
            seckill_voucher=sale,
            at=sale.begins_at + dt.timedelta(seconds=number),
            answer=answer,
            count=count,
        )
        for number, counts in enumerate(seconds, start=first)
        for answer, count in counts.items()
        if count
    ]
    AnswerCount.objects.bulk_create(rows, batch_size=1_000)
