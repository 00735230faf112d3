"""Purchase tokens: signed proof of buyer and sale, with the id that the order will have.

A token is ``<order id>-<user>-<sale>-<expiry in ms>-<identity of the sale>:<signature>``, with
``-<admission>`` after the identity if the buyer was admitted. Sent again, it names the same order,
so a buyer whose answer was lost may retry as often as needed.
"""

import re
from binascii import b2a_base64
from collections.abc import Sequence
from functools import lru_cache
from hmac import HMAC, compare_digest
from typing import NamedTuple

from django.conf import settings
from django.core import signing
from django.utils.crypto import salted_hmac

from orders.placing.order_ids import mint_order_ids
from seckill_site.clocks.machine import epoch_ms
from seckill_site.kept_settings import kept
from seckill_site.web.url_converters import LARGEST_ID
from vouchers.inventory.reservations import SaleEnded
from vouchers.models import SeckillVoucher

_SALT = "seckill.purchase-token"
_MAX_LENGTH = 200

CLOCK_TOLERANCE_MS = 60_000
"""How long a token stays valid beyond its expiry: by so much may the clocks of two servers differ,
or the clock of Redis change when another server takes over."""

_URL_SAFE = bytes.maketrans(b"+/", b"-_")

_PAYLOAD = re.compile(
    r"([1-9][0-9]{0,18})-([1-9][0-9]{0,18})-([1-9][0-9]{0,18})-([0-9]{1,16})"
    r"(?:-([0-9]{1,19})(?:-([0-9]{1,19}))?)?"
)


class _TokenSigner(signing.Signer):
    """Django's signer, with the key derived once per salt instead of once per token."""

    def signature(self, value: str | bytes, key: str | bytes | None = None) -> str:
        mac = _keyed(self.salt, key or self.key).copy()
        mac.update(value.encode() if isinstance(value, str) else value)
        # As signing.b64_encode(), without its Python.
        return b2a_base64(mac.digest(), newline=False).translate(_URL_SAFE, b"=").decode()

    def has_signed(self, value: str, signature: str) -> bool:
        """Return whether ``unsign`` would accept the signature, only faster; both are ASCII."""
        if compare_digest(signature, self.signature(value)):
            return True
        olds = self.fallback_keys
        return any(compare_digest(signature, self.signature(value, key)) for key in olds)


@lru_cache(maxsize=16)
def _keyed(salt: str, key: str | bytes) -> HMAC:
    return salted_hmac(salt + "signer", "", key, algorithm="sha256")


@kept
def _current_signer() -> _TokenSigner:
    fallback_keys = list(settings.SECRET_KEY_FALLBACKS)
    return _TokenSigner(key=settings.SECRET_KEY, fallback_keys=fallback_keys, salt=_SALT)


class BadToken(Exception):
    """The purchase token is forged, expired, or another sale's."""


class MalformedToken(Exception):
    """The purchase token is missing or malformed."""


class PurchaseToken(NamedTuple):
    """A verified token; ``expires_at_ms`` is in milliseconds since 1970.

    One of an earlier release has no ``identity`` of its sale, and holds for any. ``admission`` says
    with which group a waiting room let the buyer in; 0, and not in the text, without one.
    """

    order_id: int
    user_id: int
    sale_id: int
    expires_at_ms: int
    identity: int = 0
    admission: int = 0

    def sign(self) -> str:
        """Return the token as text."""
        payload = f"{self.order_id}-{self.user_id}-{self.sale_id}-{self.expires_at_ms}"
        if self.identity or self.admission:
            payload += f"-{self.identity}"
        if self.admission:
            payload += f"-{self.admission}"
        return _current_signer().sign(payload)


def issue_tokens(*, sale: SeckillVoucher, user_ids: Sequence[int]) -> list[PurchaseToken]:
    """Return a new token of this sale for each user, in one round trip.

    :raises LedgerUnavailable: Redis did not respond.
    """
    expires_at_ms = epoch_ms(sale.ends_at) + settings.SECKILL_TOKEN_GRACE_MS
    return [
        PurchaseToken(order_id, user_id, sale.pk, expires_at_ms, sale.identity)
        for order_id, user_id in zip(mint_order_ids(count=len(user_ids)), user_ids, strict=True)
    ]


def issue_token(*, sale: SeckillVoucher, user_id: int, now_ms: int) -> PurchaseToken:
    """Return a new token for one buyer, even before the sale starts.

    :raises SaleEnded: the sale is over.
    :raises LedgerUnavailable: Redis did not respond.
    """
    if epoch_ms(sale.ends_at) <= now_ms:
        raise SaleEnded("the sale is over")
    return issue_tokens(sale=sale, user_ids=[user_id])[0]


def read_token(text: object, *, sale_id: int, now_ms: int) -> PurchaseToken:
    """Verify a purchase token sent for this sale.

    :raises MalformedToken: the text is not a token.
    :raises BadToken: its signature, sale or expiry is wrong.
    """
    if not isinstance(text, str) or len(text) > _MAX_LENGTH:
        raise MalformedToken("not a text of a token's length")
    payload, _, signature = text.rpartition(":")
    match = _PAYLOAD.fullmatch(payload)
    if match is None:
        raise MalformedToken("not the fields of a token")
    if not signature.isascii() or not _current_signer().has_signed(payload, signature):
        raise BadToken("the signature is wrong")
    token = PurchaseToken(*map(int, match.groups(default="0")))
    is_expired = token.expires_at_ms + CLOCK_TOLERANCE_MS <= now_ms
    if token.sale_id != sale_id or is_expired or token.order_id > LARGEST_ID:
        raise BadToken("the token is expired or another sale's")
    return token
