"""The buyers of a rehearsal, their clicks, and the answers they get.

Everything but the answers is derived from the shadow sale and one order id. A crowd whose process
died therefore continues with the same buyers and tokens, as their pages would.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from typing import Any, NamedTuple

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.urls import reverse

from backoffice.rehearsal.crowd import Answer, fire
from orders.models import Rehearsal
from orders.placing.tokens import PurchaseToken
from seckill_site.clocks.machine import epoch_ms, now_ms
from vouchers.inventory.request_stats import ACCEPTED
from vouchers.models import SeckillVoucher

BUYERS_AT_ONCE = 500
"""Buyers that one statement creates or looks up."""

MAX_TRIES = 5
"""The most times that a buyer sends a token whose outcome is unknown."""

FIRST_PAUSE_S, MAX_PAUSE_S = 0.3, 2.0
"""Pauses before a token is sent again: the first, which doubles, and the longest."""


def username_of(*, shadow_id: int, number: int) -> str:
    """Return the name of a buyer. Nobody can sign up with a colon in a name."""
    return f"rehearsal:{shadow_id}:{number}"


def buyers_of(*, shadow_id: int) -> QuerySet[User]:
    # Case-insensitive: MariaDB cannot use the index for an exact prefix.
    return get_user_model().objects.filter(username__istartswith=f"rehearsal:{shadow_id}:")


def _user_ids(shadow_id: int, numbers: Iterable[int]) -> dict[int, int]:
    names = {username_of(shadow_id=shadow_id, number=number): number for number in numbers}
    todo, ids = iter(names), dict[int, int]()
    while chunk := list(islice(todo, BUYERS_AT_ONCE)):
        rows = get_user_model().objects.filter(username__in=chunk)
        ids |= {names[name]: user_id for name, user_id in rows.values_list("username", "pk")}
    return ids


class Click(NamedTuple):
    """One press of the button. The second tab of a page has a token of its own."""

    buyer: int
    tab: int


def clicks_of(*, buyers: int, duplicates: int) -> Iterator[Click]:
    """Return every click in order; ``duplicates`` percent of the buyers click twice.

    Every second one of them uses a second tab; the rest send the same token again.
    """
    twice = 0
    for buyer in range(buyers):
        yield Click(buyer, 0)
        if (buyer + 1) * duplicates // 100 > buyer * duplicates // 100:
            yield Click(buyer, twice % 2)
            twice += 1


def count_clicks(*, buyers: int, duplicates: int) -> int:
    """Return the number of clicks of ``clicks_of``."""
    return buyers + buyers * duplicates // 100


@dataclass
class AnswerLog:
    """The answers that the crowd got so far; kept in the rehearsal's row, as JSON.

    ``sent`` clicks were sent a first time; ``again`` are those whose outcome is unknown, each with
    the number of its tries. ``accepted`` are accepted order ids minus ``first_order_id``, one for
    each such answer. ``took_ms`` counts the answers by the milliseconds they took.
    """

    first_order_id: int = 0
    sent: int = 0
    again: list[tuple[int, int]] = field(default_factory=list)
    requests: int = 0
    answers: dict[str, int] = field(default_factory=dict)
    accepted: list[int] = field(default_factory=list)
    took_ms: dict[str, int] = field(default_factory=dict)
    started_ms: int = 0
    firing_ms: int = 0
    interruptions: int = 0
    written: int = 0
    waits_since_ms: int = 0

    @classmethod
    def of(cls, crowd: dict[str, Any]) -> AnswerLog:
        """Read the log from a row."""
        names = {item.name for item in fields(cls)}
        log = cls(**{name: value for name, value in crowd.items() if name in names})
        log.again = [(click, tries) for click, tries in log.again]
        return log

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def answered(self) -> int:
        """The number of clicks with their final answer."""
        return self.sent - len(self.again)

    def note(self, answer: Answer, *, tries: int) -> None:
        """Count an answer. A click whose outcome is unknown is sent again, up to ``MAX_TRIES``."""
        self.requests += 1
        if answer.ms is not None:
            took = str(answer.ms)
            self.took_ms[took] = self.took_ms.get(took, 0) + 1
        if not answer.is_known and tries < MAX_TRIES:
            self.again.append((answer.click, tries))
            return
        self.answers[answer.code] = self.answers.get(answer.code, 0) + 1
        if answer.code == ACCEPTED and answer.order_id is not None:
            self.accepted.append(answer.order_id - self.first_order_id)


def buy(
    *, rehearsal: Rehearsal, shadow: SeckillVoucher, log: AnswerLog, at_once: int, for_s: float
) -> float:
    """Let the crowd click for ``for_s``, log the answers, and return the pause until the next call.

    Every click is sent once first; then those whose outcome is unknown are sent again.
    """
    clicks = list(clicks_of(buyers=rehearsal.buyers, duplicates=rehearsal.duplicates))
    tries = dict(log.again[:at_once])
    if log.sent < len(clicks):
        tries = dict.fromkeys(range(log.sent, min(log.sent + at_once, len(clicks))), 0)
    tokens = _tokens(shadow, log.first_order_id, rehearsal.buyers, {it: clicks[it] for it in tries})
    started = time.monotonic()
    log.started_ms = log.started_ms or now_ms()
    answers = fire(
        url=rehearsal.url,
        path=reverse("place-order", args=[shadow.pk]),
        tokens=tokens,
        connections=rehearsal.connections,
        for_s=for_s,
    )
    log.firing_ms += round((time.monotonic() - started) * 1000)
    answered = {answer.click for answer in answers}
    log.sent = max([log.sent, *(click + 1 for click in answered)])
    log.again = [item for item in log.again if item[0] not in answered]
    for answer in answers:
        log.note(answer, tries=tries[answer.click] + 1)
    return _pause_s(log, answers) if log.sent == len(clicks) and log.again else 0.0


def _tokens(
    shadow: SeckillVoucher, first_order_id: int, buyers: int, clicks: dict[int, Click]
) -> dict[int, str]:
    user_ids = _user_ids(shadow.pk, {click.buyer for click in clicks.values()})
    expires_at_ms = epoch_ms(shadow.ends_at) + settings.SECKILL_TOKEN_GRACE_MS
    tokens = {}
    for number, (buyer, tab) in clicks.items():
        order_id = first_order_id + buyer + tab * buyers
        token = PurchaseToken(order_id, user_ids[buyer], shadow.pk, expires_at_ms, shadow.identity)
        tokens[number] = token.sign()
    return tokens


def _pause_s(log: AnswerLog, answers: Sequence[Answer]) -> float:
    """Return the seconds to wait before the next clicks, as the page does."""
    tries = log.again[0][1]
    asked_for = max((answer.retry_after_s for answer in answers), default=0)
    pause_s: float = max(FIRST_PAUSE_S * 2 ** (tries - 1), asked_for)
    return min(pause_s, MAX_PAUSE_S)
