"""The buyers of a rehearsal, what each of them clicks, and what they are told.

Everything but the answers follows from the shadow sale and one order id, so that a crowd whose
process died goes on with the same buyers and the same tokens, as their pages would.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from typing import Any, NamedTuple

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.urls import reverse

from backoffice.rehearsal.crowd import Answer, OrderRequest, fire
from orders.placing.order_ids import mint_order_ids
from orders.placing.tokens import PurchaseToken
from seckill_site.clock import epoch_ms, now_ms
from vouchers.inventory.request_stats import ACCEPTED
from vouchers.models import SeckillVoucher

BUYERS_AT_ONCE = 500
"""How many buyers are made, or looked for, with one statement."""

TRIES = 5
"""How often the page sends a token of which it does not know what became."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.3, 2.0
"""How long the page waits before it does so, doubling."""


# --- Buyers --------------------------------------------------------------------------------------


def name_of(*, shadow_id: int, number: int) -> str:
    """Return the name of a buyer: nobody can sign up with a colon in it."""
    return f"{_prefix(shadow_id)}{number}"


def buyers_of(*, shadow_id: int) -> QuerySet[User]:
    """Return the buyers that were made for a shadow sale."""
    # Not the exact test: on MariaDB that one cannot use the index.
    return get_user_model().objects.filter(username__istartswith=_prefix(shadow_id))


def _prefix(shadow_id: int) -> str:
    return f"rehearsal:{shadow_id}:"


def make_buyers(*, shadow_id: int, numbers: Iterable[int]) -> None:
    """Make these buyers, who cannot sign in and have no address to write to."""
    names = [name_of(shadow_id=shadow_id, number=number) for number in numbers]
    users = get_user_model().objects
    users.bulk_create([users.model(username=name, password=make_password(None)) for name in names])


def _user_ids(shadow_id: int, numbers: Iterable[int]) -> dict[int, int]:
    """Return the user ids of these buyers."""
    names = {name_of(shadow_id=shadow_id, number=number): number for number in numbers}
    todo, found = iter(names), dict[int, int]()
    while chunk := list(islice(todo, BUYERS_AT_ONCE)):
        rows = get_user_model().objects.filter(username__in=chunk)
        found |= {names[name]: user_id for name, user_id in rows.values_list("username", "pk")}
    return found


# --- Clicks --------------------------------------------------------------------------------------


class Click(NamedTuple):
    """One press of the button; the second tab of a page has a token of its own."""

    buyer: int
    tab: int


def clicks_of(*, buyers: int, doubles: int) -> Iterator[Click]:
    """Return every click in its order; ``doubles`` percent of the buyers press twice.

    Every other of those does so in a second tab, the rest send the same token again.
    """
    twice = 0
    for buyer in range(buyers):
        yield Click(buyer, 0)
        if (buyer + 1) * doubles // 100 > buyer * doubles // 100:
            yield Click(buyer, twice % 2)
            twice += 1


def count_clicks(*, buyers: int, doubles: int) -> int:
    """Return how many clicks these are."""
    return buyers + buyers * doubles // 100


# --- What they are told --------------------------------------------------------------------------


@dataclass
class Told:
    """What the crowd was told so far; kept in the rehearsal's row, as JSON.

    ``sent`` clicks were sent a first time; ``again`` are those whose outcome is unknown, each with
    the number of its tries. ``accepted`` are order ids less ``first_order_id``, one for each time
    that somebody was told so. ``took_ms`` counts the answers that took so many milliseconds.
    """

    first_order_id: int = 0
    sent: int = 0
    again: list[tuple[int, int]] = field(default_factory=list)
    requests: int = 0
    answers: dict[str, int] = field(default_factory=dict)
    accepted: list[int] = field(default_factory=list)
    took_ms: dict[str, int] = field(default_factory=dict)
    began_ms: int = 0
    firing_ms: int = 0
    interruptions: int = 0
    written: int = 0
    waits_since_ms: int = 0

    @classmethod
    def of(cls, crowd: dict[str, Any]) -> Told:
        """Read what a row holds."""
        names = {item.name for item in fields(cls)}
        told = cls(**{name: value for name, value in crowd.items() if name in names})
        told.again = [(click, tries) for click, tries in told.again]
        return told

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def answered(self) -> int:
        """How many clicks have their last answer."""
        return self.sent - len(self.again)

    def note(self, answer: Answer, *, tries: int) -> None:
        """Count an answer; a click of which nothing is known is sent again, but not for ever."""
        self.requests += 1
        if answer.ms is not None:
            took = str(answer.ms)
            self.took_ms[took] = self.took_ms.get(took, 0) + 1
        if not answer.is_known and tries < TRIES:
            self.again.append((answer.click, tries))
            return
        self.answers[answer.code] = self.answers.get(answer.code, 0) + 1
        if answer.code == ACCEPTED and answer.order_id is not None:
            self.accepted.append(answer.order_id - self.first_order_id)


@dataclass(frozen=True)
class Crowd:
    """Who buys what, and how: all that does not change while they buy."""

    shadow: SeckillVoucher
    buyers: int
    doubles: int
    connections: int
    url: str

    @property
    def clicks(self) -> int:
        return count_clicks(buyers=self.buyers, doubles=self.doubles)


def first_order_id(*, buyers: int) -> int:
    """Mint an order id for both tabs of each buyer, and return the first of them.

    :raises LedgerUnavailable: Redis did not answer.
    """
    return mint_order_ids(count=2 * buyers)[0]


def buy(*, crowd: Crowd, told: Told, at_once: int, for_s: float) -> float:
    """Let the crowd click for some seconds, note what it is told, and return when to go on.

    First everybody once; then those who do not know yet what became of their click.
    """
    tries = dict(told.again[:at_once])
    if told.sent < crowd.clicks:
        tries = dict.fromkeys(range(told.sent, min(told.sent + at_once, crowd.clicks)), 0)
    requests = _requests(crowd, told, list(tries))
    begun = time.monotonic()
    told.began_ms = told.began_ms or now_ms()
    answers = fire(
        url=crowd.url,
        path=reverse("place-order", args=[crowd.shadow.pk]),
        requests=requests,
        connections=min(crowd.connections, len(requests)),
        for_s=for_s,
    )
    told.firing_ms += round((time.monotonic() - begun) * 1000)
    _note(told, answers, tries)
    return _pause_s(crowd, told, answers)


def _requests(crowd: Crowd, told: Told, numbers: Sequence[int]) -> list[OrderRequest]:
    """Return the requests of these clicks."""
    clicks = list(clicks_of(buyers=crowd.buyers, doubles=crowd.doubles))
    user_ids = _user_ids(crowd.shadow.pk, {clicks[number].buyer for number in numbers})
    expires_at_ms = epoch_ms(crowd.shadow.ends_at) + settings.SECKILL_TOKEN_GRACE_MS
    requests = []
    for number in numbers:
        buyer, tab = clicks[number]
        order_id = told.first_order_id + buyer + tab * crowd.buyers
        token = PurchaseToken(order_id, user_ids[buyer], crowd.shadow.pk, expires_at_ms)
        requests.append(OrderRequest(number, token.sign()))
    return requests


def _note(told: Told, answers: Sequence[Answer], tries: dict[int, int]) -> None:
    answered = {answer.click for answer in answers}
    told.sent = max([told.sent, *(click + 1 for click in answered)])
    told.again = [item for item in told.again if item[0] not in answered]
    for answer in answers:
        told.note(answer, tries=tries[answer.click] + 1)


def _pause_s(crowd: Crowd, told: Told, answers: Sequence[Answer]) -> float:
    """Return how long to wait before the next clicks: as the page does before it asks again."""
    if told.sent < crowd.clicks or not told.again:
        return 0.0
    tries = told.again[0][1]
    asked_for = max((answer.retry_after_s for answer in answers), default=0)
    pause_s: float = max(FIRST_PAUSE_S * 2 ** (tries - 1), asked_for)
    return min(pause_s, LONGEST_PAUSE_S)
