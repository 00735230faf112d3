"""Second factors, and the rules for staff."""

from __future__ import annotations

import datetime as dt
from typing import Any
from xml.etree import ElementTree

import pytest
import time_machine
from allauth.mfa.adapter import get_adapter
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import TOTP
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client

from accounts.second_factor import SecondFactorAdapter
from tests.support.accounts import PASSWORD, signed_in_as, totp

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("cheap_passwords"), pytest.mark.quick]

SECRET = "JBSWY3DPEHPK3PXP"
SIGN_IN = {"username": "ada", "password": PASSWORD}


@pytest.fixture
def staff(ada: User) -> User:
    ada.is_staff = ada.is_superuser = True
    ada.save()
    return ada


def sign_in(client: Client) -> None:
    """Sign in, and enter the password again, as before each change of factors."""
    client.post("/accounts/login/", SIGN_IN)
    client.post("/accounts/reauthenticate/", {"password": PASSWORD})


def test_factors_change_only_after_the_password(client: Client, ada: User) -> None:
    client.post("/accounts/login/", SIGN_IN)

    response = client.get("/accounts/2fa/totp/activate/")

    assert response["Location"].startswith("/accounts/reauthenticate/?next=")


def test_picture_of_the_key_is_a_file_of_its_own() -> None:
    """A browser shows an SVG in an ``img`` only if its root names the namespace."""
    root = ElementTree.fromstring(SecondFactorAdapter().build_totp_svg("otpauth://totp/ada"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"


def test_key_of_an_app_is_text_on_the_page(client: Client, ada: User) -> None:
    sign_in(client)
    page = client.get("/accounts/2fa/totp/activate/", headers={"Accept-Language": "en"})
    secret = page.context["form"].secret
    assert f'id="code" translate="no">{secret}<' in page.text
    assert f'data-copy="{secret}"' in page.text
    assert "disabled" not in page.text


def test_recovery_codes_are_copied_at_once(client: Client, ada: User) -> None:
    sign_in(client)
    TOTP.activate(ada, SECRET)
    client.post("/accounts/2fa/recovery-codes/generate/")
    page = client.get("/accounts/2fa/recovery-codes/")
    codes = " ".join(page.context["unused_codes"])
    assert len(codes.split()) == 10
    assert f'data-copy="{codes}"' in page.text
    assert f'id="code" translate="no">{codes}<' in page.text
    assert "<textarea" not in page.text


@pytest.mark.servers  # without a cache no code is taken: it could be one that was used
@pytest.mark.usefixtures("one_day")  # a code is good for half a minute
def test_totp_is_set_up_and_asked_for(client: Client, ada: User) -> None:
    sign_in(client)
    page = client.get("/accounts/2fa/totp/activate/")
    secret = page.context["form"].secret
    assert "data:image/svg+xml;base64," in page.text
    assert client.post("/accounts/2fa/totp/activate/", {"code": totp(secret)}).status_code == 302
    assert client.get("/accounts/2fa/recovery-codes/").status_code == 200
    cache.clear()  # a code counts once

    other = Client()
    response = other.post("/accounts/login/", SIGN_IN)
    assert response["Location"] == "/accounts/2fa/authenticate/"
    assert signed_in_as(other) is None

    other.post("/accounts/2fa/authenticate/", {"code": "000000"})
    assert signed_in_as(other) is None
    other.post("/accounts/2fa/authenticate/", {"code": totp(secret)})
    assert signed_in_as(other) == "ada"


@pytest.mark.usefixtures("one_day")
@pytest.mark.parametrize("path", ["/accounts/2fa/authenticate/", "/accounts/2fa/reauthenticate/"])
def test_code_of_an_app_without_the_cache_is_told(
    client: Client, ada: User, settings: Any, path: str
) -> None:
    TOTP.activate(ada, SECRET)
    settings.CACHES = {
        **settings.CACHES,
        "default": {**settings.CACHES["default"], "LOCATION": "redis://127.0.0.1:1/9"},
    }
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"
    if "reauthenticate" in path:
        client.force_login(ada)
    else:
        client.post("/accounts/login/", SIGN_IN)

    page = client.post(path, {"code": totp(SECRET)})

    assert "Codes of an app cannot be checked at the moment." in page.text


@pytest.mark.servers
def test_wrong_code_of_an_app_is_just_wrong(client: Client, ada: User) -> None:
    TOTP.activate(ada, SECRET)
    client.post("/accounts/login/", SIGN_IN)
    page = client.post("/accounts/2fa/authenticate/", {"code": "000000"})
    assert page.context["form"].errors["code"] == [
        str(get_adapter().error_messages["incorrect_code"])
    ]


@pytest.mark.usefixtures("one_day")  # a code is good for half a minute
def test_recovery_code_signs_in_once(client: Client, ada: User) -> None:
    sign_in(client)
    secret = client.get("/accounts/2fa/totp/activate/").context["form"].secret
    client.post("/accounts/2fa/totp/activate/", {"code": totp(secret)})
    code = client.get("/accounts/2fa/recovery-codes/").context["unused_codes"][0]

    for expected in ("ada", None):
        other = Client()
        other.post("/accounts/login/", SIGN_IN)
        other.post("/accounts/2fa/authenticate/", {"code": code})
        assert signed_in_as(other) == expected


def test_security_key_page_has_no_inline_script(client: Client, ada: User) -> None:
    sign_in(client)

    page = client.get("/accounts/2fa/webauthn/add/").text

    assert "mfa/js/webauthn" in page
    assert "<script>" not in page


def test_last_use_of_a_security_key_has_its_time(client: Client, ada: User) -> None:
    used_at = dt.datetime(2026, 3, 4, 5, 6, tzinfo=dt.UTC)
    key: dict[str, Any] = {
        "user": ada,
        "type": "webauthn",
        "data": {"name": "Key", "credential": {}},
    }
    sign_in(client)
    Authenticator.objects.create(**key, last_used_at=used_at)

    page = client.get("/accounts/2fa/webauthn/").text

    assert '<time datetime="2026-03-04T13:06:00+08:00" data-zone="UTC+8">' in page


@pytest.mark.parametrize("path", ["/admin/", "/staff/redeem/"])
def test_staff_without_factor_is_sent_to_set_one_up(
    client: Client, staff: User, settings: Any, path: str
) -> None:
    client.force_login(staff)
    assert client.get(path).status_code == 200

    settings.SECKILL_STAFF_SECOND_FACTOR = True

    assert client.get(path)["Location"] == "/accounts/2fa/"
    TOTP.activate(staff, SECRET)
    assert client.get(path).status_code == 200


def test_recovery_codes_alone_are_no_second_factor(
    client: Client, staff: User, settings: Any
) -> None:
    settings.SECKILL_STAFF_SECOND_FACTOR = True
    Authenticator.objects.create(user=staff, type="recovery_codes", data={})
    client.force_login(staff)

    assert client.get("/admin/")["Location"] == "/accounts/2fa/"


def test_staff_keeps_the_last_factor(staff: User, settings: Any) -> None:
    factor = TOTP.activate(staff, SECRET).instance
    assert SecondFactorAdapter().can_delete_authenticator(factor)

    settings.SECKILL_STAFF_SECOND_FACTOR = True

    assert not SecondFactorAdapter().can_delete_authenticator(factor)
    Authenticator.objects.create(user=staff, type="webauthn", data={})
    assert SecondFactorAdapter().can_delete_authenticator(factor)


@pytest.mark.parametrize(
    ("is_staff", "hours", "stays"), [(True, 11, True), (True, 13, False), (False, 13, True)]
)
def test_session_of_staff_ends_after_12_hours(
    client: Client, ada: User, is_staff: bool, hours: int, stays: bool
) -> None:
    ada.is_staff = is_staff
    ada.save()
    client.post("/accounts/login/", SIGN_IN)
    client.get("/language/en/")
    session = client.session
    session["visited"] = True
    session.save()  # a later write does not make it longer

    left = client.session.get_expiry_age() / 3600

    assert (left > hours) is stays
    with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(hours=hours)):
        cache.clear()  # Redis has not travelled
        assert (client.get("/accounts/profile/").status_code == 200) is stays
