"""Today in words: what its template shows, for the first view and for each refresh."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from backoffice.board.actions import offered
from backoffice.board.snapshot import Board, Pace
from backoffice.board.texts import alert_of, rate_text, state_of, sum_verdict
from backoffice.figures import Figure, count, yuan
from backoffice.rehearsal.texts import headline
from backoffice.today.figures import MOST, Next, Today, Trade, Worries
from seckill_site.clocks.machine import epoch_ms
from seckill_site.formatting import NO_VALUE, duration, grouped
from vouchers.admin.sale_list import TONES
from vouchers.templatetags.buyer_texts import DAYS

PARTS = {
    "redis": _("Redis"),
    "database": _("Database"),
    "broker": _("Message queue"),
    "orders": _("Writing of orders"),
}
"""The parts of the system that are probed."""

SENTENCES = {
    "days": DAYS,
    "stale": _("Out of date: the server is not responding. This page keeps trying."),
    "fresh": _("The figures are live again."),
}

BAR_S = 5
"""The seconds of one bar of the small chart."""

CHART_WIDTH, CHART_HEIGHT = 240, 48


@dataclass(frozen=True)
class Spark:
    """A small chart: two paths of bars, and what they show in words."""

    requests: str
    accepted: str
    text: str


@dataclass(frozen=True)
class Alert:
    """One thing that needs attention, and where it is handled."""

    tone: str
    text: str
    url: str


def sale_cards(today: Today, *, may_run: bool) -> list[dict[str, Any]]:
    """Return the running sales."""
    return [_sale_card(board, may_run=may_run) for board in today.running or []]


def _sale_card(board: Board, *, may_run: bool) -> dict[str, Any]:
    sale = board.sale
    left = board.snapshot.remaining if board.snapshot else None
    actions = offered(board) if may_run else []
    action = next((it for it in ("pause", "resume") if it in actions), "")
    state = state_of(board)
    return {
        "title": sale.voucher.local_title,
        "url": reverse("admin:vouchers_seckillvoucher_change", args=[sale.pk]),
        "board_url": reverse("admin:sale-board", args=[sale.pk]),
        "pause_url": reverse(f"admin:sale-board-{action}", args=[sale.pk]) if action else "",
        "tone": TONES.get(board.state, ""),
        "state": state["text"],
        "left": grouped(left),
        "total": sale.stock,
        "taken": sale.stock - left if left is not None else 0,
        "accepted": rate_text(board.pace.accepted_now if board.pace else None),
        "requests": rate_text(board.pace.requests_now if board.pace else None),
        "spark": _spark(board.pace) if board.pace and any(board.pace.requests) else None,
        "alert": alert_of(board)["text"] if board.ledger_answers else "",
        "ends_at_ms": epoch_ms(sale.ends_at),
    }


def _spark(pace: Pace) -> Spark:
    requests, accepted = _bars(pace.requests), _bars(pace.accepted)
    highest = max(*requests, 1)
    words = {"now": rate_text(pace.accepted_now), "most": rate_text(max(accepted))}
    text = gettext(
        "Orders accepted per second in the last two minutes: now %(now)s, at most %(most)s"
    )
    return Spark(_path(requests, highest), _path(accepted, highest), text % words)


def _bars(values: list[float]) -> list[float]:
    """Return the mean of every few seconds."""
    return [sum(values[i : i + BAR_S]) / BAR_S for i in range(0, len(values), BAR_S)]


def _path(bars: list[float], highest: float) -> str:
    step = CHART_WIDTH / len(bars)
    heights = [max(1.0 if bar else 0.0, CHART_HEIGHT * bar / highest) for bar in bars]
    return "".join(
        f"M{step * (n + 0.5):.0f} {CHART_HEIGHT}v-{height:.1f}"
        for n, height in enumerate(heights)
        if height
    )


def next_card(coming: Next, *, may_rehearse: bool) -> dict[str, Any]:
    """Return the next sale, with what is to be ready before it starts."""
    sale = coming.sale
    return {
        "title": sale.voucher.local_title,
        "url": reverse("admin:vouchers_seckillvoucher_change", args=[sale.pk]),
        "board_url": reverse("admin:sale-board", args=[sale.pk]),
        "starts_at": sale.begins_at,
        "starts_at_ms": epoch_ms(sale.begins_at),
        "stock": grouped(sale.stock),
        "checks": [_loaded(coming), _rehearsed(coming, may_rehearse=may_rehearse)],
    }


def _loaded(coming: Next) -> tuple[str, str, str]:
    board_url = reverse("admin:sale-board", args=[coming.sale.pk])
    if coming.is_loaded is None:
        return "warn", gettext("Unknown whether it is loaded: Redis is not responding"), board_url
    if coming.is_loaded:
        return "good", gettext("Loaded"), board_url
    return "warn", gettext("Not loaded yet; its first visitor will load it"), board_url


def _rehearsed(coming: Next, *, may_rehearse: bool) -> tuple[str, str, str]:
    rehearsal = coming.rehearsal
    if rehearsal is None:
        url = reverse("admin:sale-rehearse", args=[coming.sale.pk]) if may_rehearse else ""
        return "warn", gettext("Not rehearsed"), url
    url = reverse("admin:orders_rehearsal_change", args=[rehearsal.pk]) if may_rehearse else ""
    if rehearsal.running:
        return "warn", gettext("The rehearsal is running"), url
    verdict, outcome = headline(rehearsal)
    text = gettext("Rehearsed. %(verdict)s") % {"verdict": verdict}
    return "good" if outcome == "right" else "warn", text, url


def figures(trade: Trade | None, *, may_see_payments: bool) -> list[Figure]:
    """Return the day's orders, revenue and refunds."""
    orders_url = reverse("admin:orders_voucherorder_changelist")
    payments_url = reverse("admin:orders_payment_changelist")
    paid_url = payments_url if may_see_payments else orders_url
    if trade is None:
        unknown = gettext("unknown at the moment")
        words = {
            gettext("Orders"): orders_url,
            gettext("Revenue"): paid_url,
            gettext("Refunds"): f"{orders_url}?status__exact=refunded",
        }
        return [Figure(name, NO_VALUE, note=unknown, url=url) for name, url in words.items()]
    paid = ngettext("%(count)s payment", "%(count)s payments", trade.paid)
    refunded = ngettext("%(count)s refund", "%(count)s refunds", trade.refunded)
    return [
        replace(count(gettext("Orders"), trade.orders, gettext("today")), url=orders_url),
        replace(
            yuan(gettext("Revenue"), trade.paid_cents, paid % {"count": grouped(trade.paid)}),
            url=f"{paid_url}?status__exact=paid",
        ),
        replace(
            yuan(
                gettext("Refunds"),
                trade.refunded_cents,
                refunded % {"count": grouped(trade.refunded)},
            ),
            url=f"{orders_url}?status__exact=refunded",
        ),
    ]


# --- What needs attention -------------------------------------------------------------------------


def alerts(today: Today) -> list[Alert]:
    """Return what needs attention, the most urgent first."""
    worries = today.worries
    system = reverse("admin:system")
    alerts = [
        Alert("bad", gettext("%(part)s does not respond") % {"part": PARTS[it]}, system)
        for it in worries.parts
    ]
    alerts += [Alert("bad", text, f"{system}#queues") for text in late_texts(worries.late)]
    alerts += [_board_alert(board) for board in worries.boards]
    alerts += _counted(worries)
    alerts += [Alert("warn", text, f"{system}#checks") for text in worries.checks]
    return alerts


def late_texts(late: Mapping[str, float]) -> list[str]:
    """Return a sentence for each queue that is late."""
    sentences = {
        "payments": gettext(
            "Checks of payments are %(time)s late. Is a worker running for the queue “payments”?"
        ),
        "webhooks": gettext(
            "Webhooks are %(time)s late. Is a worker running for the queue “webhooks”?"
        ),
    }
    times = {name: duration(dt.timedelta(seconds=late_s)) for name, late_s in late.items()}
    return [sentences[name] % {"time": time} for name, time in times.items()]


def _board_alert(board: Board) -> Alert:
    url, text = reverse("admin:sale-board", args=[board.sale.pk]), alert_of(board)["text"]
    if not text:
        words = {"verdict": sum_verdict(board.sum)["text"]}
        text = gettext("The balance does not add up: %(verdict)s") % words
    return Alert("bad", f"{board.sale.voucher.local_title}: {text}", url)


def _counted(worries: Worries) -> list[Alert]:
    orders = reverse("admin:orders_voucherorder_changelist")
    payments = reverse("admin:orders_payment_changelist")
    jobs = reverse("admin:orders_orderjob_changelist")
    system = reverse("admin:system")
    rows = (
        (
            worries.set_aside,
            ngettext(
                "%(count)s order could not be written",
                "%(count)s orders could not be written",
                worries.set_aside,
            ),
            f"{orders}?status__exact=refused&reason__exact=failed",
        ),
        (
            worries.payments,
            ngettext(
                "%(count)s payment has a problem",
                "%(count)s payments have a problem",
                worries.payments,
            ),
            f"{payments}?status__exact=open",
        ),
        (
            worries.refunds,
            ngettext(
                "%(count)s refund has been under way for more than 10 minutes",
                "%(count)s refunds have been under way for more than 10 minutes",
                worries.refunds,
            ),
            f"{payments}?status__exact=refunding",
        ),
        (
            worries.differences,
            ngettext(
                "%(count)s payment differs from the provider's list",
                "%(count)s payments differ from the providers' lists",
                worries.differences,
            ),
            reverse("admin:orders_settlementdifference_changelist"),
        ),
        (
            worries.webhooks,
            ngettext(
                "%(count)s webhook is switched off because it kept failing",
                "%(count)s webhooks are switched off because they kept failing",
                worries.webhooks,
            ),
            reverse("admin:api_webhookendpoint_changelist"),
        ),
        (
            worries.mails,
            ngettext(
                "%(count)s email could not be sent yet",
                "%(count)s emails could not be sent yet",
                worries.mails,
            ),
            f"{system}#mails",
        ),
        (
            worries.jobs,
            ngettext(
                "%(count)s job makes no progress", "%(count)s jobs make no progress", worries.jobs
            ),
            f"{jobs}?status__exact=running",
        ),
    )
    return [
        Alert("warn", text % {"count": _at_most(count)}, url) for count, text, url in rows if count
    ]


def _at_most(count: int) -> str:
    return f"{MOST - 1}+" if count >= MOST else grouped(count)
