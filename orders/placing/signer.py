"""Signatures of tokens and places, by Django's signer with the present keys."""

from collections.abc import Callable
from functools import cache

from django.conf import settings
from django.core import signing
from django.utils.crypto import salted_hmac

from seckill_site.kept_settings import kept


class Signer(signing.Signer):
    """Django's signer, which also answers with a truth value and draws numbers."""

    def has_signed(self, text: str) -> bool:
        """Return whether ``unsign`` accepts the text, whatever characters it has."""
        if not text.isascii():  # Django cannot encode half of a pair of surrogates
            return False
        try:
            self.unsign(text)
        except signing.BadSignature:
            return False
        return True

    def number(self, value: str) -> int:
        """Return a number below 2^32 that nobody without the key can tell from a random one."""
        mac = salted_hmac(f"{self.salt}.number", value, self.key, algorithm="sha256")
        return int.from_bytes(mac.digest()[:4])


def current_signer(salt: str) -> Signer:
    """Return the signer for this salt with the present keys."""
    return _current_signers()(salt)


@kept
def _current_signers() -> Callable[[str], Signer]:
    key, fallback_keys = settings.SECRET_KEY, list(settings.SECRET_KEY_FALLBACKS)
    return cache(lambda salt: Signer(key=key, fallback_keys=fallback_keys, salt=salt))
