"""The outbox: sends messages one after the other, and says which of them to try again.

Its callers keep the messages in their own rows, and record there what was sent. A channel is a way
to reach readers; ``SECKILL_NOTICE_CHANNELS`` names those for notices (``docs/notices.md``).
"""

import logging
import smtplib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from time import monotonic
from typing import Any, Protocol

from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.core.mail.backends.base import BaseEmailBackend
from django.utils.module_loading import import_string

from accounts.contacts import Contact
from accounts.phones import send_text
from locks import RedisLock
from seckill_site.face.site_face import site_face
from seckill_site.metrics import counted

logger = logging.getLogger(__name__)


class TemporarilyRefused(Exception):
    """The server does not accept messages for this address at the moment."""


class Refused(Exception):
    """The server will never accept this message."""


@dataclass(frozen=True)
class Message:
    """What a reader is told, in their language.

    ``short`` says it in one line, for texts to phones. ``stop_url`` ends all such messages.
    """

    subject: str
    text: str
    short: str = ""
    stop_url: str = ""


Send = Callable[[str, Message], None]
"""Send a message to an address.

:raises TemporarilyRefused: the server may accept this message later.
:raises Refused: the server will never accept it.
:raises OSError: nothing can be sent at the moment.
"""


class Channel(Protocol):
    """A way to reach readers: a class without arguments."""

    def address_of(self, user_id: int, to: Contact) -> str:
        """Return where this channel reaches an account; empty if it cannot."""

    def opened(self) -> AbstractContextManager[Send]:
        """Connect to the server, and return the function that sends.

        :raises OSError: nothing can be sent at the moment.
        """


class Mail:
    """Mails to the confirmed address, all on one connection."""

    def address_of(self, user_id: int, to: Contact) -> str:
        """Return the confirmed address."""
        return to.email

    @contextmanager
    def opened(self) -> Iterator[Send]:
        """Connect to the mail server."""
        server: BaseEmailBackend = get_connection()
        with server:
            yield partial(_send_mail, server)


def _send_mail(server: BaseEmailBackend, address: str, message: Message) -> None:
    # A header has no line breaks, a title may.
    mail = EmailMessage(
        " ".join(message.subject.split()),
        message.text,
        site_face().mail_from,
        to=[address],
        connection=server,
    )
    if message.stop_url:  # RFC 8058
        mail.extra_headers["List-Unsubscribe"] = f"<{message.stop_url}>"
        mail.extra_headers["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    try:
        with counted("messages", "mail"):
            mail.send()
    except (smtplib.SMTPRecipientsRefused, smtplib.SMTPDataError) as error:
        codes = [error.smtp_code] if isinstance(error, smtplib.SMTPDataError) else []
        if isinstance(error, smtplib.SMTPRecipientsRefused):
            codes = [code for code, _ in error.recipients.values()]
        kind = TemporarilyRefused if any(code < 500 for code in codes) else Refused
        raise kind(f"codes {codes}") from error
    except (smtplib.SMTPNotSupportedError, ValueError) as error:
        raise Refused(repr(error)) from error


class Text:
    """Texts to the confirmed phone, through ``SECKILL_SMS_BACKEND``."""

    def address_of(self, user_id: int, to: Contact) -> str:
        """Return the confirmed phone number."""
        return to.phone

    @contextmanager
    def opened(self) -> Iterator[Send]:
        """Return the function that sends; the provider connects by itself."""
        yield _send_text


def _send_text(address: str, message: Message) -> None:
    try:
        send_text(address, message.short)
    except OSError as error:  # perhaps of this number only, so the others come first
        raise TemporarilyRefused(repr(error)) from error


def channel_to(user_id: int, to: Contact) -> tuple[Channel, str] | None:
    """Return the first channel of the settings that reaches a reader, and the address there."""
    for channel in _channels(tuple(settings.SECKILL_NOTICE_CHANNELS)):
        address = channel.address_of(user_id, to)
        if address:
            return channel, address
    return None


@lru_cache(maxsize=4)
def _channels(paths: tuple[str, ...]) -> list[Channel]:
    return [import_string(path)() for path in paths]


@dataclass(frozen=True)
class Letter:
    """A message to be sent; ``key`` identifies the caller's row.

    ``claim`` is called just before it is sent. If it returns nothing, the message is left out.
    """

    key: int
    channel: Channel
    address: str
    message: Message
    claim: Callable[[], object] = lambda: True


@dataclass
class Delivery:
    """The keys of the letters that are done with, and of those to try again later.

    ``sent`` counts those that a server accepted; the others that are done with, it never will.
    """

    done: list[int] = field(default_factory=list)
    later: list[int] = field(default_factory=list)
    sent: int = 0


def deliver(
    letters: Sequence[Letter],
    *,
    lock: RedisLock,
    record: Callable[[Delivery], Any],
    for_s: float = float("inf"),
) -> Delivery:
    """Send these letters while the lock is held; record the outcome even if a server goes away.

    After ``for_s`` seconds no other letter is sent. A channel that fails does not stop the others.

    :raises OSError: a server did not respond; its other letters remain.
    """
    delivery, until, failure = Delivery(), monotonic() + for_s, None
    try:
        for channel in dict.fromkeys(letter.channel for letter in letters):
            try:
                _deliver([it for it in letters if it.channel is channel], lock, until, delivery)
            except OSError as error:
                failure = failure or error
    finally:
        record(delivery)
    if failure:
        raise failure
    return delivery


def _deliver(letters: Sequence[Letter], lock: RedisLock, until: float, delivery: Delivery) -> None:
    with letters[0].channel.opened() as send:
        for letter in letters:
            if lock.lost or monotonic() > until:
                return
            if not letter.claim():
                continue
            try:
                send(letter.address, letter.message)
            except TemporarilyRefused as error:
                logger.warning("a message is tried again later: %s", error)
                delivery.later.append(letter.key)
                continue
            except Refused as error:
                logger.warning("a message was refused for good: %s", error)
            else:
                delivery.sent += 1
            delivery.done.append(letter.key)
