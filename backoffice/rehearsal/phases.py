"""The phases of a rehearsal, step by step: prepare, buy, drain, clean up."""

import datetime as dt
import logging
from copy import copy
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.urls import reverse
from django.utils.translation import gettext_noop

from backoffice.buyers import make_users
from backoffice.job_engine import record_step
from backoffice.rehearsal.buyers import (
    BUYERS_AT_ONCE,
    AnswerLog,
    buy,
    buyers_of,
    count_clicks,
    username_of,
)
from backoffice.rehearsal.cleanup import clear_shadow
from backoffice.rehearsal.crowd import NoWebServer, check_web
from backoffice.rehearsal.http_client import BadAddress
from backoffice.rehearsal.verdict import find_verdict
from orders.models import Rehearsal, RehearsalPhase, VoucherOrder
from orders.placing.order_ids import mint_order_ids
from seckill_site.clocks.machine import epoch_ms
from seckill_site.failpoints import failpoint
from vouchers.catalogue.sales import create_sale, terms_of
from vouchers.inventory.rebuild import load_sale, snapshot_or_load
from vouchers.models import RoomKind, SaleMode, SaleStage, SeckillVoucher

logger = logging.getLogger(__name__)

WINDOW = dt.timedelta(hours=1)
AHEAD = dt.timedelta(minutes=1)
"""The shadow sale starts this long before now, because the clock of Redis may differ."""

PAY_WITHIN_S = 24 * 3600
"""A payment deadline longer than any rehearsal: no order of a shadow sale expires."""

FIRE_S = 2.0
"""Seconds for which one step sends requests."""

POLL_S = 0.5
DRAIN_PATIENCE = dt.timedelta(seconds=30)
"""Longest time without a written order while some are pending; then the rehearsal gives up."""

NO_WEB_SERVER = gettext_noop("no web server of this shop responds at this address")
ANOTHER_SHOP = gettext_noop("the web server at this address does not know this sale")
NOT_DRAINED = gettext_noop(
    "no order was written for 30 seconds while some were pending: is a worker running?"
)
NOTHING_BOUGHT = gettext_noop("no buyer was accepted")

_WRONG_SERVER_CODES = {
    *("bad_token", "not_found", "invalid"),
    *("301", "302", "307", "308", "400", "403", "404"),
}
"""Answers of a web server with another key, another database or another name."""


def do_step(rehearsal: Rehearsal, now: dt.datetime, *, clicks_at_once: int) -> float | None:
    """Run one step and return the seconds until the next, or None after the last."""
    match RehearsalPhase(rehearsal.phase):
        case RehearsalPhase.PREPARING:
            return _prepare(rehearsal, now)
        case RehearsalPhase.BUYING:
            return _buy(rehearsal, now, clicks_at_once)
        case RehearsalPhase.DRAINING:
            return _drain(rehearsal, now)
        case _:
            return _clear(rehearsal, now)


def _give_up(rehearsal: Rehearsal, now: dt.datetime, problem: str) -> float:
    record_step(rehearsal, now=now, phase=RehearsalPhase.CLEARING, done=0, problem=problem)
    return 0.0


def _shadow(rehearsal: Rehearsal) -> SeckillVoucher:
    assert rehearsal.shadow_id is not None
    return SeckillVoucher.objects.get(pk=rehearsal.shadow_id)


def _prepare(rehearsal: Rehearsal, now: dt.datetime) -> float:
    """Create the shadow sale, then its buyers, in batches."""
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
        # One order id for each tab of each buyer.
        log = AnswerLog.of(rehearsal.crowd)
        log.first_order_id = mint_order_ids(count=2 * rehearsal.buyers)[0]
        record_step(rehearsal, now=now, phase=RehearsalPhase.BUYING, done=0, crowd=log.as_json())
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
        per_address=0,  # the crowd is one machine
        mode=SaleMode.FIRST_COME,
        room=RoomKind.OFF,  # the crowd gets its tokens beforehand, and presses at once
        needs_code=False,
        first_order_only=False,
    )
    voucher = copy(source.voucher)
    voucher.pk, voucher._state = None, copy(voucher._state)
    voucher._state.adding = True
    voucher.title = f"[{rehearsal}] {voucher.title}"[:120]
    with transaction.atomic():
        voucher.save(force_insert=True)
        shadow = create_sale(voucher=voucher, terms=terms)
        record_step(rehearsal, now=now, shadow_id=shadow.pk)
    failpoint("rehearse.copied")


def _make_buyers(rehearsal: Rehearsal, shadow_id: int, now: dt.datetime) -> None:
    first, done = rehearsal.done, min(rehearsal.done + BUYERS_AT_ONCE, rehearsal.buyers)
    with transaction.atomic():
        record_step(rehearsal, now=now, done=done)
        make_users(username_of(shadow_id=shadow_id, number=it) for it in range(first, done))
    failpoint("rehearse.peopled")


def _buy(rehearsal: Rehearsal, now: dt.datetime, clicks_at_once: int) -> float:
    """Let the crowd click for some seconds."""
    log = AnswerLog.of(rehearsal.crowd)
    pause_s = buy(
        rehearsal=rehearsal,
        shadow=_shadow(rehearsal),
        log=log,
        at_once=clicks_at_once,
        for_s=FIRE_S,
    )
    failpoint("rehearse.fired")
    if log.answers and log.answers.keys() <= _WRONG_SERVER_CODES:
        return _give_up(rehearsal, now, ANOTHER_SHOP)
    changes: dict[str, Any] = {"done": log.answered}
    clicks = count_clicks(buyers=rehearsal.buyers, duplicates=rehearsal.duplicates)
    if log.answered == clicks:
        log.waits_since_ms = epoch_ms(now)
        changes |= {"phase": RehearsalPhase.DRAINING, "done": 0}
    record_step(rehearsal, now=now, crowd=log.as_json(), **changes)
    return pause_s


def _drain(rehearsal: Rehearsal, now: dt.datetime) -> float:
    """Check the progress of the workers; find the verdict once they are done."""
    log, shadow = AnswerLog.of(rehearsal.crowd), _shadow(rehearsal)
    pending = snapshot_or_load(sale_id=shadow.pk).pending
    written = VoucherOrder.objects.filter(seckill_voucher=shadow).count()
    if written != log.written:
        log.written, log.waits_since_ms = written, epoch_ms(now)
    waited = dt.timedelta(milliseconds=epoch_ms(now) - log.waits_since_ms)
    if pending and waited < DRAIN_PATIENCE:
        record_step(rehearsal, now=now, done=written, crowd=log.as_json())
        return POLL_S
    failpoint("rehearse.drained")
    verdict = find_verdict(rehearsal=rehearsal, shadow=shadow, log=log, drained=not pending)
    problem = NOT_DRAINED if pending else "" if verdict.accepted else NOTHING_BOUGHT
    failpoint("rehearse.judged")
    record_step(
        rehearsal,
        now=now,
        phase=RehearsalPhase.CLEARING,
        done=0,
        verdict=verdict.as_json(),
        problem=problem,
    )
    return 0.0


def _clear(rehearsal: Rehearsal, now: dt.datetime) -> float | None:
    """Continue the cleanup; end the rehearsal when nothing is left."""
    shadow_id = rehearsal.shadow_id
    if shadow_id is not None and not clear_shadow(shadow_id=shadow_id, now=now):
        left = buyers_of(shadow_id=shadow_id).count()
        record_step(rehearsal, now=now, done=max(0, rehearsal.buyers - left))
        return POLL_S
    failpoint("rehearse.cleared")
    verdict = rehearsal.verdict and {**rehearsal.verdict, "cleared": True}
    phase = RehearsalPhase.FAILED if rehearsal.problem else RehearsalPhase.DONE
    record_step(
        rehearsal,
        now=now,
        phase=phase,
        running=None,
        shadow_id=None,
        crowd={},
        verdict=verdict,
        done=0,
    )
    return None
