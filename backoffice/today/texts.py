"""Today in words: what its template shows, for the first view and for each refresh."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext

from backoffice.board.actions import offered
from backoffice.board.snapshot import Board, Pace
from backoffice.board.texts import alert_of, rate_text, state_of, sum_verdict
from backoffice.figures import Figure, count, yuan
from backoffice.rehearsal.texts import headline
from backoffice.today.figures import MOST, Next, Today, Trade, Worries
from seckill_site.clocks.machine import epoch_ms
from seckill_site.formatting import NO_VALUE, duration, grouped
from seckill_site.web.text_files import counted, read_texts
from vouchers.admin.sale_list import TONES
from vouchers.templatetags.buyer_texts import DAYS

_TEXTS = read_texts(Path(__file__).with_suffix(".toml"))

PARTS = _TEXTS["parts"]
"""The parts of the system that are probed."""

SENTENCES = {"days": DAYS, **_TEXTS["page"]}

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
    return Spark(_path(requests, highest), _path(accepted, highest), _TEXTS["spark"] % words)


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
    orders_url = reverse("admin:orders_voucherorder_changelist")
    paid_url = reverse("admin:orders_payment_changelist") if may_see_payments else orders_url
    orders, revenue, refunds = gettext("Orders"), gettext("Revenue"), gettext("Refunds")
    refunds_url = f"{orders_url}?status__exact=refunded"
    if trade is None:
        unknown = gettext("unknown at the moment")
        urls = {orders: orders_url, revenue: paid_url, refunds: refunds_url}
        return [Figure(name, NO_VALUE, note=unknown, url=url) for name, url in urls.items()]
    paid = _TEXTS["trade"]["paid"] % counted(trade.paid)
    refunded = _TEXTS["trade"]["refunded"] % counted(trade.refunded)
    return [
        replace(count(orders, trade.orders, gettext("today")), url=orders_url),
        replace(yuan(revenue, trade.paid_cents, paid), url=f"{paid_url}?status__exact=paid"),
        replace(yuan(refunds, trade.refunded_cents, refunded), url=refunds_url),
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
    times = {name: duration(dt.timedelta(seconds=late_s)) for name, late_s in late.items()}
    return [_TEXTS["late"][name] % {"time": time} for name, time in times.items()]


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
    urls = {
        "set_aside": f"{orders}?status__exact=refused&reason__exact=failed",
        "payments": f"{payments}?status__exact=open",
        "refused": f"{payments}?status__exact=refused",
        "refunds": f"{payments}?status__exact=refunding",
        "disputes": f"{payments}?status__exact=disputed",
        "decisions": f"{payments}?problem=yes",
        "differences": reverse("admin:orders_settlementdifference_changelist"),
        "webhooks": reverse("admin:api_webhookendpoint_changelist"),
        "mails": f"{reverse('admin:system')}#mails",
        "jobs": f"{jobs}?status__exact=running",
    }
    counts = {name: getattr(worries, name) for name in urls}
    alerts = []
    for name, number in counts.items():
        if number:
            count = f"{MOST - 1}+" if number >= MOST else grouped(number)
            text = _TEXTS["counted"][name] % {"number": number, "count": count}
            alerts.append(Alert("warn", text, urls[name]))
    return alerts
