"""A payment provider whose books are a file: they survive the shop's database."""

from __future__ import annotations

import datetime as dt
import json
import os
import zoneinfo
from collections.abc import Mapping
from pathlib import Path

from orders.models import MoneyDirection
from orders.payments.providers import (
    BadNotification,
    Charge,
    ChargeState,
    Movement,
    OpenedCharge,
    ProviderUnavailable,
    Refund,
    Statement,
)

PATH = "tests.support.file_provider.FileProvider"
BOOKS = "TEST_PROVIDERS_BOOKS"
"""The environment variable that names the file."""


class FileProvider:
    """It adds a line for each charge and each payment."""

    name = "file"
    label = "File"
    acknowledgement = "OK"
    by_client = False
    code_apps: Mapping[str, str] = {}
    zone: zoneinfo.ZoneInfo | None = None

    def create(self, charge: Charge) -> OpenedCharge:
        _write(charge.reference, charge.amount_cents, ChargeState.OPEN)
        return OpenedCharge(f"https://pay.example/{charge.reference}")

    def pay(self, reference: str) -> None:
        """Pay as the buyer would, on the provider's page."""
        _write(reference, _read()[reference][0], ChargeState.PAID)

    def read_notification(
        self, *, headers: Mapping[str, str], body: bytes, now: dt.datetime
    ) -> Statement:
        raise BadNotification("it sends none")

    def query(self, reference: str, *, provider_reference: str = "") -> Statement:
        cents, state = _read().get(reference, (0, ChargeState.CLOSED))
        return Statement(reference, state, cents)

    def refund(self, refund: Refund) -> bool:
        raise ProviderUnavailable("it gives nothing back")

    def list_movements(self, day: dt.date) -> list[Movement]:
        """Return all payments, whatever the day."""
        paid = {it: cents for it, (cents, state) in _read().items() if state == ChargeState.PAID}
        return [Movement(MoneyDirection.PAYMENT, it, cents) for it, cents in paid.items()]


def _write(reference: str, cents: int, state: ChargeState) -> None:
    with Path(os.environ[BOOKS]).open("a", encoding="utf-8") as books:
        books.write(json.dumps([reference, cents, state]) + "\n")


def _read() -> dict[str, tuple[int, ChargeState]]:
    books = Path(os.environ[BOOKS])
    lines = books.read_text("utf-8").splitlines() if books.exists() else []
    return {it: (cents, ChargeState(state)) for it, cents, state in map(json.loads, lines)}
