"""Sending one message to a real receiver, which may be anything."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from api.webhooks import client as webhook_client
from api.webhooks.client import LARGEST_ANSWER_BYTES, SHOWN_CHARACTERS, Attempt, post
from tests.support.api import Receiver, answer, elsewhere, receiver

LOOPBACK = [ip_network("127.0.0.0/8"), ip_network("::1/128")]


@pytest.fixture(autouse=True)
def loopback_allowed(settings: Any) -> None:
    settings.SECKILL_WEBHOOK_HTTP = True
    settings.SECKILL_WEBHOOK_NETWORKS = LOOPBACK


@pytest.fixture
def it() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


def send(url: str, *, tls: Any = None, body: bytes = b"{}") -> Attempt:
    headers = {"Content-Type": "application/json"}
    return elsewhere(lambda: asyncio.run(post(url, headers=headers, body=body, tls=tls)))


@pytest.mark.parametrize("status", [200, 204, 299])
def test_success_is_an_answer_in_the_two_hundreds(it: Receiver, status: int) -> None:
    it.respond = answer(status, b"" if status == 204 else b"thanks")
    attempt = send(it.url)
    assert (attempt.status, attempt.succeeded, attempt.error) == (status, True, "")


@pytest.mark.parametrize("status", [302, 308])
def test_redirect_is_not_followed(it: Receiver, status: int) -> None:
    with receiver() as elsewhere:
        it.respond = answer(status, Location=elsewhere.url)
        attempt = send(it.url)
        assert elsewhere.got == []
    assert (attempt.status, attempt.succeeded) == (status, False)
    assert len(it.got) == 1


def test_private_receiver_is_not_reached(it: Receiver, settings: Any) -> None:
    assert send(it.url).succeeded, "the control: it is there"
    settings.SECKILL_WEBHOOK_NETWORKS = []

    attempt = send(it.url)

    assert (attempt.status, len(it.got)) == (None, 1)
    assert "not a public address" in attempt.error


def test_name_that_changes_its_address_is_not_asked_again(
    it: Receiver, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: public when it is checked, private when it would be connected to."""
    settings.SECKILL_WEBHOOK_NETWORKS = []
    port = int(it.url.rpartition(":")[2].partition("/")[0])
    answers = iter(["203.0.113.1", "127.0.0.1", "127.0.0.1"])
    real, asked = socket.getaddrinfo, list[str]()

    def getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host != "rebinding.example":
            return real(host, port, *args, **kwargs)
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(webhook_client, "TIMEOUT_S", 0.5)
    settings.SECKILL_WEBHOOK_NETWORKS = [ip_network("203.0.113.0/24")]

    attempt = send(f"http://rebinding.example:{port}/hook")

    assert (attempt.status, it.got, asked) == (None, [], ["rebinding.example"])


def test_host_header_names_the_host_not_the_address(it: Receiver) -> None:
    send(it.url)
    assert it.got[0].headers["host"].startswith("localhost:")
    assert it.got[0].path == "/hook"


def test_receiver_that_hangs_is_left(it: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    assert webhook_client.TIMEOUT_S == 3.0
    monkeypatch.setattr(webhook_client, "TIMEOUT_S", 0.3)
    it.respond = it.hang

    attempt = send(it.url)

    assert attempt.status is None
    assert "no answer within 0.3 s" in attempt.error


def test_huge_answer_is_not_read(it: Receiver) -> None:
    sent = 0

    def huge(handler: BaseHTTPRequestHandler) -> None:
        nonlocal sent
        handler.send_response(200)
        handler.send_header("Content-Length", str(1 << 30))
        handler.end_headers()
        while not it.released.is_set():
            sent += handler.wfile.write(b"x" * 65_536)

    it.respond = huge
    attempt = send(it.url)

    assert (attempt.status, attempt.answer) == (200, "x" * SHOWN_CHARACTERS)
    assert LARGEST_ANSWER_BYTES <= sent < 1 << 26


def test_endless_headers_are_not_read(it: Receiver) -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        while not it.released.is_set():
            handler.send_header("X-More", "x" * 60_000)
            handler.flush_headers()

    it.respond = endless
    attempt = send(it.url)
    assert (attempt.status, bool(attempt.error)) == (None, True)


def test_undecodable_answer_is_shown_as_far_as_possible(it: Receiver) -> None:
    it.respond = answer(500, b"\xff\0oops")
    assert send(it.url).answer == "��oops"


def test_refused_connection_is_an_error() -> None:
    attempt = send("http://127.0.0.1:1/")
    assert (attempt.status, attempt.succeeded) == (None, False)
    assert attempt.error.startswith("ConnectError")


# --- TLS ------------------------------------------------------------------------------------------


def certificate(path: Path, host: str) -> Path:
    """Write a certificate that signs itself, with its key."""
    import datetime as dt

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(pem))
    return path


@pytest.mark.parametrize(("host", "reached"), [("localhost", True), ("other.example", False)])
def test_certificate_must_be_of_the_host(tmp_path: Path, host: str, reached: bool) -> None:
    """The connection goes to an address, the certificate is checked against the name."""
    path = certificate(tmp_path / "cert.pem", host)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(path)
    with receiver(tls=serving) as it:
        attempt = send(it.url, tls=ssl.create_default_context(cafile=str(path)))
        assert attempt.succeeded is reached
        assert len(it.got) == reached


def test_unknown_certificate_is_refused(tmp_path: Path) -> None:
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate(tmp_path / "cert.pem", "localhost"))
    with receiver(tls=serving) as it:
        attempt = send(it.url)
        assert (attempt.status, it.got) == (None, [])
        assert "CERTIFICATE_VERIFY_FAILED" in attempt.error
