"""Signing up, in and out with a name and a password."""

from __future__ import annotations

import datetime as dt

import pytest
import time_machine
from allauth.account.models import EmailAddress
from django.contrib.auth.hashers import MD5PasswordHasher
from django.contrib.auth.models import User
from django.test import Client

from accounts.backends import AccountBackend
from accounts.forms import SignUpForm
from accounts.models import Phone
from tests.support.accounts import ODD, OUTSIDE, PASSWORD, signed_in_as, stays_inside

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("cheap_passwords"), pytest.mark.quick]
SIGNUP = {"username": "ada", "password1": PASSWORD, "password2": PASSWORD}
HTML = {"Accept": "text/html"}


# --- staff ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("next_", "is_staff", "location"),
    [
        ("", True, "/admin/"),
        ("/", True, "/admin/"),
        ("/orders/", True, "/orders/"),
        ("", False, "/"),
        ("/", False, "/"),
    ],
)
def test_staff_lands_in_the_back_office(client, next_, is_staff, location):
    User.objects.create_user("boss", password=PASSWORD, is_staff=is_staff)
    data = {"username": "boss", "password": PASSWORD, **({"next": next_} if next_ else {})}

    assert client.post("/accounts/login/", data)["Location"] == location


# --- signing up ----------------------------------------------------------------------------------


def test_signup_creates_account_and_signs_in(client):
    rights = {"is_staff": "on", "is_superuser": "on", "id": "9"}
    response = client.post("/accounts/signup/", {**SIGNUP, **rights})

    assert response.status_code == 302
    assert response["Location"] == "/"
    assert signed_in_as(client) == "ada"
    user = User.objects.get()
    assert user.check_password(PASSWORD)
    assert not user.is_staff
    assert not user.is_superuser


@pytest.mark.parametrize("email", ["", "ada@example.com", "x" * 60 + "@example.com"])
def test_signup_email_is_optional(client, email):
    client.post("/accounts/signup/", {**SIGNUP, "email": email})

    assert User.objects.get().email == email


@pytest.mark.parametrize(
    "email", ["ada", "ada@", "a b@example.com", "a@b.cn\nBcc: x@y.cn", "x" * 250 + "@example.com"]
)
def test_signup_with_invalid_email_is_refused(client, email):
    response = client.post("/accounts/signup/", {**SIGNUP, "email": email})

    assert list(response.context["form"].errors) == ["email"]
    assert not User.objects.exists()


@pytest.mark.parametrize("where", ["query", "field"])
def test_signup_follows_local_next(client, where):
    if where == "query":
        response = client.post("/accounts/signup/?next=/vouchers/7/%3Fa%3Db", SIGNUP)
    else:
        response = client.post("/accounts/signup/", {**SIGNUP, "next": "/vouchers/7/?a=b"})

    assert response["Location"] == "/vouchers/7/?a=b"


@pytest.mark.parametrize("outside", OUTSIDE)
def test_signup_ignores_foreign_next(client, outside):
    response = client.post("/accounts/signup/", {**SIGNUP, "next": outside})

    assert response.status_code == 302
    assert response["Location"] == "/"
    assert signed_in_as(client) == "ada"


@pytest.mark.parametrize("odd", ODD)
def test_signup_survives_malformed_next(client, odd):
    response = client.post("/accounts/signup/", {**SIGNUP, "next": odd})

    assert response.status_code == 302
    assert stays_inside(response, "/accounts/signup/")


@pytest.mark.parametrize(
    "changes",
    [
        {"username": ""},
        {"username": "a b"},
        {"username": "x" * 151},
        {"username": "nul\x00"},
        {"username": "🍜"},
        {"password2": "another 1234"},
        {"password1": "ada", "password2": "ada"},
        {"password1": "12345678901", "password2": "12345678901"},
        {"password1": "password123", "password2": "password123"},
    ],
)
def test_invalid_signup_shows_errors_and_creates_nothing(client, changes):
    response = client.post("/accounts/signup/", {**SIGNUP, **changes}, headers=HTML)

    assert response.status_code == 200
    assert response.context["form"].errors
    assert not User.objects.exists()
    assert signed_in_as(client) is None


@pytest.mark.parametrize("name", ["ada", "ADA", "ａｄａ"])
def test_signup_with_taken_name_is_refused(client, name):
    client.post("/accounts/signup/", SIGNUP)

    response = Client().post("/accounts/signup/", {**SIGNUP, "username": name})

    assert response.status_code == 200
    assert list(response.context["form"].errors) == ["username"]
    assert User.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_signup_race_for_a_name_shows_an_error(client, monkeypatch):
    save = SignUpForm.save

    def a_moment_later(form, *args, **kwargs):
        User.objects.create_user("ada")
        return save(form, *args, **kwargs)

    monkeypatch.setattr(SignUpForm, "save", a_moment_later)
    client.raise_request_exception = False

    response = client.post("/accounts/signup/", SIGNUP)

    assert response.status_code == 200
    assert list(response.context["form"].errors) == ["username"]


@pytest.mark.parametrize("method", ["get", "post"])
def test_signup_page_is_kept_by_no_cache(client, method):
    response = getattr(client, method)("/accounts/signup/", headers=HTML)

    assert "no-store" in response["Cache-Control"]


# --- signing in ----------------------------------------------------------------------------------


def log_in(client, name="ada", password=PASSWORD, **extra):
    return client.post("/accounts/login/", {"username": name, "password": password}, **extra)


def fail(client, times, **extra):
    return [log_in(client, password="wrong", **extra).status_code for _ in range(times)]


def test_login_and_logout(client, ada):
    assert log_in(client).status_code == 302
    assert signed_in_as(client) == "ada"

    assert client.post("/accounts/logout/").status_code == 302
    assert signed_in_as(client) is None


@pytest.mark.parametrize("outside", OUTSIDE[:2])
def test_login_ignores_foreign_next(client, ada, outside):
    credentials = {"username": "ada", "password": PASSWORD}

    response = client.post("/accounts/login/", {**credentials, "next": outside})

    assert response.status_code == 302
    assert response["Location"] == "/"


@pytest.mark.servers
def test_lockout_hashes_no_password(client, ada, monkeypatch):
    fail(client, 5)
    asked = []
    monkeypatch.setattr(AccountBackend, "authenticate", lambda *args, **kwargs: asked.append(args))

    log_in(client)

    assert asked == []


@pytest.mark.servers
def test_lockout_ends_after_six_minutes(client, ada):
    fail(client, 5)

    with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(minutes=6, seconds=1)):
        assert log_in(client).status_code == 302


def test_successful_login_resets_the_count(client, ada):
    fail(client, 4)
    log_in(client)
    client.post("/accounts/logout/")

    assert fail(client, 4) == [200] * 4


def test_admin_login_is_the_sites(client, ada):
    response = client.post("/admin/login/?next=/admin/", {"username": "ada", "password": PASSWORD})

    assert response.status_code == 302
    assert response["Location"] == "/accounts/login/?next=%2Fadmin%2F"
    assert signed_in_as(client) is None


def test_signed_in_buyer_gets_403_from_admin_login(client, ada):
    client.force_login(ada)

    assert client.get("/admin/login/?next=/admin/", headers=HTML).status_code == 403


def test_session_of_djangos_backend_goes_on(client, ada):
    client.force_login(ada, backend="django.contrib.auth.backends.ModelBackend")

    assert client.get("/orders/", headers=HTML).status_code == 200


@pytest.mark.servers
def test_lockout_counts_a_network_of_ipv6(client, ada):
    """A host has at least a /64, and as many addresses as it likes."""
    for number in range(5):
        log_in(client, password="wrong", REMOTE_ADDR=f"2001:db8:0:1::{number}")

    assert log_in(client, REMOTE_ADDR="2001:db8:0:1:ffff::").status_code == 429
    assert log_in(client, REMOTE_ADDR="2001:db8:0:2::1").status_code == 302


def has_address(user, email, *, verified):
    EmailAddress.objects.create(user=user, email=email, verified=verified)


def test_login_takes_confirmed_addresses_only(client, ada):
    has_address(ada, "ada@example.com", verified=False)
    assert log_in(client, name="ada@example.com").status_code == 200

    EmailAddress.objects.update(verified=True)
    assert log_in(client, name="Ada@example.com").status_code == 302


def test_confirmed_address_goes_before_a_name_like_it(client, ada):
    User.objects.create_user("ada@example.com", password="another 1234")
    has_address(ada, "ada@example.com", verified=True)

    log_in(client, name="ada@example.com")

    assert signed_in_as(client) == "ada"


def test_name_like_an_address_still_confirms_itself(client, ada):
    eve = User.objects.create_user("ada@example.com", password="another 1234")
    has_address(ada, "ada@example.com", verified=True)
    client.force_login(eve)

    form = {"oldpassword": "another 1234", "password1": PASSWORD, "password2": PASSWORD}
    assert client.post("/accounts/password/change/", form).status_code == 302
    client.session.pop("account_authentication_methods", None)
    response = client.post("/accounts/reauthenticate/", {"password": PASSWORD})
    assert response.status_code == 302


@pytest.mark.parametrize("name", ["ada", "ada@example.com", "13800000001", "nobody@example.com"])
def test_failed_login_hashes_once(client, ada, monkeypatch, name):
    """Also if a name, a confirmed address and some that are not are the same."""
    User.objects.create_user("ada@example.com", password=PASSWORD)
    User.objects.create_user("13800000001", password=PASSWORD)
    has_address(ada, "ada@example.com", verified=True)
    Phone.objects.create(user=ada, number="+8613800000001")
    for other in ("bob", "eve"):
        user = User.objects.create_user(other, "ada@example.com", PASSWORD)
        has_address(user, "ada@example.com", verified=False)
    hashed = []
    encode = MD5PasswordHasher.encode

    def counted(*args):
        hashed.append(args)
        return encode(*args)

    monkeypatch.setattr(MD5PasswordHasher, "encode", counted)

    assert log_in(client, name=name, password="wrong").status_code == 200

    assert len(hashed) == 1


def test_login_field_may_be_called_login(client, ada):
    response = client.post("/accounts/login/", {"login": "ada", "password": PASSWORD})

    assert response.status_code == 302


@pytest.mark.parametrize("name", ["ADA", "aDa", "ａｄａ", " ada "])
def test_login_takes_the_name_in_any_spelling(client, ada, name):
    assert log_in(client, name=name).status_code == 302
    assert signed_in_as(client) == "ada"


def test_login_goes_on_without_the_cache(client, ada, settings):
    settings.CACHES = {
        **settings.CACHES,
        "default": {**settings.CACHES["default"], "LOCATION": "redis://127.0.0.1:1/9"},
    }

    assert log_in(client).status_code == 302


ODD_NAMES = {
    "empty": "",
    "150 letters": "x" * 150,
    "255 letters": "x" * 255,
    "256 letters": "x" * 256,
    "100,000 letters": "x" * 100_000,
    "nul": "nul\x00",
    "emoji": "🍜",
}


@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES)
def test_malformed_name_is_a_failed_login(client, name):
    client.raise_request_exception = False

    assert log_in(client, name=name, password="x").status_code == 200


JUNK = "x" * 5_000 + "\x7f\x00" + "🍜".encode().decode("latin-1")


@pytest.mark.parametrize(
    "headers",
    [
        *[{name: JUNK} for name in ("User-Agent", "Accept", "X-Forwarded-For", "Cookie")],
        {"Cookie": f"sessionid={JUNK}; csrftoken={JUNK}; django_language={JUNK}"},
    ],
    ids=["agent", "accept", "forwarded", "cookie", "cookies"],
)
def test_failed_login_survives_malformed_headers(client, headers):
    client.raise_request_exception = False

    assert log_in(client, password="wrong", headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/accounts/logout/", "/accounts/sessions/everywhere/"])
def test_sign_out_clears_what_pages_have_stored(client: Client, ada: User, path: str) -> None:
    client.force_login(ada)
    assert client.post(path)["Clear-Site-Data"] == '"storage"'
    assert signed_in_as(client) is None


def test_page_that_asks_before_signing_out_clears_nothing(client: Client, ada: User) -> None:
    client.force_login(ada)
    assert "Clear-Site-Data" not in client.get("/accounts/logout/")
