"""Copying visits to waiting rooms from Redis into rows, for reports and for a lost line."""

import datetime as dt

from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Exists, OuterRef, Q

from orders.models import RoomVisit
from seckill_site.clocks.machine import from_epoch_ms
from seckill_site.failpoints import failpoint
from vouchers.inventory.passes import Passes
from vouchers.inventory.room_visits import Visit, forget_visits, unstored_visits
from vouchers.models import SeckillVoucher

AT_ONCE = 5_000
"""The visits of a sale that one pass stores, so that a crowd does not keep a worker from orders."""

_passes = Passes("store_visits")
_UNIQUE = ("seckill_voucher", "opened_ms", "user")


def store_visits(*, now: dt.datetime) -> bool:
    """Store what is new of the visits to waiting rooms, for the time of a pass; for beat.

    Return whether some rooms are left. Safe to repeat.
    """
    # Redis may still have visits to a room that was closed a moment ago.
    visited = Exists(RoomVisit.objects.filter(seckill_voucher=OuterRef("pk")))
    has_room = Q(room_opened_ms__gt=0) | Q(visited)
    rooms = SeckillVoucher.objects.filter(SeckillVoucher.still_active(now), has_room)
    found = (
        (sale_id, visits)
        for sale_id in _passes.in_turn(rooms.values_list("pk", flat=True))
        if (visits := unstored_visits(sale_id=sale_id, most=AT_ONCE))
    )
    return _passes.work(found, _store)


def _store(found: tuple[int, list[Visit]]) -> None:
    sale_id, visits = found
    known = User.objects.filter(pk__in=[it.user_id for it in visits]).values_list("pk", flat=True)
    users, let_in = set(known), _let_in(sale_id, visits)
    rows = [
        RoomVisit(
            seckill_voucher_id=sale_id,
            user_id=visit.user_id,
            opened_ms=visit.opened_ms,
            given=visit.given,
            joined_at=from_epoch_ms(visit.joined_ms),
            let_in_at=from_epoch_ms(visit.let_in_ms) if visit.let_in_ms else None,
        )
        for visit in visits
        if visit.user_id in users and (visit.user_id, visit.opened_ms) not in let_in
    ]
    has_target = connection.features.supports_update_conflicts_with_target
    RoomVisit.objects.bulk_create(
        rows,
        batch_size=1_000,
        update_conflicts=True,
        update_fields=["given", "joined_at", "let_in_at"],
        unique_fields=_UNIQUE if has_target else None,
    )
    failpoint("visits.stored")
    forget_visits(sale_id=sale_id, visits=visits)


def _let_in(sale_id: int, visits: list[Visit]) -> set[tuple[int, int]]:
    """Return who was let in by the rows and not by the visits, which are of an older copy then."""
    waiting = [it.user_id for it in visits if not it.let_in_ms]
    rows = RoomVisit.objects.filter(seckill_voucher=sale_id, user__in=waiting)
    let_in = set(rows.exclude(let_in_at=None).values_list("user_id", "opened_ms"))
    return let_in - {(it.user_id, it.opened_ms) for it in visits if it.let_in_ms}
