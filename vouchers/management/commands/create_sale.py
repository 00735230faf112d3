"""``manage.py create_sale``: put a voucher on sale from the command line."""

import datetime as dt
import tomllib
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Model
from django.utils import timezone

from seckill_site.clocks.database import database_now
from vouchers.catalogue.audience import EVERYBODY, SALE_RULES, SaleRule
from vouchers.catalogue.sales import SaleTerms, VoucherDetails, create_voucher_on_sale
from vouchers.forms.fields import validate_last_day
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded
from vouchers.inventory.sale_state import snapshot
from vouchers.models import (
    MAX_DRAW_WAIT_S,
    MAX_LIMIT,
    MAX_ROOM_RATE,
    Merchant,
    RoomKind,
    SaleMode,
    SeckillVoucher,
    Work,
)

MOST = {"limit": MAX_LIMIT, "room_rate": MAX_ROOM_RATE, "draw_wait": MAX_DRAW_WAIT_S}
HELP = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


class Command(BaseCommand):
    help = "Put a new voucher on sale and load it; prints the sale's id alone on the last line."

    def add_arguments(self, parser: CommandParser) -> None:
        def add(option: str, **kwargs: Any) -> None:
            parser.add_argument(option, help=HELP[option].format(**MOST), **kwargs)

        add("--title", required=True)
        add("--stock", type=int, required=True)
        add("--begins-in", type=int, required=True)
        add("--ends-in", type=int, required=True)
        add("--limit", type=int, default=1)
        add("--room", choices=RoomKind.values, default=RoomKind.OFF)
        add("--room-rate", type=int)
        add("--room-shuffled", action="store_true")
        works = [it.name.lower() for it in Work]
        add("--work", choices=works, default=works[0])
        add("--draw", action="store_true")
        add("--draw-wait", type=int)
        for rule in SALE_RULES:
            add(rule.option, dest=rule.field, **_argument(rule))
        add("--merchant")
        add("--valid-until", type=dt.date.fromisoformat)
        add("--price-cents", type=int, default=8_000)
        add("--face-value-cents", type=int, default=10_000)

    def handle(self, *args: Any, **options: Any) -> None:
        now = database_now().replace(microsecond=0)
        try:
            if day := options["valid_until"]:
                validate_last_day(day, today=timezone.localdate(now))
            sale = create_voucher_on_sale(
                details=VoucherDetails(
                    title=options["title"],
                    rules="",
                    price_cents=options["price_cents"],
                    face_value_cents=options["face_value_cents"],
                    merchant=_named(Merchant, "--merchant", options["merchant"]),
                    valid_until=options["valid_until"],
                ),
                terms=SaleTerms(
                    stock=options["stock"],
                    begins_at=now + dt.timedelta(seconds=options["begins_in"]),
                    ends_at=now + dt.timedelta(seconds=options["ends_in"]),
                    limit=options["limit"],
                    work=Work[options["work"].upper()],
                    **_room_terms(**options),
                    **_draw_terms(**options),
                    **{it.field: _rule_value(it, options[it.field]) for it in SALE_RULES},
                ),
            )
        except (ValidationError, OverflowError) as error:
            raise CommandError(_one_line(error)) from error
        try:
            snapshot(sale_id=sale.pk)
        except (NotLoaded, LedgerUnavailable) as error:
            raise CommandError(
                f"sale {sale.pk} is saved but not in Redis; its first buyer or reconcile loads it"
            ) from error
        self.stdout.write(str(sale.pk))


def _named(model: type[Model], option: str, name: str | None) -> Any:
    """Return the row of this name; none without a name."""
    row = model._default_manager.filter(name=name).first() if name is not None else None
    if name is not None and row is None:
        raise CommandError(f"{option}: there is no {option[2:]} {name!r}")
    return row


def _room_terms(
    *, room: str, room_rate: int | None, room_shuffled: bool, **_: Any
) -> dict[str, Any]:
    """Return the terms of the waiting room; refuse options that would have no effect."""
    if room == RoomKind.OFF and room_rate is not None:
        raise CommandError("--room-rate needs a waiting room: --room busy or --room start")
    if room != RoomKind.START and room_shuffled:
        raise CommandError("--room-shuffled draws those who wait for the start: --room start")
    rate = {} if room_rate is None else {"room_rate": room_rate}
    return {"room": room, "room_shuffled": room_shuffled, **rate}


def _draw_terms(*, draw: bool, draw_wait: int | None, **_: Any) -> dict[str, Any]:
    """Return the terms of the draw; refuse an option that would have no effect."""
    if draw_wait is not None and not draw:
        raise CommandError("--draw-wait needs a draw: --draw")
    mode = SaleMode.DRAW if draw else SaleMode.FIRST_COME
    return {"mode": mode, "draw_wait_s": draw_wait or 0}


def _argument(rule: SaleRule) -> dict[str, Any]:
    """Return the kind of a rule's option: a number, a flag, or the name of a row."""
    if rule.bounds:
        return {"type": int, "default": rule.bounds[0]}
    return {"action": "store_true"} if rule.value(EVERYBODY) is False else {}


def _rule_value(rule: SaleRule, given: Any) -> Any:
    """Return a rule's value in the sale; refuse a number out of bounds and an unknown name."""
    if rule.bounds and not rule.bounds[0] <= given <= rule.bounds[1]:
        raise CommandError(f"{rule.option} must be {rule.bounds[0]} to {rule.bounds[1]}")
    model = SeckillVoucher._meta.get_field(rule.field).related_model
    return getattr(_named(model, rule.option, given), "pk", None) if model else given


def _one_line(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    if not hasattr(error, "error_dict"):
        return " ".join(error.messages)
    return "; ".join(
        f"{name}: {' '.join(messages)}" if name != "__all__" else " ".join(messages)
        for name, messages in error.message_dict.items()
    )
