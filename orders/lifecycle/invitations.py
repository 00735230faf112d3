"""Invitation codes of a sale: made or imported by staff, entered by a buyer, used by an order.

They are stored as they are. A code lets somebody queue for one purchase and is worth nothing once
it is entered, and staff have to send those again that got lost.
"""

import datetime as dt
import unicodedata
from typing import NamedTuple

from django.db import transaction
from django.utils.crypto import get_random_string

from orders.audience.eligibility import forget_verdict, judge_buyer
from orders.audience.verdicts import NotEligible
from orders.lifecycle.guesses import GuessLimit, counted_guess
from orders.lifecycle.redemption import written_code
from orders.lock_objects import lock_user
from orders.models import CODE_ALPHABET, INVITATION_LENGTH, InvitationCode
from vouchers.catalogue.audience import CODE, audience_of
from vouchers.catalogue.listing import public_sale
from vouchers.models import SeckillVoucher

MOST_CODES = 100_000
"""The most codes that are made or imported at once."""

NEW_LENGTH = 12
"""Characters of a new code, five bits each."""

_BATCH = 1_000


class CodeRefused(Exception):
    """No such code, or another account has entered it."""


class EnoughCodes(Exception):
    """The account has entered a code for each unit that it may buy, and one of them is unused."""


GUESSES = GuessLimit("invitation-wrong", most=10, window_s=600, wrong=CodeRefused)
"""The most wrong codes that a buyer may enter in ten minutes."""


class UnusableCode(Exception):
    """A line of an import is not a code; ``line`` is its number."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line} is no code")
        self.line = line


class Imported(NamedTuple):
    """How many codes were new, and how many the sale had already."""

    new: int
    known: int


def read_invitation(text: str) -> str:
    """Return a typed code as it is stored: capitals and digits, without blanks and dashes."""
    typed = unicodedata.normalize("NFKC", text).upper()
    return "".join(it for it in typed if not it.isspace() and it not in "-‐–—_")


def written_invitation(code: str) -> str:
    """Return a code that we made as people read it, in groups of four; others as they are."""
    if len(code) != NEW_LENGTH or set(code) - set(CODE_ALPHABET):
        return code
    return written_code(code)


def make_codes(*, sale_id: int, count: int) -> list[str]:
    """Make new codes for a sale, and return them."""
    codes: set[str] = set()
    while len(codes) < count:
        codes.add(get_random_string(NEW_LENGTH, CODE_ALPHABET))
    import_codes(sale_id=sale_id, lines=sorted(codes))
    return sorted(codes)


def import_codes(*, sale_id: int, lines: list[str]) -> Imported:
    """Add codes to a sale, one per line; empty lines and codes that it has already do not count.

    :raises UnusableCode: a line is no code; none was added.
    """
    codes: dict[str, None] = {}
    for number, line in enumerate(lines, start=1):
        code = read_invitation(line)
        if code:
            if not _is_usable(code):
                raise UnusableCode(number)
            codes[code] = None
    with transaction.atomic():
        before = InvitationCode.objects.filter(seckill_voucher=sale_id).count()
        InvitationCode.objects.bulk_create(
            (InvitationCode(seckill_voucher_id=sale_id, code=it) for it in codes),
            batch_size=_BATCH,
            ignore_conflicts=True,
        )
        new = InvitationCode.objects.filter(seckill_voucher=sale_id).count() - before
    return Imported(new, len(codes) - new)


def _is_usable(code: str) -> bool:
    shortest, longest = INVITATION_LENGTH
    return shortest <= len(code) <= longest and code.isascii() and code.isalnum()


def enter_code(*, sale_id: int, user_id: int, text: str, now: dt.datetime) -> None:
    """Tie a code to the account that enters it first; again by the same account changes nothing.

    :raises SeckillVoucher.DoesNotExist: there is no such sale for buyers.
    :raises NotEligible: another rule refuses the buyer, who would waste the code.
    :raises CodeRefused: no such code, or another account has entered it.
    :raises EnoughCodes: the account has an unused code, and one for each unit it may buy.
    :raises TooManyGuesses: too many codes were wrong.
    :raises GuessesUnknown: wrong codes cannot be counted now.
    """
    sale = public_sale(sale_id=sale_id)
    verdict = judge_buyer(sale_id=sale_id, user_id=user_id, audience=audience_of(sale))
    if verdict.rule not in ("", CODE.name):
        raise NotEligible(verdict)
    with counted_guess(GUESSES, user_id=user_id, now=now):
        _enter(sale, user_id, read_invitation(text), now)
    forget_verdict(sale_id=sale_id, user_id=user_id)


def _enter(sale: SeckillVoucher, user_id: int, code: str, now: dt.datetime) -> None:
    if not _is_usable(code):
        raise CodeRefused("not the letters of a code")
    codes = InvitationCode.objects.filter(seckill_voucher=sale)
    own = codes.filter(user=user_id)
    if own.filter(code=code).exists():
        return
    with transaction.atomic(durable=True):
        lock_user(user_id=user_id)  # two codes at the same moment would both pass the check
        # A buyer with enough codes would only take more from others.
        if own.count() >= sale.limit and own.filter(uses=None).exists():
            raise EnoughCodes("the buyer has a code for each unit")
        entered = codes.filter(code=code, user=None).update(user=user_id, entered_at=now)
    if not entered:
        raise CodeRefused("no such code for this account")
