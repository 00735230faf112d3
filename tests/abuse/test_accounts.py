"""Attacks on accounts: which exist, stolen sessions, codes used twice, false hosts in links."""

from __future__ import annotations

import re

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.core import mail
from django.core.cache import cache
from django.test import Client
from pytest_django import Settings

from accounts.sessions import end_all_sessions
from tests.support import asgi

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("cheap_passwords")]

PASSWORD = "lang genug 1234"
EMAIL = "ada@example.com"
CODE = re.compile(r"^[A-Z]{4}-[A-Z]{4}$", re.MULTILINE)


@pytest.fixture(autouse=True)
def no_attempts() -> None:
    """Forget the attempts of other tests."""
    cache.clear()


@pytest.fixture
def ada() -> User:
    user = User.objects.create_user("ada", EMAIL, PASSWORD)
    EmailAddress.objects.create(user=user, email=EMAIL, verified=True, primary=True)
    return user


def sign_in(client: Client, name: str = "ada", password: str = PASSWORD) -> int:
    response = client.post("/accounts/login/", {"username": name, "password": password})
    return response.status_code


def is_signed_in(key: str) -> bool:
    """Say whether a session's key is good at the front door."""
    return bool(asgi.ask("GET", "/me/", HTTP_COOKIE=f"sessionid={key}").json["signed_in"])


# --- Which accounts exist -------------------------------------------------------------------------


@pytest.mark.parametrize("known", ["ada", EMAIL])
def test_failed_sign_in_tells_no_name(ada: User, known: str) -> None:
    """The answers differ by the name that was typed, and by nothing else."""
    unknown = known.replace("ada", "eve")
    pages = []
    for name in (known, unknown):
        response = Client().post("/accounts/login/", {"username": name, "password": "wrong"})
        text = response.content.decode().replace(name, "")
        pages.append((response.status_code, re.sub(r'value="\w{64}"', "", text)))

    assert pages[0] == pages[1]


def test_sign_up_tells_no_address(ada: User) -> None:
    """An address belongs to whoever confirms it, so a sign-up with it is like any other."""
    answers = []
    for name, email in (("bob", EMAIL), ("eve", "eve@example.com")):
        fields = {"username": name, "email": email, "password1": PASSWORD, "password2": PASSWORD}
        response = Client().post("/accounts/signup/", fields)
        answers.append((response.status_code, response["Location"]))

    assert answers[0] == answers[1]


@pytest.mark.parametrize("name", ["ada", "eve"])
def test_name_is_locked_whether_it_exists(ada: User, name: str) -> None:
    statuses = [sign_in(Client(), name, "wrong") for _ in range(6)]

    assert statuses == [200] * 5 + [429]


def test_lock_holds_at_one_address_alone(ada: User) -> None:
    """Whoever types wrong passwords elsewhere locks nobody out."""
    for _ in range(6):
        fields = {"username": "ada", "password": "wrong"}
        Client().post("/accounts/login/", fields, REMOTE_ADDR="203.0.113.9")

    assert sign_in(Client()) == 302


# --- Sessions -------------------------------------------------------------------------------------


def test_fixed_session_is_never_signed_in(ada: User) -> None:
    """The key that an attacker has planted is another than that of the signed-in session."""
    victim = Client()
    victim.cookies["sessionid"] = planted = "a" * 32

    sign_in(victim)

    assert victim.cookies["sessionid"].value != planted
    assert not is_signed_in(planted)
    assert is_signed_in(victim.cookies["sessionid"].value)


@pytest.mark.django_db(transaction=True)  # the cache drops them after the commit
@pytest.mark.parametrize("ends", [False, True])
def test_stolen_session_ends_with_all_others(ada: User, ends: bool) -> None:
    victim = Client()
    sign_in(victim)
    stolen = victim.cookies["sessionid"].value
    assert is_signed_in(stolen)

    if ends:
        end_all_sessions(ada)

    assert is_signed_in(stolen) is not ends


@pytest.mark.django_db(transaction=True)
def test_key_copied_before_the_sign_out_is_worthless(ada: User) -> None:
    victim = Client()
    sign_in(victim)
    copied = victim.cookies["sessionid"].value
    assert is_signed_in(copied)

    victim.post("/accounts/logout/")

    assert not is_signed_in(copied)


# --- Codes ----------------------------------------------------------------------------------------


def test_code_signs_in_once(ada: User) -> None:
    client = Client()
    client.post("/accounts/login/code/", {"email": EMAIL})
    found = CODE.search(str(mail.outbox[0].body))
    assert found
    client.post("/accounts/login/code/confirm/", {"code": found[0]})
    assert "_auth_user_id" in client.session
    client.post("/accounts/logout/")

    client.post("/accounts/login/code/confirm/", {"code": found[0]})

    assert "_auth_user_id" not in client.session


def test_code_is_good_in_the_browser_that_asked_alone(ada: User) -> None:
    asked, other = Client(), Client()
    asked.post("/accounts/login/code/", {"email": EMAIL})
    found = CODE.search(str(mail.outbox[0].body))
    assert found

    other.post("/accounts/login/code/", {"email": "eve@example.com"})
    other.post("/accounts/login/code/confirm/", {"code": found[0]})

    assert "_auth_user_id" not in other.session


# --- Hosts ----------------------------------------------------------------------------------------


SIGN_UP = {"username": "eve", "email": "eve@x.cn", "password1": PASSWORD, "password2": PASSWORD}


@pytest.mark.parametrize(
    ("path", "fields"),
    [("/accounts/password/reset/", {"email": EMAIL}), ("/accounts/signup/", SIGN_UP)],
)
def test_mailed_link_names_this_site_alone(
    ada: User, settings: Settings, path: str, fields: dict[str, str]
) -> None:
    settings.ALLOWED_HOSTS = ["*"]  # as careless as a shop can be
    settings.SECKILL_SITE_URL = "https://shop.example"

    Client().post(
        path, fields, headers={"Host": "evil.example", "X-Forwarded-Host": "evil.example"}
    )

    text = str(mail.outbox[0].body)
    assert "https://shop.example/accounts/" in text
    assert "evil.example" not in text
