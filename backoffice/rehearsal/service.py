"""Rehearsals: a shadow copy of a sale, bought by a crowd of its own on the running system.

The job engine runs a rehearsal step by step. The last phase always cleans up.
"""

import datetime as dt
import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext_lazy as _

from backoffice.job_engine import LEASE, RETRY_S, UNAVAILABLE, Turn, do_turn, resume
from backoffice.rehearsal.buyers import AnswerLog, count_clicks
from backoffice.rehearsal.cleanup import clear_shadow
from backoffice.rehearsal.http_client import Address
from backoffice.rehearsal.phases import do_step
from orders.models import Rehearsal, RehearsalPhase
from orders.placing.publishing import publish
from seckill_site.clocks.database import database_now
from seckill_site.web.clients import client_address
from vouchers.catalogue.staff_texts import StaffRefusal
from vouchers.inventory.rebuild import current_run_id
from vouchers.models import SaleStage, SeckillVoucher

logger = logging.getLogger(__name__)

MAX_BUYERS = 100_000
MAX_CONNECTIONS = 1_000

CLICKS_AT_ONCE = 1_000
"""Clicks that a worker sends in one step."""

MAX_INTERRUPTIONS = 5
GIVE_UP_S = 60.0
"""Seconds that a process running all steps waits for Redis or the database."""

CANCELLED = gettext_noop("it was cancelled")
DIED = gettext_noop("its process died")
INTERRUPTED = gettext_noop("its process died too often; the worker's log has the reason")


class AnotherRehearsal(StaffRefusal):
    """A rehearsal is running, and only one can run at a time."""

    def __init__(self, rehearsal_id: int) -> None:
        text = gettext("Rehearsal #%(number)s is running. Only one can run at a time.")
        super().__init__(text % {"number": rehearsal_id})
        self.rehearsal_id = rehearsal_id


class NotRunning(StaffRefusal):
    """The rehearsal is over or cleaning up."""

    message = _("It has already finished or is cleaning up.")


class CrowdIsLimited(StaffRefusal):
    """The crowd is one local address, and the limits of an address would refuse most of it."""

    message = _(
        "The crowd would come from this machine, whose requests the limits per address would "
        "refuse. Add 127.0.0.0/8 and ::1/128 to SECKILL_UNLIMITED_NETWORKS for the rehearsal."
    )


class Stuck(Exception):
    """Redis or the database is unavailable for too long; the rest is cleaned up later."""


def publish_rehearsal(*, rehearsal_id: int, turn: int, in_s: float = 0.0) -> None:
    """Publish the next step of a rehearsal; if that fails, beat resumes it."""
    publish("orders.tasks.work_at_rehearsal", in_s=in_s, rehearsal_id=rehearsal_id, turn=turn)


def start_rehearsal(
    *,
    sale_id: int,
    buyers: int,
    stock: int | None,
    duplicates: int,
    connections: int,
    url: str,
    by: int | None = None,
) -> Rehearsal:
    """Create a rehearsal; the caller runs its steps or publishes the first.

    ``duplicates`` percent of the buyers click twice; if ``stock`` is None, it is that of the sale.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises AnotherRehearsal: one is running.
    :raises BadAddress: the address is not one of a web server.
    :raises CrowdIsLimited: the limits per address would refuse most of the crowd.
    :raises LedgerUnavailable: Redis does not respond.
    """
    sale = SeckillVoucher.objects.exclude(stage=SaleStage.REHEARSAL).get(pk=sale_id)
    is_limited = client_address({"REMOTE_ADDR": "127.0.0.1"}) != ""
    if Address.of(url).is_local and is_limited and settings.SECKILL_REQUESTS_PER_ADDRESS:
        raise CrowdIsLimited
    current_run_id()
    try:
        with transaction.atomic():
            return Rehearsal.objects.create(
                seckill_voucher=sale,
                buyers=buyers,
                stock=sale.stock if stock is None else stock,
                duplicates=duplicates,
                connections=connections,
                url=url,
                actor_id=by,
            )
    except IntegrityError as error:
        running = Rehearsal.objects.filter(running=True).values_list("pk", flat=True).first()
        if running is None:
            raise
        raise AnotherRehearsal(running) from error


def cancel_rehearsal(*, rehearsal_id: int, why: str = CANCELLED) -> Rehearsal:
    """Cancel a rehearsal, so that it cleans up; the caller runs its steps.

    :raises NotRunning: it is over or cleaning up.
    """
    running = Rehearsal.objects.filter(pk=rehearsal_id, running=True)
    running = running.exclude(phase=RehearsalPhase.CLEARING)
    turn, now = F("turn") + 1, database_now()
    # Without a shadow sale there is nothing to clean up.
    ended = running.filter(shadow_id=None).update(
        phase=RehearsalPhase.FAILED, running=None, problem=why, turn=turn, changed_at=now, crowd={}
    )
    if not ended and not running.update(
        phase=RehearsalPhase.CLEARING, done=0, problem=why, turn=turn, changed_at=now
    ):
        raise NotRunning
    return Rehearsal.objects.get(pk=rehearsal_id)


def busy_sales(*, now: dt.datetime) -> list[SeckillVoucher]:
    """Return the public sales that are open or start soon: a rehearsal takes capacity from them."""
    soon = now + dt.timedelta(minutes=10)
    sales = SeckillVoucher.objects.filter(stage=SaleStage.PUBLIC, begins_at__lte=soon)
    return list(sales.filter(ends_at__gt=now).select_related("voucher").order_by("begins_at"))


def progress(rehearsal: Rehearsal) -> tuple[int, int]:
    """Return how much of the phase is done, and the total, which is 0 if unknown."""
    clicks = count_clicks(buyers=rehearsal.buyers, duplicates=rehearsal.duplicates)
    accepted = len(set(AnswerLog.of(rehearsal.crowd).accepted))
    totals = {
        RehearsalPhase.PREPARING: rehearsal.buyers,
        RehearsalPhase.BUYING: clicks,
        RehearsalPhase.DRAINING: accepted,
        RehearsalPhase.CLEARING: rehearsal.buyers if rehearsal.shadow_id else 0,
    }
    total = totals.get(RehearsalPhase(rehearsal.phase), 0)
    return min(rehearsal.done, total), total


def take_turn(
    *, rehearsal_id: int, turn: int, now: dt.datetime, clicks_at_once: int = CLICKS_AT_ONCE
) -> Turn | None:
    due = Rehearsal.objects.filter(pk=rehearsal_id, turn=turn, running=True)
    return do_turn(due, partial(do_step, clicks_at_once=clicks_at_once), now=now)


def take_turns(*, rehearsal_id: int, clicks_at_once: int = CLICKS_AT_ONCE) -> Iterator[Rehearsal]:
    """Run all steps in this process; yield the rehearsal before each and at the end.

    Continue even if the rehearsal is cancelled or another process takes it over.

    :raises Stuck: Redis or the database is unavailable for too long.
    """
    rehearsal = Rehearsal.objects.get(pk=rehearsal_id)
    moved_at = time.monotonic()
    while rehearsal.running:
        yield rehearsal
        turn = rehearsal.turn
        step = take_turn(
            rehearsal_id=rehearsal_id, turn=turn, now=database_now(), clicks_at_once=clicks_at_once
        )
        time.sleep(step.pause_s if step else 0)
        rehearsal.refresh_from_db()
        if rehearsal.turn != turn:
            moved_at = time.monotonic()
        elif time.monotonic() - moved_at > GIVE_UP_S:
            raise Stuck
    yield rehearsal


def resume_rehearsals(*, now: dt.datetime) -> list[Turn]:
    """Resume each abandoned rehearsal; one that was interrupted too often cleans up.

    A shadow sale whose rehearsal was deleted is cleaned up as well.
    """
    for shadow_id in orphans(now=now):
        try:
            clear_shadow(shadow_id=shadow_id, now=now)
        except UNAVAILABLE as error:
            logger.warning("the shadow sale %s is not cleared up now: %r", shadow_id, error)
    return resume(Rehearsal.objects.all(), now=now, changes=_note_interruption)


def _note_interruption(rehearsal: Rehearsal) -> dict[str, Any]:
    log = AnswerLog.of(rehearsal.crowd)
    log.interruptions += rehearsal.turn > 0  # at turn 0 it was never started
    changes: dict[str, Any] = {"crowd": log.as_json()}
    if log.interruptions > MAX_INTERRUPTIONS and not rehearsal.problem:
        changes |= {"phase": RehearsalPhase.CLEARING, "done": 0, "problem": INTERRUPTED}
    return changes


def clear_leftovers() -> Iterator[str]:
    """Clean up after dead processes; yield a name for each rehearsal or shadow sale.

    :raises AnotherRehearsal: one is running, and its process is alive.
    :raises Stuck: Redis or the database is unavailable for too long.
    """
    running = Rehearsal.objects.filter(running=True).first()
    if running:
        _wait_for_lease(running)
        with suppress(NotRunning):
            cancel_rehearsal(rehearsal_id=running.pk, why=DIED)
        *_, cleared = take_turns(rehearsal_id=running.pk)
        yield str(cleared)
    for shadow_id in orphans(now=database_now()):
        while not clear_shadow(shadow_id=shadow_id, now=database_now()):
            time.sleep(RETRY_S)
        yield f"#{shadow_id}"


def _wait_for_lease(rehearsal: Rehearsal) -> None:
    """Wait until the lease has expired; raise AnotherRehearsal if a step is recorded meanwhile."""
    turn = rehearsal.turn
    while rehearsal.changed_at > database_now() - LEASE:
        time.sleep(RETRY_S)
        rehearsal.refresh_from_db()
        if rehearsal.turn != turn:
            raise AnotherRehearsal(rehearsal.pk)


def orphans(*, now: dt.datetime) -> list[int]:
    """Return the shadow sales whose rehearsal is gone."""
    running = Rehearsal.objects.filter(running=True, shadow_id__isnull=False)
    shadows = SeckillVoucher.objects.filter(stage=SaleStage.REHEARSAL, created_at__lt=now - LEASE)
    abandoned = shadows.exclude(pk__in=running.values("shadow_id"))
    return list(abandoned.order_by("pk").values_list("pk", flat=True))
