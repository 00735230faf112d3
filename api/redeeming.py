"""Redeeming by a program, which may repeat its request because an answer was lost.

The history of the order says which token redeemed it, and with which key: it is written with the
change, so a repeat is told apart from a second use even if the process died in between.
"""

import datetime as dt
import re
from typing import NamedTuple

from api.models import ApiToken
from orders.lifecycle.guesses import counted_guess
from orders.lifecycle.redemption import GUESSES, NotRedeemable, Redeemable, find_by_code, redeem
from orders.lifecycle.transitions import Actor
from orders.models import PROGRAM, OrderStatus

KEY = re.compile(r"[!-~]{1,64}", re.ASCII)
"""An ``Idempotency-Key``: up to 64 printable characters without blanks."""


class Redeemed(NamedTuple):
    """A redeemed voucher; ``repeated`` if an earlier request of this token did it."""

    redeemable: Redeemable
    repeated: bool


def look_up(token: ApiToken, *, code: str, now: dt.datetime) -> Redeemable:
    """Return the voucher of a code; wrong codes are counted, as at the counter.

    :raises NoSuchCode: no order has this code.
    :raises TooManyGuesses: too many codes of this member of staff were wrong.
    :raises GuessesUnknown: the cache, which counts them, did not respond.
    """
    with counted_guess(GUESSES, user_id=token.owner_id, now=now):
        return find_by_code(code=code)


def redeem_once(token: ApiToken, *, code: str, key: str, now: dt.datetime) -> Redeemed:
    """Redeem a code, or say that a request with the same key has, or the same token without keys.

    :raises NoSuchCode: no order has this code.
    :raises NotRedeemable: it was used before, or is being refunded; nothing was changed.
    :raises PastValidity: its last day is over: only the counter makes exceptions.
    :raises TooManyGuesses: too many codes of this member of staff were wrong.
    :raises GuessesUnknown: the cache, which counts them, did not respond.
    """
    by = Actor.staff(token.owner_id)
    with counted_guess(GUESSES, user_id=token.owner_id, now=now):
        try:
            note, values = f"{PROGRAM}{token.prefix}", {"key": key}
            return Redeemed(redeem(code=code, by=by, now=now, note=note, values=values), False)
        except NotRedeemable as error:
            if not _is_ours(error.redeemable, token, key):
                raise
            return Redeemed(error.redeemable, True)


def _is_ours(redeemable: Redeemable, token: ApiToken, key: str) -> bool:
    event = redeemable.last_event
    if event is None or event.after != OrderStatus.USED or event.actor_id != token.owner_id:
        return False
    if not event.reason.startswith(PROGRAM):
        return False
    # Rows of earlier releases have the key behind the token.
    prefix, _, old_key = event.reason.removeprefix(PROGRAM).partition(" ")
    its_key = (event.values or {}).get("key", old_key)
    # A key names one use of a voucher, also by the token that replaces an old one.
    return bool(its_key == key) if key else prefix == token.prefix
