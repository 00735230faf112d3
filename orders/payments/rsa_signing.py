"""RSA signatures with SHA-256, which Alipay (RSA2) and WeChat Pay (SHA256-RSA2048) share."""

import base64
import binascii
from functools import lru_cache

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
    try:
        if "-----BEGIN" in text:
            key = load_pem_private_key(text.encode(), password=None)
        else:
            key = load_der_private_key(base64.b64decode(text, validate=True), password=None)
    except (ValueError, TypeError) as error:
        raise BadKey("the private key cannot be read") from error
    if not isinstance(key, RSAPrivateKey):
        raise BadKey("the private key is not of RSA")
    return key


@lru_cache(maxsize=8)
def read_public_key(text: str) -> RSAPublicKey:
    """Read a key in PEM, or its base64 alone.

    :raises BadKey: it cannot be read.
    """
    try:
        if "-----BEGIN" in text:
            key = load_pem_public_key(text.encode())
        else:
            key = load_der_public_key(base64.b64decode(text, validate=True))
    except ValueError as error:
        raise BadKey("the public key cannot be read") from error
    if not isinstance(key, RSAPublicKey):
        raise BadKey("the public key is not of RSA")
    return key
