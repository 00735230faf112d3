"""The board as text and figures, for the first view of the page and, as JSON, for its script.

The server writes all texts, so the page and its script cannot differ.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django.utils.text import capfirst
from django.utils.translation import gettext, pgettext

from backoffice.board.snapshot import WINDOW_S, Board, Pace, SaleSum
from backoffice.revenue import Revenue, revenue_figures
from orders.models import OrderStatus
from seckill_site.clocks.machine import epoch_ms, from_epoch_ms
from seckill_site.formatting import NO_VALUE, duration, grouped, listed, timestamp, utc_offset
from seckill_site.web.text_files import counted, read_texts
from vouchers.admin.sale_list import STATES
from vouchers.catalogue.audience import RULES
from vouchers.inventory.request_stats import ACCEPTED
from vouchers.models import SaleStage, SaleState, SeckillVoucher
from vouchers.templatetags.buyer_texts import DAYS

_TEXTS = read_texts(Path(__file__).with_suffix(".toml"))
_ALERTS = _TEXTS["alerts"]


def refusal_labels(sale: SeckillVoucher) -> dict[str, Any]:
    """Return the reasons for refusing order requests of a sale, in the order of the table."""
    return _TEXTS["refusals_of_draw" if sale.is_draw else "refusals"]  # type: ignore[no-any-return]


def attempt_labels(sale: SeckillVoucher) -> dict[str, Any]:
    """Return the reasons for which a customer got none."""
    return {**refusal_labels(sale), **_TEXTS["attempts"]}


def names_of(sale: SeckillVoucher) -> dict[str, Any]:
    """Return what the figures are called: those of a draw are of entries and winners."""
    return _TEXTS["names"]["draw" if sale.is_draw else "sale"]  # type: ignore[no-any-return]


def sentences_of(sale: SeckillVoucher) -> dict[str, Any]:
    """Return the sentences of the page's script."""
    units = pgettext("count", "entries") if sale.is_draw else pgettext("count", "vouchers")
    names = names_of(sale)
    return {
        "clock": {**_TEXTS["clock"], "days": DAYS},
        **_TEXTS["page"],
        **{it: names[it] for it in ("left", "accepted", "left_over_time")},
        "units": units,
    }


def main_number(board: Board) -> int | None:
    """Return the vouchers left, or the entries of a draw; None if unknown."""
    draw, ledger = (board.sale.draw if board.sale.is_draw else None), board.snapshot
    if draw and draw.closed_at:
        return draw.entries
    if ledger is None:
        return None
    return ledger.entries if draw else ledger.remaining


def board_json(board: Board, *, actions: Sequence[str]) -> dict[str, Any]:
    """Return everything the board shows; ``actions`` are those offered to this viewer."""
    return {
        "state": state_of(board),
        "alert": alert_of(board),
        "verdict": sum_verdict(board.sum),
        "now_ms": epoch_ms(board.now),
        "begins_at_ms": epoch_ms(board.sale.begins_at),
        "ends_at_ms": epoch_ms(board.sale.ends_at),
        "left": main_number(board),
        "texts": {**_main_figures(board), **_other_figures(board)},
        "statuses": _statuses(board),
        "refusals": _refusals(board),
        "limited": [[it.subject, it.limit] for it in board.limited],
        "chart": _chart(board.pace),
        "actions": list(actions),
    }


def rate_text(value: float | None) -> str:
    """Return a rate per second, with a decimal below ten."""
    if value is None:
        return NO_VALUE
    return f"{value:,.1f}" if 0 < value < 10 else f"{value:,.0f}"


def _seconds(milliseconds: int) -> str:
    seconds = milliseconds / 1000
    text = f"{seconds:,.1f}" if seconds < 10 else f"{seconds:,.0f}"
    return gettext("%(seconds)s s") % {"seconds": text}


def state_of(board: Board) -> dict[str, str]:
    """Return the state of the sale, as a code and in words."""
    is_draft = board.sale.stage == SaleStage.DRAFT
    code = SaleStage.DRAFT if is_draft else board.state
    is_open_draw = board.sale.is_draw and code == SaleState.OPEN
    text = capfirst(str(names_of(board.sale)["open"] if is_open_draw else STATES[code]))
    if board.sale.stage == SaleStage.REHEARSAL:
        text = f"{text} ({SaleStage.REHEARSAL.label})"
    return {"code": code.value, "text": text}


def alert_of(board: Board) -> dict[str, str]:
    """Return the most serious current problem, if any."""
    if not board.ledger_answers:
        return {"code": "away", "text": str(_ALERTS["away"])}
    if board.snapshot is None:
        return {"code": "unloaded", "text": str(_ALERTS["unloaded"])}
    if number := board.snapshot.set_aside:
        text = _ALERTS["set_aside"] % counted(number)
        return {"code": "late", "text": text}
    age = {"age": _seconds(board.oldest_pending_age_ms or 0)}
    if board.is_behind:
        return {"code": "behind", "text": _ALERTS["behind"] % age}
    if board.is_late:
        return {"code": "late", "text": _ALERTS["late"] % age}
    if texts := clock_texts(board.wrong_clocks):
        return {"code": "late", "text": texts[0]}
    return {"code": "", "text": ""}


def clock_texts(wrong: Mapping[str, float], *, are_settled: bool = True) -> list[str]:
    """Say which clocks differ from Redis by how many seconds, and whether one was just set."""
    clocks = listed(f"{name} {s:+,.1f} s" for name, s in wrong.items())
    texts = [_ALERTS["clocks"] % {"clocks": clocks}] if wrong else []
    return texts if are_settled else [*texts, str(_ALERTS["clock_set"])]


def sum_verdict(balance: SaleSum | None) -> dict[str, str]:
    """Return whether the sum adds up, as a code and in words."""
    if balance is None:
        return {"code": "unknown", "text": gettext("cannot be checked now")}
    if balance.difference == 0:
        return {"code": "fits", "text": gettext("adds up")}
    if balance.in_flight:
        text = gettext("%(count)s in flight") % {"count": grouped(-balance.difference)}
        return {"code": "in_flight", "text": text}
    text = gettext("difference %(count)s") % {"count": f"{balance.difference:+,}".replace("-", "−")}
    return {"code": "off", "text": text}


def _main_figures(board: Board) -> dict[str, str]:
    """Return the four large figures, each also as a sentence."""
    ledger, pace = board.snapshot, board.pace
    labels = names_of(board.sale)["labels"]
    left, total = grouped(main_number(board)), grouped(board.sale.stock)
    pending = grouped(ledger.pending if ledger else None)
    if board.sale.is_draw:
        draw = board.sale.draw
        pending = grouped(min(draw.entries or 0, draw.units or 0) if draw.drawn_at else None)
    accepted = rate_text(pace.accepted_now if pace else None)
    requests = rate_text(pace.requests_now if pace else None)
    return {
        "left": left,
        "of_total": labels["of_total"] % {"total": total},
        "left_label": labels["left"] % {"left": left, "total": total},
        "pending": pending,
        "pending_label": labels["pending"] % {"count": pending},
        "accepted": accepted,
        "accepted_label": labels["accepted"] % {"count": accepted},
        "requests": requests,
        "requests_label": _TEXTS["requests_label"] % {"count": requests},
    }


def _other_figures(board: Board) -> dict[str, str]:
    ledger = board.snapshot
    return {
        "sum": _sum(board),
        "oldest": _oldest(board),
        "revenue": _revenue(board),
        "waiting": grouped(ledger.waiting if ledger else None),
        "room": _room(board),
        "draw": _draw(board),
        "rules": _rules(board),
        "notices": _notices(board),
        "ends": timestamp(board.sale.ends_at),
        "counted": _counted(board),
    }


def _sum(board: Board) -> str:
    balance = board.sum
    if balance is None:
        return f"{grouped(board.sale.stock)} = {NO_VALUE} + {NO_VALUE} + {grouped(board.sale.sold)}"
    terms = (balance.left, balance.pending, balance.live)
    equals = "≠" if balance.difference and not balance.in_flight else "="
    return f"{grouped(board.sale.stock)} {equals} {' + '.join(map(grouped, terms))}"


def _revenue(board: Board) -> str:
    """Return gross, refunds and net, each with its name."""
    if board.counts is None:
        return NO_VALUE
    figures = revenue_figures(Revenue(**board.counts.revenue))
    return " · ".join(f"{it.label} {it.shown}" for it in figures)


def _oldest(board: Board) -> str:
    if board.sale.is_draw:
        return gettext("with an order: %(count)s") % {"count": grouped(board.sale.sold)}
    if board.snapshot is None:
        return NO_VALUE
    if board.oldest_pending_age_ms is None:
        return gettext("nothing waiting")
    return gettext("oldest %(age)s") % {"age": _seconds(board.oldest_pending_age_ms)}


def _room(board: Board) -> str:
    """Return the length of the line, the rate, and how long whoever joins now has to wait."""
    line = board.snapshot.line if board.snapshot else None
    if line is None:
        return str(_TEXTS["room"]["closed"]) if board.snapshot else NO_VALUE
    now_ms = epoch_ms(board.now)
    wait_ms = line.terms.wait_ms(line.tail + 1, now_ms)
    words = {
        "waiting": grouped(line.length(now_ms)),
        "rate": grouped(line.terms.rate),
        "wait": NO_VALUE if wait_ms is None else duration(dt.timedelta(milliseconds=wait_ms)),
    }
    return str(_TEXTS["room"]["open"] % words)


def _draw(board: Board) -> str:
    """Return the progress of a draw; a dash for other sales."""
    if not board.sale.is_draw:
        return NO_VALUE
    draw, ledger = board.sale.draw, board.snapshot
    count = draw.entries if draw.closed_at else ledger.entries if ledger else None
    words = counted(count) | {"units": grouped(draw.units)}
    stages = ("finished", draw.finished_at), ("drawn", draw.drawn_at), ("closed", draw.closed_at)
    reached = (stage for stage, at in stages if at)
    return str(_TEXTS["draw"][next(reached, "open")] % words)


def _rules(board: Board) -> str:
    """Return how many buyers each rule has refused a purchase token."""
    counts = board.counts.refused_by_rules if board.counts else {}
    rules = (it for it in RULES.values() if it.name in counts)
    return " · ".join(f"{it.label}: {grouped(counts[it.name])}" for it in rules) or NO_VALUE


def _notices(board: Board) -> str:
    """Return how many readers asked to be told of the start and of a free unit, and were."""
    if board.counts is None:
        return NO_VALUE
    texts = []
    for kind, text in _TEXTS["notices"].items():
        asked, told = board.counts.notices.get(kind, [0, 0])
        texts.append(text % {"asked": grouped(asked), "told": grouped(told)})
    return " · ".join(texts)


def _counted(board: Board) -> str:
    if board.counts is None:
        return gettext("being counted")
    at = from_epoch_ms(board.counts.counted_at_ms)
    return gettext("counted at %(at)s") % {"at": f"{timestamp(at)} {utc_offset(at)}"}


def _statuses(board: Board) -> list[dict[str, str]]:
    statuses = board.counts.statuses if board.counts else {}
    return [
        {"status": it.value, "text": str(it.label), "count": grouped(statuses.get(it.value))}
        for it in OrderStatus
    ]


def _refusals(board: Board) -> list[dict[str, Any]]:
    """Return a row for each reason; the bars are relative to the most frequent reason."""
    lately = _by_reason(board.pace.answers if board.pace else None)
    ever = _by_reason(board.answers)
    most = max(1, *(it or 0 for it in lately.values()))
    return [
        {
            "answer": answer,
            "text": str(text),
            "lately": grouped(lately[answer]),
            "ever": grouped(ever[answer]),
            "percent": round(100 * (lately[answer] or 0) / most),
        }
        for answer, text in refusal_labels(board.sale).items()
    ]


def _by_reason(answers: Mapping[str, int] | None) -> dict[str, int | None]:
    reasons = _TEXTS["refusals"]
    if answers is None:
        return dict.fromkeys(reasons)
    known = {it: answers.get(it, 0) for it in reasons}
    others = set(answers) - set(reasons) - {ACCEPTED}
    return {**known, "other": sum(answers[it] for it in others)}


def _chart(pace: Pace | None) -> dict[str, Any] | None:
    if pace is None:
        return None
    accepted = pace.answers.get(ACCEPTED, 0)
    values = {
        "minutes": WINDOW_S // 60,
        "requests": grouped(sum(pace.answers.values())),
        "accepted": grouped(accepted),
        "most": rate_text(max(pace.requests)),
    }
    return {
        "first_s": pace.first_s,
        "requests": [round(it, 2) for it in pace.requests],
        "accepted": [round(it, 2) for it in pace.accepted],
        "summary": _TEXTS["chart"]["summary"] % values,
    }
