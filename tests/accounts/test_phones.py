"""Phones: an optional identity, confirmed by a code."""

from __future__ import annotations

import datetime as dt

import pytest
import time_machine
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.test import Client

from accounts import phones
from accounts.contacts import confirmed_contact
from accounts.models import Phone
from accounts.phones import ConsoleBackend, PhoneNumberField, as_phone
from backoffice.customers import find_customers
from tests.support.accounts import PASSWORD, code_in, signed_in_as

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("cheap_passwords"), pytest.mark.quick]
NUMBER, OTHER_NUMBER = "+8613800000001", "+8613800000002"


class Provider:
    """Keeps what it is to send."""

    sent: list[tuple[str, str]] = []

    def send(self, phone: str, text: str) -> None:
        Provider.sent.append((phone, text))


class Away:
    def send(self, phone: str, text: str) -> None:
        raise ConnectionRefusedError


@pytest.fixture(autouse=True)
def sent(settings) -> list[tuple[str, str]]:
    """The texts that were sent."""
    settings.SECKILL_SMS_BACKEND = f"{__name__}.Provider"
    Provider.sent = []
    return Provider.sent


@pytest.fixture
def ada() -> User:
    user = User.objects.create_user("ada", password=PASSWORD)
    Phone.objects.create(user=user, number=NUMBER)
    return user


MARKS = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\ufeff"


@pytest.mark.parametrize(
    "text",
    [
        "13800000001", "138 0000 0001", "+86 138-0000-0001", NUMBER, "008613800000001",
        "0086 (138) 0000.0001", "8613800000001", "１３８０００００００１",
        "＋８６　１３８－００００－０００１",
        "٠٠٨٦١٣٨٠٠٠٠٠٠٠١", "\u202a+86 138 0000 0001\u202c", f"{MARKS}13800000001{MARKS}",
        "138\u20110000–0001", "\t138\u00a00000\u30000001\n",
    ],
)  # fmt: skip
def test_numbers_are_stored_in_one_spelling(text):
    assert as_phone(text) == NUMBER
    assert PhoneNumberField().clean(text) == NUMBER


@pytest.mark.parametrize("text", ["０１２３４５", "+138", "00", "one", "+８６1380000000x"])
def test_other_text_is_no_number(text):
    with pytest.raises(ValidationError):
        PhoneNumberField().clean(text)


@pytest.mark.parametrize("typed", ["\u202a+86 138 0000 0001\u202c", "１３８０００００００１"])
def test_account_is_found_by_a_pasted_number(client, ada, sent, typed):
    client.post("/accounts/login/", {"username": typed, "password": PASSWORD})
    assert signed_in_as(client) == "ada"
    assert find_customers(typed) == [ada.pk]
    client = Client()
    client.post("/accounts/login/code/", {"phone": typed})
    assert [number for number, _ in sent] == [NUMBER]


def test_sign_up_by_a_code_to_a_phone(client, sent):
    client.post("/accounts/signup/", {"username": "ada", "phone": "13800000001"})
    assert signed_in_as(client) is None
    [(number, text)] = sent
    assert number == NUMBER
    assert not Phone.objects.exists()

    client.post("/accounts/login/code/confirm/", {"code": code_in(text)})

    assert signed_in_as(client) == "ada"
    assert confirmed_contact(User.objects.get()).phone == NUMBER


def test_sign_in_by_a_code_to_a_phone(client, ada, sent):
    client.post("/accounts/login/code/", {"phone": "13800000001"})

    client.post("/accounts/login/code/confirm/", {"code": code_in(sent[0][1])})

    assert signed_in_as(client) == "ada"


def test_sign_in_by_phone_and_password(client, ada):
    client.post("/accounts/login/", {"username": "13800000001", "password": PASSWORD})

    assert signed_in_as(client) == "ada"


def test_sign_up_with_password_confirms_the_phone_too(client, sent):
    form = {"username": "ada", "phone": NUMBER, "password1": PASSWORD, "password2": PASSWORD}
    response = client.post("/accounts/signup/", form)
    assert response["Location"] == "/accounts/phone/verify/"

    client.post("/accounts/phone/verify/", {"code": code_in(sent[0][1])})

    assert signed_in_as(client) == "ada"
    assert confirmed_contact(User.objects.get()).phone == NUMBER


def test_unconfirmed_phone_holds_nobody_up(client, sent):
    form = {"username": "ada", "phone": NUMBER, "password1": PASSWORD, "password2": PASSWORD}
    client.post("/accounts/signup/", form)

    other = Client()
    other.post("/accounts/login/", {"username": "ada", "password": PASSWORD})

    assert signed_in_as(other) == "ada"


def test_unknown_phone_gets_nothing_and_the_same_answer(ada, sent):
    known = Client().post("/accounts/login/code/", {"phone": NUMBER})
    unknown = Client().post("/accounts/login/code/", {"phone": "+8613800000002"})

    assert known["Location"] == unknown["Location"]
    assert [number for number, _ in sent] == [NUMBER]


PASSWORDS = {"password1": PASSWORD, "password2": PASSWORD}


@pytest.mark.parametrize("passwords", [PASSWORDS, {}], ids=["password", "code"])
def test_sign_up_tells_no_number(ada, passwords):
    known, unknown = (
        Client().post("/accounts/signup/", {"username": name, "phone": number, **passwords})
        for name, number in (("eve", NUMBER), ("bob", OTHER_NUMBER))
    )

    assert (known.status_code, known["Location"]) == (unknown.status_code, unknown["Location"])
    assert User.objects.filter(username="bob").exists()


def test_taken_phone_is_not_confirmed_again(client, ada, sent):
    client.post("/accounts/signup/", {"username": "eve", "phone": NUMBER, **PASSWORDS})

    response = client.post("/accounts/phone/verify/", {"code": code_in(sent[0][1])})

    assert response.status_code == 200
    assert signed_in_as(client) is None
    assert Phone.objects.get().user == ada


def test_sign_up_by_code_takes_one_address(client, sent):
    form = {"username": "ada", "phone": NUMBER, "email": "ada@example.com"}
    response = client.post("/accounts/signup/", form)

    assert list(response.context["form"].errors) == ["phone"]
    assert sent == []


@pytest.mark.servers
@pytest.mark.parametrize("passwords", [PASSWORDS, {}], ids=["password", "code"])
def test_sign_ups_send_three_codes_to_a_number(sent, passwords):
    for number in range(5):
        form = {"username": f"ada{number}", "phone": NUMBER, **passwords}
        Client().post("/accounts/signup/", form)

    assert len(sent) == 3


@pytest.mark.parametrize(("minutes", "known"), [(4, True), (6, False)])
def test_code_for_a_phone_is_valid_for_five_minutes(client, sent, minutes, known):
    client.post("/accounts/signup/", {"username": "ada", "phone": NUMBER, **PASSWORDS})

    with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(minutes=minutes)):
        client.post("/accounts/phone/verify/", {"code": code_in(sent[0][1])})

    assert Phone.objects.exists() is known


def test_phone_is_added_and_changed(client, sent):
    user = User.objects.create_user("ada", password=PASSWORD)
    client.post("/accounts/login/", {"username": "ada", "password": PASSWORD})

    for number in (NUMBER, "+8613800000002"):
        cache.clear()
        client.post("/accounts/phone/change/", {"phone": number})
        client.post("/accounts/phone/verify/", {"code": code_in(sent[-1][1])})
        assert confirmed_contact(user).phone == number


def test_provider_that_is_away_tells_no_number_and_is_logged(ada, settings, caplog):
    settings.SECKILL_SMS_BACKEND = f"{__name__}.Away"

    known = Client().post("/accounts/login/code/", {"phone": NUMBER})
    unknown = Client().post("/accounts/login/code/", {"phone": OTHER_NUMBER})

    assert (known.status_code, known["Location"]) == (unknown.status_code, unknown["Location"])
    assert "a code was not sent to a phone" in caplog.text


@pytest.mark.parametrize("number", ["1", "abc", "+0123456789", "+86138000000011111", "１３８"])
def test_malformed_number_is_refused(client, number):
    response = client.post("/accounts/login/code/", {"phone": number})

    assert list(response.context["form"].errors) == ["phone"]


def test_console_shows_the_text(capsys, settings):
    settings.SECKILL_SMS_BACKEND = "accounts.phones.ConsoleBackend"

    phones.send_text(NUMBER, "hello")

    assert capsys.readouterr().out == f"SMS to {NUMBER}: hello\n"
    assert isinstance(phones._backend(settings.SECKILL_SMS_BACKEND), ConsoleBackend)


@pytest.mark.servers
def test_codes_to_a_new_phone_are_limited(client, sent):
    statuses = []
    for number in range(5):
        client.force_login(User.objects.create_user(f"ada{number}"))
        response = client.post("/accounts/phone/change/", {"phone": OTHER_NUMBER})
        statuses.append(response.status_code)

    assert statuses == [302] * 3 + [429] * 2
    assert len(sent) == 3


@pytest.mark.servers
@pytest.mark.parametrize("per_address", [3, 0])
def test_texts_of_an_address_are_limited_by_the_day(sent, settings, per_address):
    texts = f"{per_address}/d/key" if per_address else None
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, "texts_of_client": texts}
    statuses = set()
    for number in range(5):
        phone = f"+861380000001{number}"
        user = User.objects.create_user(f"ada{number}")
        Phone.objects.create(user=user, number=phone)
        with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(hours=number)):
            statuses.add(Client().post("/accounts/login/code/", {"phone": phone}).status_code)

    assert len(sent) == (per_address or 5)
    assert statuses == ({302, 429} if per_address else {302})


CONFIRM = "/accounts/login/code/confirm/"


def ask_for_code(number: str, *, resends: int, address: str = "127.0.0.1") -> list[int]:
    """Ask for a code in a new session, and for it again; return the statuses."""
    client = Client(REMOTE_ADDR=address)
    asked = client.post("/accounts/login/code/", {"phone": number})
    again = [client.post(CONFIRM, {"action": "resend"}) for _ in range(resends)]
    return [it.status_code for it in (asked, *again)]


@pytest.mark.servers
@pytest.mark.parametrize("number", [NUMBER, OTHER_NUMBER], ids=["known", "unknown"])
def test_text_that_is_sent_again_counts(ada, sent, settings, number):
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, "texts_of_client": "2/d/key"}

    assert ask_for_code(number, resends=2) == [302, 302, 302]
    assert len(sent) == (2 if number == NUMBER else 0)
    for other in (NUMBER, OTHER_NUMBER):
        assert ask_for_code(other, resends=0) == [429]


@pytest.mark.servers
def test_refused_text_is_told(ada, settings):
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, "texts_of_client": "1/d/key"}
    client = Client(headers={"accept-language": "en"})
    client.post("/accounts/login/code/", {"phone": NUMBER})

    page = client.post(CONFIRM, {"action": "resend"}, follow=True)

    assert "Too many requests" in str(list(page.context["messages"])[-1])


def test_unknown_phone_asks_again_with_the_same_answer(ada):
    told = []
    for number in (NUMBER, OTHER_NUMBER):
        client = Client()
        client.post("/accounts/login/code/", {"phone": number})
        pages = [client.post(CONFIRM, {"action": "resend"}, follow=True) for _ in range(3)]
        told.append([(it.status_code, it.redirect_chain, it.context["can_resend"]) for it in pages])

    assert told[0] == told[1]


@pytest.mark.servers
def test_requests_at_once_send_five_texts_to_a_number(client, ada, sent):
    client.post("/accounts/login/code/", {"phone": NUMBER})
    before = dict(client.session.items())
    for _ in range(12):
        client.post(CONFIRM, {"action": "resend"})
        session = client.session
        session.update(before)  # as a request has read it that came at the same time
        session.save()

    assert len(sent) == 5


@pytest.mark.servers
def test_twenty_texts_reach_a_number_from_everywhere(ada, sent):
    for last in range(7):
        ask_for_code(NUMBER, resends=2, address=f"198.51.100.{last}")

    assert len(sent) == 20


@pytest.mark.servers
def test_sign_up_beyond_the_limit_creates_no_account(sent, settings):
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, "texts_of_client": "1/d/key"}
    for number, passwords in enumerate([PASSWORDS, PASSWORDS, {}]):
        form = {"username": f"ada{number}", "phone": f"+861380000001{number}", **passwords}
        Client().post("/accounts/signup/", form)

    assert [it.username for it in User.objects.all()] == ["ada0"]
    assert len(sent) == 1


def test_texts_have_a_daily_limit(settings):
    assert settings.ACCOUNT_RATE_LIMITS["texts_of_client"] == "100/d/key"


@pytest.mark.servers
def test_client_of_a_unix_socket_shares_no_count(ada, sent):
    for _ in range(5):
        Client(REMOTE_ADDR="").post("/accounts/login/code/", {"phone": NUMBER})
    assert len(sent) == 5
