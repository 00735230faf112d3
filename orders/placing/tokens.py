"""Purchase tokens: signed proof of buyer and sale, with the id that the order will have.

A token is ``<order id>-<user>-<sale>-<expiry in ms>-<identity of the sale>:<signature>``, with
``-<admission>`` after the identity if the buyer was admitted, or ``-0-1`` if it enters a draw,
and ``-w<bits>`` after that if it asks for work. Sent again, it names the same order, so a buyer
whose answer was lost may retry as often as needed.

``~p<cents>`` behind the signature is the price that its holder was shown: at another one the order
is refused. The release before reads such a token, too. Nobody else is deceived by a changed price,
and orders have that of the voucher. A token with work has ``-p<cents>`` before ``-w`` instead.

Work is a nonce that the buyer's program appends as ``~<nonce>``: the SHA-256 of the whole text then
begins with that many zero bits. Finding one takes 2^bits hashes on average; checking takes one.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from django.conf import settings

from orders.placing.order_ids import mint_order_ids
from orders.placing.signer import current_signer
from seckill_site.clocks.machine import epoch_ms
from seckill_site.web.url_converters import LARGEST_ID
from vouchers.models import SeckillVoucher

_SALT = "seckill.purchase-token"
_MAX_LENGTH = 200

CLOCK_TOLERANCE_MS = 60_000
"""How long a token stays valid beyond its expiry: by so much may the clocks of two servers differ,
or the clock of Redis change when another server takes over."""

_PAYLOAD = re.compile(
    r"([1-9][0-9]{0,18})-([1-9][0-9]{0,18})-([1-9][0-9]{0,18})-([0-9]{1,16})"
    r"(?:-([0-9]{1,19})(?:-([0-9]{1,19})(?:-(1))?)?)?(?:-p([0-9]{1,10}))?(?:-w([1-9][0-9]?))?"
)
_PRICE = re.compile(r"p([0-9]{1,10})")
_HIGHEST_PRICE = 2**32 - 1  # that a row can store
_NONCE = re.compile(r"[0-9a-z]{1,24}")


class BadToken(Exception):
    """The purchase token is forged, expired, or another sale's."""


class MalformedToken(Exception):
    """The purchase token is missing or malformed."""


class WorkMissing(Exception):
    """The purchase token asks for work, and its nonce is missing or does not fit."""

    def __init__(self, user_id: int) -> None:
        super().__init__("the work is missing or too little")
        self.user_id = user_id


class PurchaseToken(NamedTuple):
    """A verified token; ``expires_at_ms`` is in milliseconds since 1970.

    One of an earlier release has no ``identity`` of its sale, and holds for any. ``admission`` is
    the number in line with which a waiting room let the buyer in; 0, and not in the text, without.
    ``work`` is the number of zero bits that an order with it has to show; 0 for none.
    ``enters``: 1 if it enters a draw, else 0. One of an earlier release has no ``price_cents``.
    """

    order_id: int
    user_id: int
    sale_id: int
    expires_at_ms: int
    identity: int = 0
    admission: int = 0
    enters: int = 0
    work: int = 0
    price_cents: int | None = None

    def sign(self) -> str:
        """Return the token as text."""
        payload = f"{self.order_id}-{self.user_id}-{self.sale_id}-{self.expires_at_ms}"
        if self.identity or self.admission or self.enters:
            payload += f"-{self.identity}"
        if self.admission or self.enters:
            payload += f"-{self.admission}"
        if self.enters:
            payload += f"-{self.enters}"
        price = "" if self.price_cents is None else f"p{self.price_cents}"
        if self.work:
            payload += f"-{price}-w{self.work}" if price else f"-w{self.work}"
            price = ""
        signed = current_signer(_SALT).sign(payload)
        return f"{signed}~{price}" if price else signed


def issue_tokens(
    *, sale: SeckillVoucher, user_ids: Sequence[int], admission: int = 0
) -> list[PurchaseToken]:
    """Return a new token of this sale for each user, in one round trip.

    :raises LedgerUnavailable: Redis did not respond.
    """
    expires_at_ms = epoch_ms(sale.ends_at) + settings.SECKILL_TOKEN_GRACE_MS
    about = (sale.pk, expires_at_ms, sale.identity, admission, int(sale.is_draw))
    price, takes_several = sale.voucher.price_cents, sale.limit > 1 and not sale.is_draw
    order_ids = mint_order_ids(count=len(user_ids), blocks=takes_several)
    return [
        PurchaseToken(*ids, *about, price_cents=price)
        for ids in zip(order_ids, user_ids, strict=True)
    ]


def read_token(text: object, *, sale_id: int, now_ms: int) -> PurchaseToken:
    """Verify a purchase token sent for this sale, whatever its work.

    :raises MalformedToken: the text is not a token.
    :raises BadToken: its signature, sale or expiry is wrong.
    """
    if not isinstance(text, str) or len(text) > _MAX_LENGTH:
        raise MalformedToken("not a text of a token's length")
    signed, _, rest = text.partition("~")
    payload, _, signature = signed.rpartition(":")
    match = _PAYLOAD.fullmatch(payload)
    if match is None:
        raise MalformedToken("not the fields of a token")
    if not current_signer(_SALT).has_signed(payload, signature):
        raise BadToken("the signature is wrong")
    *ids, price, work = match.groups()
    if rest and work is None:
        unsigned = _PRICE.fullmatch(rest)
        if unsigned is None or int(unsigned[1]) > _HIGHEST_PRICE:
            raise BadToken("what follows the signature is no price")
        price = unsigned[1]
    price_cents = int(price) if price else None
    numbers = [int(it) if it else 0 for it in (*ids, work)]
    token = PurchaseToken._make([*numbers, price_cents])
    is_expired = token.expires_at_ms + CLOCK_TOLERANCE_MS <= now_ms
    if token.sale_id != sale_id or is_expired or token.order_id > LARGEST_ID:
        raise BadToken("the token is expired or another sale's")
    return token


def check_work(token: PurchaseToken, text: str) -> None:
    """Check the work behind the text of a token, with one hash.

    :raises WorkMissing: the token asks for work, and there is none or too little.
    """
    if not token.work:
        return
    _, _, nonce = text.partition("~")
    digest = int.from_bytes(sha256(text.encode()).digest())
    if _NONCE.fullmatch(nonce) is None or digest >> (256 - token.work):
        raise WorkMissing(token.user_id)
