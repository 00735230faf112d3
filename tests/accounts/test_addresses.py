"""Addresses: confirmed by their owner, who alone gets codes, resets and notices there."""

from __future__ import annotations

import re
import smtplib
from urllib.parse import urlsplit

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend
from django.test import Client

from accounts import mails
from accounts.contacts import confirmed_contact
from accounts.mails import MailNotSent
from seckill_site.redis.breaker import Breaker
from tests.support.accounts import PASSWORD, code_in, signed_in_as

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("cheap_passwords"), pytest.mark.quick]

OTHER = "noch laenger 5678"
EMAIL = "ada@example.com"
SIGNUP = {"username": "ada", "email": EMAIL, "password1": PASSWORD, "password2": PASSWORD}
CHINESE = {"Accept-Language": "zh-CN"}


@pytest.fixture
def ada():
    user = User.objects.create_user("ada", EMAIL, PASSWORD)
    EmailAddress.objects.create(user=user, email=EMAIL, verified=True, primary=True)
    return user


def link_in(text: object) -> str:
    found = re.search(r"http://\S+", str(text))
    assert found
    return urlsplit(found[0]).path


def test_sign_up_sends_a_confirmation_that_confirms(client, settings):
    settings.SECKILL_SHOP_NAME = settings.SECKILL_SHOP_NAME_EN = "Voucher Market"
    client.post("/accounts/signup/", SIGNUP)
    user = User.objects.get()
    [confirmation] = mail.outbox
    assert confirmation.to == [EMAIL]
    assert "\n-- \nVoucher Market · " in confirmation.body
    assert confirmed_contact(user).email == ""
    assert client.get(link_in(confirmation.body)).status_code == 200
    assert confirmed_contact(user).email == "", "to open the link is not enough"

    response = Client().post(link_in(confirmation.body))

    assert response.status_code == 302
    assert confirmed_contact(user).email == EMAIL


def test_forged_link_confirms_nothing(client):
    client.post("/accounts/signup/", SIGNUP)

    response = client.post(link_in(mail.outbox[0].body)[:-3] + "xx/")

    assert response.status_code == 404
    assert confirmed_contact(User.objects.get()).email == ""


def test_address_belongs_to_whoever_confirms_it(client, ada):
    client.post("/accounts/signup/", {**SIGNUP, "username": "eve"})
    eve = User.objects.get(username="eve")

    client.post(link_in(mail.outbox[0].body))

    assert confirmed_contact(eve).email == ""
    assert confirmed_contact(ada).email == EMAIL


@pytest.mark.parametrize("path", ["/accounts/login/code/", "/accounts/password/reset/"])
def test_unconfirmed_address_gets_no_other_mail(client, ada, path):
    EmailAddress.objects.update(verified=False)

    response = client.post(path, {"email": EMAIL})

    assert response.status_code == 302
    assert mail.outbox == []


@pytest.mark.parametrize("path", ["/accounts/login/code/", "/accounts/password/reset/"])
def test_unknown_address_gets_no_mail_and_the_same_answer(client, ada, path):
    known = client.post(path, {"email": EMAIL})
    unknown = Client().post(path, {"email": "eve@example.com"})

    assert (known.status_code, known["Location"]) == (unknown.status_code, unknown["Location"])
    assert [it.to for it in mail.outbox] == [[EMAIL]]


def test_code_by_mail_signs_in(client, ada):
    client.post("/accounts/login/code/", {"email": EMAIL, "next": "/orders/"})

    response = client.post("/accounts/login/code/confirm/", {"code": code_in(mail.outbox[0].body)})

    assert response.status_code == 302
    assert signed_in_as(client) == "ada"


def test_sign_up_by_code_needs_no_password(client):
    form = {"username": "ada", "email": EMAIL}
    client.post("/accounts/signup/", form)
    assert signed_in_as(client) is None
    [code] = mail.outbox

    client.post("/accounts/login/code/confirm/", {"code": code_in(code.body)})

    assert signed_in_as(client) == "ada"
    assert confirmed_contact(User.objects.get()).email == EMAIL
    assert len(mail.outbox) == 1


def test_account_without_any_way_in_is_refused(client):
    response = client.post("/accounts/signup/", {"username": "ada"})

    assert list(response.context["form"].errors) == ["password1"]


def test_change_of_password_ends_other_sessions(client, ada):
    other = Client()
    other.force_login(ada)
    client.post("/accounts/login/", {"username": EMAIL, "password": PASSWORD})

    form = {"oldpassword": PASSWORD, "password1": OTHER, "password2": OTHER}
    assert client.post("/accounts/password/change/", form).status_code == 302

    assert client.get("/accounts/email/").status_code == 200
    assert other.get("/accounts/email/").status_code == 302


def test_mails_are_in_their_readers_language(client, ada):
    chinese = Client(headers=CHINESE)
    chinese.post("/accounts/login/", {"username": "ada", "password": PASSWORD})

    client.post("/accounts/login/code/", {"email": EMAIL}, headers={"Accept-Language": "en"})

    assert "验证码" in f"{mail.outbox[0].body}{mail.outbox[0].subject}"


def test_language_link_is_remembered_for_mails(client, ada):
    client.force_login(ada)

    client.get("/language/en/")

    assert confirmed_contact(ada).language == "en"


class Refusing(EmailBackend):
    attempts = 0

    def send_messages(self, messages):
        Refusing.attempts += 1
        raise smtplib.SMTPServerDisconnected


class RefusingRecipients(Refusing):
    def send_messages(self, messages):
        Refusing.attempts += 1
        raise smtplib.SMTPRecipientsRefused({})


@pytest.mark.parametrize("path", ["/accounts/login/code/", "/accounts/password/reset/"])
def test_mail_server_that_is_away_tells_no_address(client, ada, settings, caplog, path):
    settings.EMAIL_BACKEND = f"{__name__}.Refusing"

    known = client.post(path, {"email": EMAIL})
    unknown = Client().post(path, {"email": "eve@example.com"})

    assert (known.status_code, known["Location"]) == (unknown.status_code, unknown["Location"])
    assert "a mail about an account was not sent" in caplog.text


def test_unreachable_mail_server_does_not_fail_a_password_change(client, ada, settings):
    client.post("/accounts/login/", {"username": "ada", "password": PASSWORD})
    settings.EMAIL_BACKEND = f"{__name__}.Refusing"

    form = {"oldpassword": PASSWORD, "password1": OTHER, "password2": OTHER}

    assert client.post("/accounts/password/change/", form).status_code == 302
    ada.refresh_from_db()
    assert ada.check_password(OTHER)


@pytest.mark.parametrize(("backend", "attempts"), [("Refusing", 1), ("RefusingRecipients", 2)])
def test_only_a_mail_server_that_is_away_is_left_alone(
    client, settings, monkeypatch, backend, attempts
):
    """A recipient that it refuses says nothing of the server."""
    settings.EMAIL_BACKEND = f"{__name__}.{backend}"
    monkeypatch.setattr(mails, "breaker", Breaker(MailNotSent, pause_s=3600))
    monkeypatch.setattr(Refusing, "attempts", 0)

    for name in ("ada", "eve"):
        Client().post("/accounts/signup/", {**SIGNUP, "username": name, "email": f"{name}@x.org"})

    assert Refusing.attempts == attempts
    assert User.objects.count() == 2


@pytest.mark.parametrize(
    "path", ["email/", "password/change/", "sessions/", "2fa/", "phone/change/"]
)
def test_pages_of_an_account_render(client, ada, path):
    client.post("/accounts/login/", {"username": "ada", "password": PASSWORD})

    response = client.get(f"/accounts/{path}", headers={"Accept-Language": "zh-CN"})

    assert response.status_code == 200
    assert 'class="page page--form"' in response.text


@pytest.mark.parametrize("path", ["login/", "signup/", "login/code/", "password/reset/"])
def test_pages_of_a_visitor_render(client, path):
    response = client.get(f"/accounts/{path}", headers={"Accept": "text/html"})

    assert response.status_code == 200
    assert 'class="page page--form"' in response.text
