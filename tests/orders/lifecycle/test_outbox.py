"""The outbox reaches a reader by the first channel that can, and by any class of the settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from accounts.contacts import Contact
from orders.lifecycle.notices import send_notices
from orders.lifecycle.outbox import Mail, Message, Refused, Send, Text, channel_to
from tests.support.notices import make_notice, make_reader
from tests.support.orders import make_sale

EMAIL, PHONE = "ann@example.com", "+8613800000001"


class WorkChat:
    """A channel of a shop's own, which reaches everybody but refuses some for good."""

    got: list[tuple[str, Message]] = []

    def address_of(self, user_id: int, to: Contact) -> str:
        return f"chat-{user_id}"

    @contextmanager
    def opened(self) -> Iterator[Send]:
        yield self._send

    def _send(self, address: str, message: Message) -> None:
        self.got.append((address, message))
        if len(self.got) > 1:
            raise Refused("by the test")


@pytest.mark.parametrize(
    ("to", "channel", "address"),
    [
        (Contact(email=EMAIL, phone=PHONE), Mail, EMAIL),
        (Contact(phone=PHONE), Text, PHONE),
    ],
)
def test_first_channel_that_reaches_a_reader_is_used(
    to: Contact, channel: type[Any], address: str
) -> None:
    found = channel_to(1, to)

    assert found
    assert (type(found[0]), found[1]) == (channel, address)


def test_reader_without_contact_is_reached_by_no_channel() -> None:
    assert channel_to(1, Contact()) is None


@pytest.mark.django_db
def test_channel_of_the_settings_gets_the_notices(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SECKILL_NOTICE_CHANNELS = [f"{__name__}.WorkChat", "orders.lifecycle.outbox.Mail"]
    monkeypatch.setattr(WorkChat, "got", [])
    sale = make_sale(begins_in_s=300)
    asked = [make_notice(sale, make_reader()) for _ in range(2)]

    assert not send_notices(now=timezone.now())

    assert [address for address, _ in WorkChat.got] == [f"chat-{it.user_id}" for it in asked]
    assert f"/vouchers/{sale.pk}/" in WorkChat.got[0][1].short
    assert mail.outbox == []
    assert not send_notices(now=timezone.now())
    assert len(WorkChat.got) == 2
