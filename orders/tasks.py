"""The Celery tasks of orders; each makes one domain call.

A task's name and arguments are an API: messages of an older release may still be queued.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from celery import current_app, shared_task
from celery.signals import task_failure, worker_ready
from django.db import InterfaceError, OperationalError

from accounts import old_sessions
from orders.audience import refusal_log
from orders.draws import drawing
from orders.fulfilment import reconcile as reconciling
from orders.fulfilment import removal, worker
from orders.fulfilment import sweep as sweeping
from orders.lifecycle import last_days, notices, notifications, retention, room_visits, waiting_list
from orders.payments import confirmation, expiry, refunds, sandbox, settlement, unused
from orders.payments import service as payments
from orders.placing.publishing import publish, publish_fulfilment
from seckill_site.broker.messages import publish_options
from seckill_site.broker.pace import note_life
from seckill_site.clocks.database import database_now
from seckill_site.clocks.steps import ClocksUnsettled, settled_clocks
from seckill_site.clocks.watch import report_clocks
from seckill_site.redis import cached_facts
from vouchers.inventory.keys import NewerFormat
from vouchers.inventory.passes import note_writing
from vouchers.inventory.rebuild import close_restored
from vouchers.inventory.request_stats import store_request_counts
from vouchers.inventory.reservations import set_kick
from vouchers.inventory.restart_watch import rebuild_after_restart

CUT_OFF_S = 3.0
"""The time for which a process without a database takes no task, longer than between sweeps."""


@task_failure.connect
def leave_tasks_to_others(*, exception: BaseException, **_: Any) -> None:
    """Hold a process back that cannot reach the database: it would fail the most tasks of all."""
    if isinstance(exception, OperationalError | InterfaceError):
        time.sleep(CUT_OFF_S)


TURN_S = 0.2
"""The time after which the rest of a group waits behind what has come, such as an order."""


@shared_task(name="orders.tasks.run_passes")
def run_passes(*, names: list[str], **kwargs: Any) -> None:
    """Run tasks that beat sent together; one that fails stops no other."""
    until = time.monotonic() + TURN_S
    for number, name in enumerate(names, 1):
        current_app.tasks[name].apply()
        if time.monotonic() > until and (rest := names[number:]):
            taken_from: Any = run_passes.request.delivery_info
            options = {"queue": taken_from["routing_key"], **publish_options(once=True)}
            run_passes.apply_async(kwargs={"names": rest}, **options)
            return


# A pass takes about SECKILL_WORK_MS, or over 20 s if the database responds to no attempt.
@shared_task(name="orders.tasks.fulfill_sale", soft_time_limit=30, time_limit=40)
def fulfil_sale(*, sale_id: int, **kwargs: Any) -> None:
    """Turn the pending entries of a sale into orders; publish a new task if work is left."""
    note_life()
    note_writing()
    try:
        is_left = worker.fulfil_sale(sale_id=sale_id)
    except worker.CutOff:
        if set_kick(sale_id=sale_id):
            publish_fulfilment(sale_id=sale_id)
        raise
    except NewerFormat:  # for a worker of that release
        publish(fulfil_sale.name, in_s=1.0, sale_id=sale_id)
        return
    if is_left:
        publish_fulfilment(sale_id=sale_id)


@shared_task(name="orders.tasks.sweep")
def sweep(*, at_once: bool = False, **kwargs: Any) -> None:
    """Send the fulfil task again for each sale with an entry pending for too long."""
    if close_restored():
        return
    now = database_now()
    report_clocks("worker", database_now=now)
    sweeping.sweep(now=now, at_once=at_once)


@worker_ready.connect
def sweep_at_start(**kwargs: Any) -> None:
    """Sweep when a worker starts: the others may all have died a moment ago."""
    publish(sweep.name, at_once=True)


@shared_task(name=confirmation.CONFIRM_PAYMENTS)
def confirm_payments(*, order_id: int, **kwargs: Any) -> None:
    """Ask about the payments of a buyer who is back; publish a new task until they are known."""
    note_life()
    pause_s = confirmation.confirm_payments(order_id=order_id, now=database_now())
    if pause_s is not None:
        publish(confirm_payments.name, in_s=pause_s, order_id=order_id)


@shared_task(name="orders.tasks.notify_from_sandbox")
def notify_from_sandbox(*, reference: str, tries: int = 1, **kwargs: Any) -> None:
    """Send a notification of the sandbox, and again later until the shop accepts it."""
    pause_s = sandbox.notify(reference=reference, tries=tries, now=database_now())
    if pause_s is not None:
        sandbox.publish_notification(reference=reference, tries=tries + 1, in_s=pause_s)


# --- What beat sends ------------------------------------------------------------------------------


def _periodic(name: str, work: Callable[[], object], **options: Any) -> Any:
    """Return a task that is published again, behind what waits, if ``work`` returns True.

    While the clocks are unsettled it does nothing: beat sends the next one. Nor does it in a marked
    database: Note [Restored databases] in ``seckill_site/installation.py``.
    """

    @shared_task(name=f"orders.tasks.{name}", **options)
    def task(**kwargs: Any) -> None:
        if close_restored():
            return
        with suppress(ClocksUnsettled):
            if work() is True:
                publish(task.name)

    return task


def _advance_draws() -> bool:
    settled_clocks()  # a list that is closed too early stays closed
    return drawing.advance_draws()


def _finish_refunds() -> None:
    if refunds.finish_refunds(now=database_now()):
        note_life()  # a long list goes on at the pace of a shop that is awake


sweep_long_over = _periodic(
    "sweep_long_over", lambda: sweeping.sweep(now=database_now(), long_over=True)
)
"""Sweep the sales that ended long ago and should have nothing pending."""

remove_ledgers = _periodic(
    "remove_ledgers", lambda: removal.remove_ledgers(now=settled_clocks().earlier)
)
"""Remove the ledger of a sale that is long over."""

watch_ledger = _periodic("watch_ledger", lambda: rebuild_after_restart(now=database_now()))
"""Rebuild ledgers that come from an earlier run of Redis, or from another server."""

reconcile = _periodic("reconcile", lambda: reconciling.reconcile_running(now=database_now()))
"""Repair the sales that may still change and whose ledger and database differ."""

expire = _periodic("expire", lambda: expiry.expire_orders(clocks=settled_clocks()))
"""End the orders that nobody is paying in time, in passes that let new orders go first."""

expire_being_paid = _periodic(
    "expire_being_paid", lambda: expiry.expire_being_paid(clocks=settled_clocks())
)
"""End the orders whose time to pay is over, after asking the providers."""

poll_payments = _periodic("poll_payments", lambda: payments.poll_payments(now=database_now()))
"""Ask the providers about payments that were not reported."""

finish_refunds = _periodic("finish_refunds", _finish_refunds)
"""Ask the providers again to make open refunds."""

refund_unused = _periodic("refund_unused", lambda: unused.refund_unused(clocks=settled_clocks()))
"""Start the refunds of vouchers that were not used by their last day."""

note_last_days = _periodic(
    "note_last_days", lambda: last_days.note_last_days(now=settled_clocks().earlier)
)
"""Note which buyers to remind of the last day of their vouchers."""

settle_payments = _periodic(
    "settle_payments",
    lambda: settlement.settle_due(now=settled_clocks().earlier),
    soft_time_limit=100,  # a long list comes in many pages; the broker waits for 120 s
    time_limit=110,
)
"""Compare the providers' lists of the last days with ours, each once."""

restore_lines = _periodic(
    "restore_lines", lambda: waiting_list.restore_lines(now=settled_clocks().earlier)
)
"""Restore the waiting lists that Redis has lost."""

tell_buyers = _periodic("tell_buyers", lambda: notifications.tell_buyers(now=database_now()))
"""Send mails about changes of orders."""

send_notices = _periodic("send_notices", lambda: notices.send_notices(now=database_now()))
"""Tell readers what they asked for."""

drop_stale_facts = _periodic("drop_stale_facts", lambda: cached_facts.drop_stale_facts())
"""Have the cache drop what changed while it did not respond: sessions and users."""

delete_ended_sessions = _periodic(
    "delete_ended_sessions",
    lambda: old_sessions.delete_ended_sessions(now=settled_clocks().earlier),
)
"""Delete ended sessions, and accounts of sign-ups that nobody completed."""

delete_old_refusals = _periodic(
    "delete_old_refusals", lambda: refusal_log.delete_old_refusals(now=settled_clocks().earlier)
)
"""Delete what order requests were refused for, after a week."""

delete_old_rows = _periodic(
    "delete_old_rows", lambda: retention.delete_old_rows(now=settled_clocks().earlier)
)
"""Delete old rows about people: visits, refusals by rules, told notices, ids in finished jobs."""

store_tallies = _periodic("store_tallies", lambda: store_request_counts(now=database_now()))
"""Move the counts of answered order requests into the database."""

store_visits = _periodic("store_visits", lambda: room_visits.store_visits(now=database_now()))
"""Copy the visits to waiting rooms into the database."""

advance_draws = _periodic("advance_draws", _advance_draws)
"""Copy the entries of draws into the database, and hold the draws that are due."""
