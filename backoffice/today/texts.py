"""Today in words: what its template shows, for the first view and for each refresh."""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, pgettext

from backoffice.board.actions import offered
from backoffice.board.snapshot import Board, Pace
from backoffice.board.texts import alert_of, main_number, rate_text, state_of, sum_verdict
from backoffice.figures import Figure, count, yuan
from backoffice.rehearsal.texts import headline
from backoffice.revenue import revenue_figures
from backoffice.today.figures import MOST, Next, Rights, Today, Trade, Worries
from seckill_site.broker.heartbeats import Heartbeat, State
from seckill_site.clocks.machine import epoch_ms
from seckill_site.formatting import NO_VALUE, duration, grouped, time_window, timestamp, utc_offset
from seckill_site.web.text_files import counted, read_texts
from vouchers.admin.sale_list import TONES
from vouchers.templatetags.buyer_texts import DAYS

_TEXTS = read_texts(Path(__file__).with_suffix(".toml"))

PARTS = _TEXTS["parts"]
"""The parts of the system that are probed."""

SENTENCES = {"days": DAYS, **_TEXTS["page"]}

MOST_BEATS = 5
"""The processes and tasks that Today names; System names all."""

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
    sale, main = board.sale, main_number(board)
    return {
        "sale": sale,
        "actions": offered(board) if may_run else [],
        "tone": TONES.get(board.state, ""),
        "state": state_of(board)["text"],
        "left": grouped(main),
        "taken": sale.stock - main if main is not None else 0,
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
        "sale": sale,
        "window": f"{time_window(sale.begins_at, sale.ends_at)} {utc_offset(sale.begins_at)}",
        "starts_at_ms": epoch_ms(sale.begins_at),
        "checks": [_loaded(coming), _rehearsed(coming, may_rehearse=may_rehearse)],
    }


def _loaded(coming: Next) -> tuple[str, str, str]:
    board_url = reverse("admin:sale-board", args=[coming.sale.pk])
    if coming.is_loaded is None:
        return "warn", gettext("Unknown whether it is ready: Redis is not responding"), board_url
    if coming.is_loaded:
        return "good", gettext("Ready to sell"), board_url
    return "warn", gettext("Not ready yet; its first visitor makes it ready"), board_url


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


def figures(today: Today, *, rights: Rights) -> list[Figure]:
    orders_url = reverse("admin:orders_voucherorder_changelist")
    paid_url = reverse("admin:orders_payment_changelist") if rights.payments else orders_url
    urls = [
        f"{orders_url}?day={timezone.localdate(today.now)}",
        f"{orders_url}?status__exact=used",
        f"{paid_url}?status__exact=paid",
        f"{orders_url}?status__in=refunding,refunded",
        reverse("admin:reports") if rights.sales else orders_url,
    ]
    known = today.trade or Trade(0, 0, 0, 0, 0, 0)
    gross, refunds, net = revenue_figures(known.revenue)
    shown = [
        count(gettext("Orders"), known.orders, gettext("today")),
        count(pgettext("count", "Redeemed"), known.redeemed, gettext("today")),
        replace(gross, note=_TEXTS["trade"]["paid"] % counted(known.paid)),
        replace(refunds, note=_TEXTS["trade"]["refunded"] % counted(known.refunded)),
        replace(net, note=gettext("today")),
    ]
    if today.trade is None:
        unknown = gettext("unknown at the moment")
        shown = [replace(it, shown=NO_VALUE, note=unknown) for it in shown]
    return [replace(it, url=url) for it, url in zip(shown, urls, strict=True)]


def refund_figures(refunds: Mapping[str, tuple[int, int]]) -> list[Figure]:
    """Return the refunds that wait for providers, and what falls due this month."""
    orders_url, figures = reverse("admin:orders_voucherorder_changelist"), []
    for name, query in (("under_way", "status__exact=refunding"), ("due", "refund=due")):
        (number, cents), texts = refunds[name], _TEXTS["refunds"][name]
        figure = yuan(str(texts["label"]), cents, texts["note"] % counted(number))
        figures.append(replace(figure, url=f"{orders_url}?{query}"))
    return figures


# --- What needs attention -------------------------------------------------------------------------


def alerts(today: Today, *, rights: Rights) -> list[Alert]:
    """Return what needs attention, the most urgent first."""
    worries = today.worries
    system = reverse("admin:system") if rights.system else ""
    alerts = [
        Alert("bad", gettext("%(part)s does not respond") % {"part": PARTS[it]}, system)
        for it in worries.parts
    ]
    rows = processes(worries.beats, now=today.now)
    away = [_TEXTS["alert"]["away"] % it for it in rows if it["tone"] == "bad"]
    alerts += [Alert("bad", text, f"{system}#processes") for text in away[:MOST_BEATS]]
    alerts += [Alert("bad", text, f"{system}#queues") for text in late_texts(worries.late)]
    alerts += [board_alert(board) for board in worries.boards]
    alerts += _counted(worries, system)
    checks = [_TEXTS["alert"]["check"] % {"text": text} for text in worries.checks]
    alerts += [Alert("warn", text, f"{system}#checks") for text in checks]
    return alerts


def processes(beats: Sequence[Heartbeat], *, now: dt.datetime) -> Iterator[dict[str, Any]]:
    """Yield the workers of each queue, beat, and the regular tasks that are late, in words."""
    texts = _TEXTS["meanwhile"]
    for beat in beats:
        kind, _, name = beat.name.partition(":")
        if kind != "task" or beat.is_missing:
            age = dt.timedelta(seconds=beat.age_s or 0)
            said = _TEXTS["task" if kind == "task" else "process"][beat.state]
            meanwhile = texts.get(name or kind, texts["task"])
            if beat.age_s is not None:
                at = f"{timestamp(now - age)} {utc_offset(now - age)}"
                meanwhile = _TEXTS["alert"]["last"] % {"meanwhile": meanwhile, "at": at}
            yield {
                "name": _TEXTS["names"][name.rpartition(".")[2] or kind],
                "tone": {State.RUNS: "good", State.UNKNOWN: "quiet"}.get(beat.state, "bad"),
                "said": said % {"time": duration(age)},
                "meanwhile": meanwhile,
            }


def late_texts(late: Mapping[str, float]) -> list[str]:
    times = {name: duration(dt.timedelta(seconds=late_s)) for name, late_s in late.items()}
    return [_TEXTS["late"][name] % {"time": time} for name, time in times.items()]


def board_alert(board: Board) -> Alert:
    """Return what is wrong with a sale."""
    url, text = reverse("admin:sale-board", args=[board.sale.pk]), alert_of(board)["text"]
    if not text:
        words = {"verdict": sum_verdict(board.sum)["text"]}
        text = gettext("The balance does not add up: %(verdict)s") % words
    title = board.sale.voucher.local_title + pgettext("after a label", ": ")
    return Alert("bad", f"{title}{text}", url)


def _counted(worries: Worries, system: str) -> list[Alert]:
    orders = reverse("admin:orders_voucherorder_changelist")
    payments = reverse("admin:orders_payment_changelist")
    jobs = reverse("admin:orders_orderjob_changelist")
    urls = {
        "set_aside": f"{orders}?status__exact=refused&reason__exact=failed",
        "overdue": f"{orders}?status__exact=unpaid",
        "payments": f"{payments}?status__exact=open",
        "refused": f"{payments}?status__exact=refused",
        "refunds": f"{payments}?status__exact=refunding",
        "disputes": f"{payments}?status__exact=disputed",
        "decisions": f"{payments}?problem=yes",
        "differences": reverse("admin:orders_settlementdifference_changelist"),
        "webhooks": reverse("admin:api_webhookendpoint_changelist"),
        "mails": f"{system}#mails",
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
