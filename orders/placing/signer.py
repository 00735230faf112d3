"""Signatures of tokens and places: Django's, only faster."""

from binascii import b2a_base64
from collections.abc import Callable
from functools import cache, lru_cache
from hmac import HMAC, compare_digest

from django.conf import settings
from django.core import signing
from django.utils.crypto import salted_hmac

from seckill_site.kept_settings import kept

_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class Signer(signing.Signer):
    """Django's signer, with the key derived once per salt instead of once per text."""

    def signature(self, value: str | bytes, key: str | bytes | None = None) -> str:
        mac = _keyed(self.salt, key or self.key).copy()
        mac.update(value.encode() if isinstance(value, str) else value)
        # As signing.b64_encode(), without its Python.
        return b2a_base64(mac.digest(), newline=False).translate(_URL_SAFE, b"=").decode()

    def has_signed(self, value: str, signature: str) -> bool:
        """Return whether ``unsign`` would accept the signature, only faster."""
        if not signature.isascii():
            return False
        if compare_digest(signature, self.signature(value)):
            return True
        olds = self.fallback_keys
        return any(compare_digest(signature, self.signature(value, key)) for key in olds)

    def number(self, value: str) -> int:
        """Return a number below 2^32 that nobody without the key can tell from a random one."""
        mac = _keyed(str(self.salt) + ".number", self.key).copy()
        mac.update(value.encode())
        return int.from_bytes(mac.digest()[:4])


@lru_cache(maxsize=16)
def _keyed(salt: str, key: str | bytes) -> HMAC:
    return salted_hmac(salt + "signer", "", key, algorithm="sha256")


def current_signer(salt: str) -> Signer:
    """Return the signer for this salt with the present keys."""
    return _current_signers()(salt)


@kept
def _current_signers() -> Callable[[str], Signer]:
    key, fallback_keys = settings.SECRET_KEY, list(settings.SECRET_KEY_FALLBACKS)
    return cache(lambda salt: Signer(key=key, fallback_keys=fallback_keys, salt=salt))
