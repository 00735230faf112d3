"""Keys of stand-ins: made once for a test run."""

from __future__ import annotations

import base64
from functools import cache
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


class KeyPair(NamedTuple):
    """An RSA key in base64 without PEM's frame, as the tools of the providers write it."""

    private: str
    public: str


@cache
def key_pair(owner: str) -> KeyPair:
    """Return the key of the shop, of a provider, or of somebody else."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return KeyPair(base64.b64encode(private).decode(), base64.b64encode(public).decode())
