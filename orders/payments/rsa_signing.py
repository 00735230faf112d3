"""RSA signatures with SHA-256, which Alipay (RSA2) and WeChat Pay (SHA256-RSA2048) share."""

import base64
import binascii
from functools import lru_cache
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    load_der_private_key,
    load_der_public_key,
    load_pem_private_key,
    load_pem_public_key,
)


class BadKey(ValueError):
    """A key in the settings cannot be read. The message never quotes it."""


def sign(message: bytes, private_key: str) -> str:
    """Return the signature in base64.

    :raises BadKey: the key cannot be read.
    """
    signature = read_private_key(private_key).sign(message, PKCS1v15(), SHA256())
    return base64.b64encode(signature).decode()


def is_signed(message: bytes, signature: str, public_key: str) -> bool:
    """Return whether this signature in base64 is of this message, which may both be anything.

    :raises BadKey: the key cannot be read.
    """
    key = read_public_key(public_key)
    try:
        key.verify(base64.b64decode(signature, validate=True), message, PKCS1v15(), SHA256())
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


@lru_cache(maxsize=8)
def read_private_key(text: str) -> RSAPrivateKey:
    """Read a key in PEM, or its base64 alone, as the tools of the providers write it.

    :raises BadKey: it cannot be read.
    """
    key = _read(text, "private", pem=load_pem_private_key, der=load_der_private_key, password=None)
    if not isinstance(key, RSAPrivateKey):
        raise BadKey("the private key is not of RSA")
    return key


@lru_cache(maxsize=8)
def read_public_key(text: str) -> RSAPublicKey:
    """Read a key in PEM, or its base64 alone; raises as ``read_private_key``."""
    key = _read(text, "public", pem=load_pem_public_key, der=load_der_public_key)
    if not isinstance(key, RSAPublicKey):
        raise BadKey("the public key is not of RSA")
    return key


def _read(text: str, kind: str, *, pem: Any, der: Any, **options: Any) -> object:
    try:
        if "-----BEGIN" in text:
            return pem(text.encode(), **options)
        return der(base64.b64decode(text, validate=True), **options)
    except (ValueError, TypeError) as error:
        raise BadKey(f"the {kind} key cannot be read") from error
