"""Mails and refunds of real processes, noted in a file; each takes as long as another file says."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend

from orders.payments.providers import Refund
from tests.support.file_provider import FileProvider

NOTES = "TEST_NOTES"
"""The environment variable that names the directory of both files."""


class Note(NamedTuple):
    """Something that was done: a kind, for whom, and when."""

    kind: str
    what: str
    at_s: float


def read_notes(directory: Path) -> list[Note]:
    path = directory / "notes"
    lines = path.read_text().splitlines() if path.exists() else []
    return [Note(*json.loads(line)) for line in lines]


def take(directory: Path, seconds: float) -> None:
    """Let each mail and refund take so long from now on."""
    (part := directory / "seconds.part").write_text(str(seconds))
    part.rename(directory / "seconds")


def note(kind: str, what: str) -> None:
    directory = Path(os.environ[NOTES])
    with (directory / "notes").open("a") as file:
        file.write(json.dumps([kind, what, time.time()]) + "\n")
    time.sleep(float((directory / "seconds").read_text()))


class Mails(BaseEmailBackend):
    """A mail server that accepts everything."""

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        for message in email_messages:
            note("mail", f"{message.to[0]} {message.subject}")
        return len(email_messages)


class Provider(FileProvider):
    """A provider that makes each refund that it is asked for."""

    name = "noted"

    def refund(self, refund: Refund) -> bool:
        note("refund", f"{refund.reference} {refund.number}")
        return True
