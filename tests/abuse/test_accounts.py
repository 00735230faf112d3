"""Attacks on accounts: which exist, stolen sessions, codes used twice, false hosts in links."""

from __future__ import annotations

import re
from typing import Any

import pytest
from allauth.account.auth_backends import AuthenticationBackend
from allauth.account.models import EmailAddress
from allauth.core import context
from django.contrib.auth.hashers import MD5PasswordHasher
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client
from pytest_django import Settings

from accounts import adapter
from accounts.adapter import AccountAdapter
from accounts.forms import SignUpForm
from accounts.models import Phone
from accounts.sessions import end_all_sessions
from seckill_site.sessions import SessionStore
from tests.abuse import guard_and_control
from tests.support import asgi
from tests.support.accounts import PASSWORD, code_in
from tests.support.tiers import slow_after

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("cheap_passwords")]

EMAIL = "ada@example.com"
ELSEWHERE = "203.0.113.9"
OFF = 0


@pytest.fixture
def ada() -> User:
    user = User.objects.create_user("ada", EMAIL, PASSWORD)
    EmailAddress.objects.create(user=user, email=EMAIL, verified=True, primary=True)
    return user


def sign_in(client: Client, name: str = "ada", password: str = PASSWORD) -> int:
    response = client.post("/accounts/login/", {"username": name, "password": password})
    return response.status_code


def sign_up(client: Client, name: str, email: str = "", **extra: Any) -> Any:
    fields = {"username": name, "email": email, "password1": PASSWORD, "password2": PASSWORD}
    return client.post("/accounts/signup/", fields, **extra)


def ask_for_code(client: Client, email: str = EMAIL, **extra: Any) -> Any:
    return client.post("/accounts/login/code/", {"email": email}, **extra)


def send_code(client: Client, code: str) -> None:
    client.post("/accounts/login/code/confirm/", {"code": code})


def mailed_code() -> str:
    return code_in(mail.outbox[-1].body)


def has_signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def turn_off(settings: Settings, limit: str) -> None:
    """Turn off a limit that allauth counts."""
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, limit: None}


def is_signed_in(key: str) -> bool:
    """Say whether a session's key is good at the front door."""
    return bool(asgi.ask("GET", "/me/", HTTP_COOKIE=f"sessionid={key}").json["signed_in"])


# --- Which accounts exist -------------------------------------------------------------------------


@pytest.mark.parametrize("known", slow_after(1, ["ada", EMAIL]))
def test_failed_sign_in_tells_no_name(ada: User, known: str) -> None:
    """The answers differ by the name that was typed, and by nothing else."""
    unknown = known.replace("ada", "eve")
    pages = []
    for name in (known, unknown):
        response = Client().post("/accounts/login/", {"username": name, "password": "wrong"})
        text = response.content.decode().replace(name, "")
        pages.append((response.status_code, re.sub(r'value="\w{64}"', "", text)))

    assert pages[0] == pages[1]


@guard_and_control
@pytest.mark.parametrize("name", ["ada", "eve", "eve@example.com"])
def test_failed_sign_in_takes_as_long_for_any_name(
    ada: User, name: str, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearly all of its time goes into hashing: one password, whether the name exists or not."""
    hashed: list[str] = []
    encode = MD5PasswordHasher.encode

    def count(hasher: MD5PasswordHasher, password: str, salt: str) -> str:
        hashed.append(password)
        return encode(hasher, password, salt)

    monkeypatch.setattr(MD5PasswordHasher, "encode", count)
    if not guarded:
        monkeypatch.setattr(AuthenticationBackend, "_mitigate_timing_attack", lambda *_: None)

    sign_in(Client(), name, "wrong")

    assert len(hashed) == (1 if guarded or name == "ada" else 0)


@guard_and_control
def test_sign_up_tells_no_address(
    ada: User, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address belongs to whoever confirms it, so a sign-up with it is like any other."""
    if not guarded:
        monkeypatch.delattr(SignUpForm, "validate_unique_email")
    answers = []
    for name, email in (("bob", EMAIL), ("eve", "eve@example.com")):
        response = sign_up(Client(), name, email)
        answers.append((response.status_code, response.headers.get("Location")))

    assert (answers[0] == answers[1]) is guarded


# --- Guessing -------------------------------------------------------------------------------------


@guard_and_control
@pytest.mark.parametrize("name", ["ada", "eve"])
def test_name_is_locked_whether_it_exists(
    ada: User, name: str, guarded: bool, settings: Settings
) -> None:
    """Whoever goes on may find the password."""
    if not guarded:
        turn_off(settings, "login_failed")

    statuses = [sign_in(Client(), name, "wrong") for _ in range(6)]
    statuses.append(sign_in(Client(), name))

    found = 302 if name == "ada" else 200
    assert statuses == [200] * 5 + ([429, 429] if guarded else [200, found])


@guard_and_control
def test_lock_holds_for_every_name_of_an_account(
    ada: User, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control counts each name that was typed."""
    Phone.objects.create(user=ada, number="+8613800000001")
    if not guarded:
        monkeypatch.setattr("accounts.adapter.find_account", lambda **_: None)

    for name in ("ada", EMAIL, "13800000001", "138 0000 0001", "+86 13800000001"):
        assert sign_in(Client(), name, "wrong") == 200

    assert sign_in(Client(), "138-0000-0001") == (429 if guarded else 302)


def test_number_without_account_is_locked_in_every_spelling() -> None:
    spellings = ["13800000001", "138 0000 0001", "+8613800000001", "138-0000-0001", "(138)00000001"]
    assert [sign_in(Client(), it) for it in [*spellings, "1380000 0001"]] == [200] * 5 + [429]


@guard_and_control
def test_lock_holds_at_one_address_alone(
    ada: User, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever types wrong passwords elsewhere locks nobody out; the control counts names alone."""
    if not guarded:

        def by_name(self: AccountAdapter, request: Any, **credentials: Any) -> str:
            return str(credentials["username"])

        monkeypatch.setattr(AccountAdapter, "_get_login_attempts_cache_key", by_name)

    for _ in range(6):
        fields = {"username": "ada", "password": "wrong"}
        Client().post("/accounts/login/", fields, REMOTE_ADDR=ELSEWHERE)

    assert sign_in(Client()) == (302 if guarded else 429)


@pytest.mark.parametrize(("per_address", "status"), [(5, 429), (OFF, 302)])
def test_one_password_is_tried_with_few_names(
    ada: User, settings: Settings, per_address: int, status: int
) -> None:
    """No name fails twice, so no name is locked."""
    settings.SECKILL_SIGN_INS_PER_ADDRESS = per_address
    for number in range(5):
        sign_in(Client(REMOTE_ADDR=ELSEWHERE), f"name{number}")

    assert sign_in(Client(REMOTE_ADDR=ELSEWHERE)) == status


@guard_and_control
def test_code_is_not_guessed(ada: User, guarded: bool, settings: Settings) -> None:
    if not guarded:
        settings.ACCOUNT_LOGIN_BY_CODE_MAX_ATTEMPTS = 1_000
    client = Client()
    ask_for_code(client)
    right = mailed_code()
    for guess in ("none", "nothing", "nought", right):
        send_code(client, guess)

    assert has_signed_in(client) is not guarded


@guard_and_control
def test_nobody_gets_many_codes(ada: User, guarded: bool, settings: Settings) -> None:
    """Each would be good for three more guesses, and a mail that nobody wants."""
    if not guarded:
        turn_off(settings, "code_of_client")
    for _ in range(5):
        ask_for_code(Client(REMOTE_ADDR=ELSEWHERE))

    assert len(mail.outbox) == (3 if guarded else 5)


@guard_and_control
def test_nobody_gets_many_codes_by_many_addresses(
    ada: User, guarded: bool, settings: Settings
) -> None:
    if not guarded:
        turn_off(settings, "request_login_code")
    for number in range(15):
        ask_for_code(Client(REMOTE_ADDR=f"203.0.113.{number}"))

    assert len(mail.outbox) == (12 if guarded else 15)


@guard_and_control
@pytest.mark.parametrize("path", ["/accounts/login/code/", "/accounts/password/reset/"])
def test_stranger_keeps_nobody_from_their_codes(
    ada: User, guarded: bool, path: str, settings: Settings
) -> None:
    """The control counts a name alone, whoever asks."""
    if not guarded:
        both = dict.fromkeys(("request_login_code", "reset_password"), "3/10m/key")
        settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, **both}
    for _ in range(8):
        Client().post(path, {"email": EMAIL}, REMOTE_ADDR=ELSEWHERE)
    assert len(mail.outbox) == 3

    Client().post(path, {"email": EMAIL})

    assert len(mail.outbox) == (4 if guarded else 3)


@pytest.mark.slow
@pytest.mark.parametrize(("per_address", "accounts"), [(20, 20), (OFF, 21)])
def test_twenty_first_sign_up_of_an_address(
    settings: Settings, per_address: int, accounts: int
) -> None:
    settings.SECKILL_SIGN_UPS_PER_ADDRESS = per_address

    for number in range(21):
        sign_up(Client(), f"name{number}", REMOTE_ADDR=ELSEWHERE)

    assert User.objects.count() == accounts


# --- Sessions -------------------------------------------------------------------------------------


@guard_and_control
@pytest.mark.django_db(transaction=True)  # the cache takes them after the commit
def test_planted_session_is_never_signed_in(
    ada: User, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attacker has a session, and plants its key in the browser of the victim."""
    if not guarded:
        monkeypatch.setattr(SessionStore, "cycle_key", lambda store: None)
    attacker, victim = Client(), Client()
    attacker.session.save()
    victim.cookies["sessionid"] = planted = attacker.cookies["sessionid"].value
    assert not is_signed_in(planted)

    sign_in(victim)

    assert is_signed_in(victim.cookies["sessionid"].value)
    assert is_signed_in(planted) is not guarded


def test_made_up_key_is_never_signed_in(ada: User) -> None:
    """A key that nobody was given is no session, so its place is never taken."""
    victim = Client()
    victim.cookies["sessionid"] = planted = "a" * 32

    sign_in(victim)

    assert victim.cookies["sessionid"].value != planted
    assert not is_signed_in(planted)


@guard_and_control
@pytest.mark.django_db(transaction=True)
def test_stolen_session_ends_with_all_others(ada: User, guarded: bool) -> None:
    victim = Client()
    sign_in(victim)
    stolen = victim.cookies["sessionid"].value
    assert is_signed_in(stolen)

    if guarded:
        end_all_sessions(ada)

    assert is_signed_in(stolen) is not guarded


@guard_and_control
@pytest.mark.django_db(transaction=True)
def test_key_copied_before_the_sign_out_is_worthless(
    ada: User, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the control the browser forgets its key, as it does anyway, and the session stays."""
    if not guarded:
        monkeypatch.setattr(SessionStore, "delete", lambda store, key=None: None)
    victim = Client()
    sign_in(victim)
    copied = victim.cookies["sessionid"].value
    assert is_signed_in(copied)

    victim.post("/accounts/logout/")

    assert is_signed_in(copied) is not guarded


# --- Codes ----------------------------------------------------------------------------------------


@guard_and_control
@pytest.mark.django_db(transaction=True)
def test_code_signs_in_once(ada: User, guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever copied the session that waits for the code, and then reads the code, is too late."""
    if not guarded:
        monkeypatch.setattr(SessionStore, "delete", lambda store, key=None: None)
    client, thief = Client(), Client()
    ask_for_code(client)
    thief.cookies["sessionid"] = client.cookies["sessionid"].value
    send_code(client, mailed_code())
    assert has_signed_in(client)

    send_code(thief, mailed_code())

    assert has_signed_in(thief) is not guarded


def test_code_is_void_after_the_sign_out(ada: User) -> None:
    client = Client()
    ask_for_code(client)
    send_code(client, mailed_code())
    assert has_signed_in(client)
    client.post("/accounts/logout/")

    send_code(client, mailed_code())

    assert not has_signed_in(client)


def test_code_is_good_in_the_browser_that_asked_alone(ada: User) -> None:
    """The control is the browser that asked."""
    asked, other = Client(), Client()
    ask_for_code(asked)
    code = mailed_code()

    ask_for_code(other, "eve@example.com")
    send_code(other, code)
    send_code(asked, code)

    assert (has_signed_in(other), has_signed_in(asked)) == (False, True)


# --- Hosts ----------------------------------------------------------------------------------------


SIGN_UP = {"username": "eve", "email": "eve@x.cn", "password1": PASSWORD, "password2": PASSWORD}


@guard_and_control
@pytest.mark.parametrize(
    ("path", "fields"),
    [("/accounts/password/reset/", {"email": EMAIL}), ("/accounts/signup/", SIGN_UP)],
)
def test_mailed_link_names_this_site_alone(
    ada: User,
    settings: Settings,
    path: str,
    fields: dict[str, str],
    guarded: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control takes the site's address from the request, as allauth does."""
    settings.ALLOWED_HOSTS = ["*"]  # as careless as a shop can be
    settings.SECKILL_SITE_URL = "https://shop.example"
    if not guarded:
        monkeypatch.setattr(
            adapter, "absolute_url", lambda path: context.request.build_absolute_uri(path)
        )

    Client().post(
        path, fields, headers={"Host": "evil.example", "X-Forwarded-Host": "evil.example"}
    )

    text = str(mail.outbox[0].body)
    assert ("https://shop.example/accounts/" in text) is guarded
    assert ("evil.example" in text) is not guarded
