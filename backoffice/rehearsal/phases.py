"""The phases of a rehearsal: prepare, buy, drain, clear up; a step takes some seconds at most."""

from __future__ import annotations

import datetime as dt
import logging
from copy import copy
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.db.models import F
from django.urls import reverse
from django.utils.translation import gettext_noop

from backoffice.rehearsal.buyers import (
    BUYERS_AT_ONCE,
    Crowd,
    Told,
    buy,
    buyers_of,
    first_order_id,
    make_buyers,
)
from backoffice.rehearsal.cleanup import clear_shadow
from backoffice.rehearsal.crowd import BadAddress, NoWebServer, check_web
from backoffice.rehearsal.verdict import find_verdict
from orders.models import Rehearsal, RehearsalPhase, VoucherOrder
from seckill_site.clock import epoch_ms
from seckill_site.failpoints import failpoint
from vouchers.catalogue.sales import create_sale, terms_of
from vouchers.inventory.rebuild import load_sale, snapshot_or_load
from vouchers.models import SaleStage, SeckillVoucher

logger = logging.getLogger(__name__)

WINDOW = dt.timedelta(hours=1)
AHEAD = dt.timedelta(minutes=1)
"""So long before its making the shadow has begun: the clock of Redis may be another's."""

PAY_WITHIN_S = 24 * 3600
"""No order of a shadow expires while it is there."""

FIRE_S = 2.0
"""For how long one step sends requests."""

POLL_S = 0.5
DRAIN_PATIENCE = dt.timedelta(seconds=30)
"""So long no order at all may be written while some are pending, before the rehearsal gives up."""

NO_WEB_SERVER = gettext_noop("no web server of this shop responds at this address")
ANOTHER_SHOP = gettext_noop("the web server at this address does not know this sale")
NOT_DRAINED = gettext_noop(
    "no order was written for 30 seconds while some were pending: is a worker running?"
)
NOTHING_BOUGHT = gettext_noop("no buyer was accepted")

_FOREIGN = {"bad_token", "not_found", "invalid", "301", "302", "307", "308", "400", "403", "404"}
"""What a web server says that has another key, another database or another name."""


class Superseded(Exception):
    """Somebody else has noted the step that this process was at, or has cancelled."""


def do_step(rehearsal: Rehearsal, now: dt.datetime, clicks_at_once: int) -> float:
    """Do one step, and return how many seconds later the next is due."""
    match RehearsalPhase(rehearsal.phase):
        case RehearsalPhase.PREPARING:
            return _prepare(rehearsal, now)
        case RehearsalPhase.BUYING:
            return _buy(rehearsal, now, clicks_at_once)
        case RehearsalPhase.DRAINING:
            return _drain(rehearsal, now)
        case _:
            return _clear(rehearsal, now)


def note_step(rehearsal: Rehearsal, now: dt.datetime, **changes: Any) -> None:
    """Write down a step; in a transaction, the row is held until its end.

    :raises Superseded: somebody else has written meanwhile.
    """
    found = Rehearsal.objects.filter(pk=rehearsal.pk, turn=rehearsal.turn, running=True)
    if not found.update(turn=F("turn") + 1, changed_at=now, **changes):
        raise Superseded
    rehearsal.turn += 1
    for name, value in changes.items():
        setattr(rehearsal, name, value)


def _give_up(rehearsal: Rehearsal, now: dt.datetime, problem: str) -> float:
    note_step(rehearsal, now, phase=RehearsalPhase.CLEARING, done=0, problem=problem)
    return 0.0


def _shadow(rehearsal: Rehearsal) -> SeckillVoucher:
    """Return the shadow sale, which is there until it is cleared up."""
    assert rehearsal.shadow_id is not None
    return SeckillVoucher.objects.get(pk=rehearsal.shadow_id)


def _prepare(rehearsal: Rehearsal, now: dt.datetime) -> float:
    """Make the shadow sale, then its buyers, some at a time."""
    if rehearsal.shadow_id is None:
        try:
            check_web(url=rehearsal.url, path=reverse("healthz"))
        except (NoWebServer, BadAddress) as error:
            logger.warning("%s at %s: %s", rehearsal, rehearsal.url, error)
            return _give_up(rehearsal, now, NO_WEB_SERVER)
        _make_shadow(rehearsal, now)
    elif rehearsal.done < rehearsal.buyers:
        _make_buyers(rehearsal, rehearsal.shadow_id, now)
    else:
        load_sale(sale_id=rehearsal.shadow_id)
        told = Told.of(rehearsal.crowd)
        told.first_order_id = first_order_id(buyers=rehearsal.buyers)
        note_step(rehearsal, now, phase=RehearsalPhase.BUYING, done=0, crowd=told.as_json())
    return 0.0


def _make_shadow(rehearsal: Rehearsal, now: dt.datetime) -> None:
    """Copy the sale and its voucher; all of the shadow's keys and rows are its own."""
    source = SeckillVoucher.objects.select_related("voucher").get(pk=rehearsal.seckill_voucher_id)
    begins_at = (now - AHEAD).replace(microsecond=0)
    terms = replace(
        terms_of(source),
        stock=rehearsal.stock,
        begins_at=begins_at,
        ends_at=now + WINDOW,
        paused=False,
        pay_within_s=PAY_WITHIN_S,
        stage=SaleStage.REHEARSAL,
    )
    voucher = copy(source.voucher)
    voucher.pk, voucher._state = None, copy(voucher._state)
    voucher._state.adding = True
    voucher.title = f"[{rehearsal}] {voucher.title}"[:120]
    with transaction.atomic():
        voucher.save(force_insert=True)
        shadow = create_sale(voucher=voucher, terms=terms)
        note_step(rehearsal, now, shadow_id=shadow.pk)
    failpoint("rehearse.copied")


def _make_buyers(rehearsal: Rehearsal, shadow_id: int, now: dt.datetime) -> None:
    first, done = rehearsal.done, min(rehearsal.done + BUYERS_AT_ONCE, rehearsal.buyers)
    with transaction.atomic():
        note_step(rehearsal, now, done=done)
        make_buyers(shadow_id=shadow_id, numbers=range(first, done))
    failpoint("rehearse.peopled")


def _buy(rehearsal: Rehearsal, now: dt.datetime, clicks_at_once: int) -> float:
    """Let the crowd click for some seconds."""
    told = Told.of(rehearsal.crowd)
    crowd = Crowd(
        shadow=_shadow(rehearsal),
        buyers=rehearsal.buyers,
        doubles=rehearsal.duplicates,
        connections=rehearsal.connections,
        url=rehearsal.url,
    )
    pause_s = buy(crowd=crowd, told=told, at_once=clicks_at_once, for_s=FIRE_S)
    failpoint("rehearse.fired")
    if told.answers and told.answers.keys() <= _FOREIGN:
        return _give_up(rehearsal, now, ANOTHER_SHOP)
    changes: dict[str, Any] = {"done": told.answered}
    if told.answered == crowd.clicks:
        told.waits_since_ms = epoch_ms(now)
        changes |= {"phase": RehearsalPhase.DRAINING, "done": 0}
    note_step(rehearsal, now, crowd=told.as_json(), **changes)
    return pause_s


def _drain(rehearsal: Rehearsal, now: dt.datetime) -> float:
    """Look how far the workers are; at the end of it, find the verdict."""
    told, shadow = Told.of(rehearsal.crowd), _shadow(rehearsal)
    pending = snapshot_or_load(sale_id=shadow.pk).pending
    written = VoucherOrder.objects.filter(seckill_voucher=shadow).count()
    if written != told.written:
        told.written, told.waits_since_ms = written, epoch_ms(now)
    waited = dt.timedelta(milliseconds=epoch_ms(now) - told.waits_since_ms)
    if pending and waited < DRAIN_PATIENCE:
        note_step(rehearsal, now, done=written, crowd=told.as_json())
        return POLL_S
    failpoint("rehearse.drained")
    verdict = find_verdict(rehearsal=rehearsal, shadow=shadow, told=told, drained=not pending)
    problem = NOT_DRAINED if pending else "" if verdict.accepted else NOTHING_BOUGHT
    failpoint("rehearse.judged")
    note_step(
        rehearsal,
        now,
        phase=RehearsalPhase.CLEARING,
        done=0,
        verdict=verdict.as_json(),
        problem=problem,
    )
    return 0.0


def _clear(rehearsal: Rehearsal, now: dt.datetime) -> float:
    """Clear up a bit more; at the end of it, the rehearsal is over."""
    shadow_id = rehearsal.shadow_id
    if shadow_id is not None and not clear_shadow(shadow_id=shadow_id, now=now):
        left = buyers_of(shadow_id=shadow_id).count()
        note_step(rehearsal, now, done=max(0, rehearsal.buyers - left))
        return POLL_S
    failpoint("rehearse.cleared")
    verdict = rehearsal.verdict and {**rehearsal.verdict, "cleared": True}
    phase = RehearsalPhase.FAILED if rehearsal.problem else RehearsalPhase.DONE
    note_step(
        rehearsal, now, phase=phase, running=None, shadow_id=None, crowd={}, verdict=verdict, done=0
    )
    return 0.0
