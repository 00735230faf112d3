"""Phone first: signing up and in by a six-digit code, and what the shop can send one to."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import time_machine
from allauth.account.models import EmailAddress
from allauth.core.context import request_context
from django.contrib.auth.models import User
from django.core import mail
from django.core.exceptions import ValidationError
from django.forms import CharField, Form
from django.test import Client

from accounts.codes import SentCodeForm, ways_of_codes
from accounts.forms import SecondFactorForm
from accounts.models import Agreement, Phone
from tests.support.accounts import PASSWORD, code_in, signed_in_as

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("cheap_passwords"), pytest.mark.quick]

NUMBER, EMAIL = "+8613800000001", "ada@example.com"
NEW = "noch laenger 5678"
ENGLISH = {"Accept": "text/html", "Accept-Language": "en"}
CONFIRM = "/accounts/login/code/confirm/"
CONSOLE_SMS = "accounts.phones.ConsoleBackend"
CONSOLE_MAIL = "django.core.mail.backends.console.EmailBackend"


class Provider:
    """Keeps what it is to send."""

    texts: list[str] = []

    def send(self, phone: str, text: str) -> None:
        Provider.texts.append(text)


@pytest.fixture(autouse=True)
def sent(settings: Any) -> list[str]:
    """The texts that a provider was to send."""
    settings.SECKILL_SMS_BACKEND = f"{__name__}.Provider"
    Provider.texts = []
    return Provider.texts


@pytest.fixture
def browser() -> Client:
    return Client(headers=ENGLISH)


def own_number(user: User) -> None:
    Phone.objects.create(user=user, number=NUMBER)


def without_password() -> User:
    user = User.objects.create_user("ada")
    own_number(user)
    return user


def names_of_fields(page: Any) -> list[str]:
    main = page.text[page.text.index("<main") : page.text.index("</main>")]
    shown = re.findall(r"<input([^>]*)>", main)
    return [
        found[1] for it in shown if "hidden" not in it and (found := re.search(r'name="(\w+)"', it))
    ]


# --- What is offered first ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sms", "email", "ways"),
    [
        (f"{__name__}.Provider", "x", ["phone", "email"]),
        (CONSOLE_SMS, "x", ["email"]),
        (CONSOLE_SMS, CONSOLE_MAIL, []),
    ],
)
def test_console_sends_no_codes(settings: Any, sms: str, email: str, ways: list[str]) -> None:
    settings.SECKILL_SMS_BACKEND, settings.EMAIL_BACKEND = sms, email

    assert ways_of_codes() == ways


@pytest.mark.parametrize(
    ("sms", "email", "signup", "login"),
    [
        (
            f"{__name__}.Provider",
            "django.core.mail.backends.locmem.EmailBackend",
            ["phone", "password1"],
            ["phone", "username", "password"],
        ),
        (
            CONSOLE_SMS,
            "django.core.mail.backends.locmem.EmailBackend",
            ["email", "password1"],
            ["username", "password"],
        ),
        (
            CONSOLE_SMS,
            CONSOLE_MAIL,
            ["username", "email", "phone", "password1", "password2"],
            ["username", "password"],
        ),
    ],
    ids=["texts", "mails", "neither"],
)
def test_first_is_offered_what_the_shop_can_do(
    browser: Client, settings: Any, sms: str, email: str, signup: list[str], login: list[str]
) -> None:
    settings.SECKILL_SMS_BACKEND, settings.EMAIL_BACKEND = sms, email

    assert names_of_fields(browser.get("/accounts/signup/")) == signup
    assert names_of_fields(browser.get("/accounts/login/")) == login


# --- Signing up -----------------------------------------------------------------------------------


def test_sign_up_by_phone_asks_for_nothing_else(browser: Client, sent: list[str]) -> None:
    browser.get("/accounts/signup/?next=/vouchers/7/")
    browser.post("/accounts/signup/", {"phone": "138 0000 0001"})
    assert re.fullmatch("[0-9]{6}", code_in(sent[0]))

    response = browser.post(CONFIRM, {"code": code_in(sent[0])})

    user = User.objects.get()
    assert signed_in_as(browser) == user.username
    assert re.fullmatch("user-[a-z0-9]{12}", user.username)
    assert "ada" not in user.username
    assert not user.has_usable_password()
    assert Phone.objects.get().number == NUMBER
    assert response["Location"] == "/vouchers/7/"


def test_sign_up_by_mail_says_nothing_of_the_address_in_the_name(browser: Client) -> None:
    browser.post("/accounts/signup/?by=email", {"email": EMAIL})
    browser.post(CONFIRM, {"code": code_in(mail.outbox[0].body)})

    assert signed_in_as(browser)
    assert "ada" not in User.objects.get().username
    assert EmailAddress.objects.get().verified


def test_optional_password_is_kept_and_the_code_still_asked(
    browser: Client, sent: list[str]
) -> None:
    """Nobody knows the name, so the phone has to be confirmed."""
    browser.post("/accounts/signup/", {"phone": NUMBER, "password1": PASSWORD})
    assert signed_in_as(browser) is None
    browser.post(CONFIRM, {"code": code_in(sent[0])})
    browser.post("/accounts/logout/")

    browser.post("/accounts/login/", {"username": "13800000001", "password": PASSWORD})

    assert signed_in_as(browser)


@pytest.mark.parametrize("form", [{}, {"password1": PASSWORD}])
def test_sign_up_without_an_address_is_refused(browser: Client, form: dict[str, str]) -> None:
    page = browser.post("/accounts/signup/", form)

    assert list(page.context["form"].errors) == ["phone"]
    assert not User.objects.exists()


def test_optional_password_is_marked_so(browser: Client) -> None:
    assert "Password (optional)" in browser.get("/accounts/signup/").text


def test_weak_optional_password_is_refused(browser: Client, sent: list[str]) -> None:
    page = browser.post("/accounts/signup/", {"phone": NUMBER, "password1": "12345678901"})

    assert list(page.context["form"].errors) == ["password1"]
    assert sent == []


def test_owner_of_a_number_signs_in_by_signing_up(
    browser: Client, ada: User, sent: list[str]
) -> None:
    own_number(ada)
    known = browser.post("/accounts/signup/", {"phone": NUMBER})
    unknown = Client().post("/accounts/signup/", {"phone": "+8613800000002"})
    assert (known.status_code, known["Location"]) == (unknown.status_code, unknown["Location"])

    browser.post(CONFIRM, {"code": code_in(sent[0])})

    assert signed_in_as(browser) == "ada"
    assert ada.has_usable_password()


def signing_up(address: dict[str, str]) -> list[str]:
    """What a stranger sees who signs up with somebody's address and guesses at the code."""
    stranger, way = Client(headers=ENGLISH), next(iter(address))
    first = stranger.post(f"/accounts/signup/?by={way}", address)
    pages = [stranger.get(CONFIRM), *(stranger.post(CONFIRM, {"code": "no"}) for _ in range(3))]
    again = stranger.post(f"/accounts/signup/?by={way}", address)
    pages += [first, stranger.get("/accounts/signup/"), again]
    secrets = "|".join([re.escape(address[way]), 'name="csrfmiddlewaretoken" value="[^"]+"'])
    return [f"{it.get('Location')} {re.sub(secrets, '', it.text)}" for it in pages]


@pytest.mark.parametrize(
    ("known", "unknown"),
    [
        ({"phone": NUMBER}, {"phone": "+8613800000002"}),
        ({"email": EMAIL}, {"email": "eve@example.com"}),
    ],
    ids=["phone", "email"],
)
def test_sign_up_shows_nobody_who_has_an_account(
    ada: User, known: dict[str, str], unknown: dict[str, str]
) -> None:
    own_number(ada)
    EmailAddress.objects.create(user=ada, email=EMAIL, verified=True)

    assert signing_up(known) == signing_up(unknown)


@pytest.mark.servers
def test_wrong_codes_of_sign_ups_count_by_the_address(browser: Client, settings: Any) -> None:
    """Each makes an account; the tenth would show that there was none."""
    limits = {"code_of_client": None, "request_login_code": None, "texts_to_phone_of_client": None}
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, **limits}
    for _ in range(5):
        guesser = Client()
        guesser.post("/accounts/signup/", {"phone": NUMBER})
        wrong(guesser, 2)
    browser.post("/accounts/signup/", {"phone": NUMBER})

    assert "Too many wrong codes today" in browser.post(CONFIRM, {"code": "123456"}).text


@pytest.mark.servers
@pytest.mark.parametrize("number", [NUMBER, "+8613800000002"], ids=["known", "unknown"])
def test_limit_of_sign_ups_tells_no_number(ada: User, number: str) -> None:
    own_number(ada)
    pages = [Client().post("/accounts/signup/", {"phone": number}) for _ in range(4)]

    assert [it.status_code for it in pages] == [302] * 3 + [200]
    assert list(pages[-1].context["form"].errors) == ["phone"]


# --- Entering a code ------------------------------------------------------------------------------


def ask(browser: Client) -> None:
    browser.post("/accounts/login/code/", {"phone": NUMBER})


def test_code_page_has_numbers_validity_and_another_code(browser: Client, ada: User) -> None:
    own_number(ada)
    ask(browser)

    page = browser.get(CONFIRM).text

    [field] = re.findall(r'<input[^>]*name="code"[^>]*>', page)
    assert 'inputmode="numeric"' in field
    assert 'autocomplete="one-time-code"' in field
    assert f"Sent to {NUMBER}, valid for five minutes." in page
    assert 'data-wait="60"' in page
    assert "Send again" in page


def test_code_of_an_app_has_the_keyboard_of_numbers(ada: User) -> None:
    field = SecondFactorForm(user=ada).fields["code"]

    assert field.widget.attrs["inputmode"] == "numeric"
    assert field.widget.attrs["autocomplete"] == "one-time-code"


def full_width(code: str) -> str:
    return "".join(chr(ord(it) + 0xFEE0) for it in code)


@pytest.mark.parametrize("write", [str, " {} ".format, lambda it: f"{it[:3]} {it[3:]}", full_width])
def test_code_is_taken_as_keyboards_write_it(
    browser: Client, ada: User, sent: list[str], write: Callable[[str], str]
) -> None:
    own_number(ada)
    ask(browser)

    browser.post(CONFIRM, {"code": write(code_in(sent[0]))})

    assert signed_in_as(browser) == "ada"


def test_code_that_is_sent_again_is_as_good_as_the_first(
    browser: Client, ada: User, sent: list[str]
) -> None:
    own_number(ada)
    start = dt.datetime.now(dt.UTC)
    with time_machine.travel(start - dt.timedelta(minutes=4)):
        ask(browser)
    browser.post(CONFIRM, {"action": "resend"})

    with time_machine.travel(start + dt.timedelta(minutes=4)):
        browser.post(CONFIRM, {"code": code_in(sent[-1])})

    assert signed_in_as(browser) == "ada"


def wrong(browser: Client, times: int) -> None:
    for _ in range(times):
        browser.post(CONFIRM, {"code": "no"})


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.parametrize("guarded", [True, False])
def test_ten_wrong_codes_an_account_and_day(
    ada: User, sent: list[str], settings: Any, guarded: bool
) -> None:
    """Each code has three tries, and whoever guesses may ask for many."""
    own_number(ada)
    limits = {"code_of_client": None, "request_login_code": None, "texts_to_phone_of_client": None}
    limits |= {} if guarded else {"wrong_codes": None}
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, **limits}
    for tries in (2, 2, 2, 2, 2):
        guesser = Client()
        ask(guesser)
        wrong(guesser, tries)
    browser = Client(headers=ENGLISH)
    ask(browser)

    page = browser.post(CONFIRM, {"code": code_in(sent[-1])})

    assert (signed_in_as(browser) is None) is guarded
    if guarded:
        assert "Too many wrong codes today" in page.text
        with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(days=1, minutes=1)):
            ask(browser)
            browser.post(CONFIRM, {"code": code_in(sent[-1])})
            assert signed_in_as(browser) == "ada"


@pytest.mark.servers
def test_wrong_codes_of_a_stranger_number_count_alike(browser: Client, settings: Any) -> None:
    """Otherwise the eleventh wrong code would show who has an account."""
    limits = {"code_of_client": None, "request_login_code": None, "texts_to_phone_of_client": None}
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, **limits}
    for _ in range(5):
        guesser = Client()
        ask(guesser)
        wrong(guesser, 2)
    ask(browser)

    assert "Too many wrong codes today" in browser.post(CONFIRM, {"code": "123456"}).text


@pytest.mark.servers
def test_guesses_at_once_count_before_they_are_compared(rf: Any) -> None:
    seen: list[str] = []

    class Slow(Form):
        """Compares a code while another is compared."""

        code = CharField()

        def clean_code(self) -> str:
            if len(seen) < 20:
                seen.append("")
                Guess({"code": "no"}, account=7).is_valid()
            raise ValidationError("wrong")

    class Guess(SentCodeForm, Slow):
        pass

    with request_context(rf.post("/")):
        Guess({"code": "no"}, account=7).is_valid()

    assert len(seen) == 10


# --- A forgotten password -------------------------------------------------------------------------


def test_forgotten_password_is_set_after_a_code(
    browser: Client, ada: User, sent: list[str]
) -> None:
    own_number(ada)
    browser.get("/accounts/login/?next=/orders/")
    assert 'name="phone"' in browser.get("/accounts/password/reset/").text
    browser.post("/accounts/login/code/", {"phone": NUMBER, "next": "/accounts/password/change/"})
    url = f"{CONFIRM}?next=/accounts/password/change/"
    browser.get(url)
    page = browser.post(url, {"code": code_in(sent[0])}, follow=True)
    assert "oldpassword" not in page.context["form"].fields

    response = browser.post("/accounts/password/change/", {"password1": NEW, "password2": NEW})

    assert response["Location"] == "/orders/"
    ada.refresh_from_db()
    assert ada.check_password(NEW)


def test_old_password_is_asked_for_later(browser: Client, ada: User, sent: list[str]) -> None:
    own_number(ada)
    ask(browser)
    browser.post(CONFIRM, {"code": code_in(sent[0])})
    session = browser.session
    session["account_authentication_methods"][0]["at"] -= 601
    session.save()

    browser.post("/accounts/password/change/", {"password1": NEW, "password2": NEW})

    ada.refresh_from_db()
    assert ada.check_password(PASSWORD)


def test_password_is_no_proof_for_another(browser: Client, ada: User) -> None:
    browser.post("/accounts/login/", {"username": "ada", "password": PASSWORD})

    page = browser.get("/accounts/password/change/")

    assert "oldpassword" in page.context["form"].fields


# --- The end of an account without a password -----------------------------------------------------


DELETE = "/accounts/delete/"


@pytest.mark.parametrize("way", ["phone", "email"])
def test_deletion_without_password_needs_a_code(browser: Client, sent: list[str], way: str) -> None:
    user = User.objects.create_user("ada")
    if way == "phone":
        own_number(user)
    EmailAddress.objects.create(user=user, email=EMAIL, verified=True)
    browser.force_login(user)
    assert browser.post(DELETE, {}).status_code == 200, "nothing was sent yet"
    assert browser.post(DELETE, {"code": ""}).status_code == 200

    browser.post(DELETE, {"action": "resend"})
    text = sent[-1] if way == "phone" else mail.outbox[-1].body
    assert "注销" in text or "delete" in text, "it says what it is for"
    assert browser.post(DELETE, {"code": "000"}).status_code == 200
    assert User.objects.filter(username="ada").exists()
    page = browser.post(DELETE, {"code": code_in(text)})

    assert page["Location"] == "/"
    assert not User.objects.filter(username="ada").exists()
    assert "told" in page.cookies


def test_code_of_a_deletion_is_good_for_five_minutes(browser: Client, sent: list[str]) -> None:
    browser.force_login(without_password())
    browser.post(DELETE, {"action": "resend"})
    session = browser.session
    code, at = session["deletion_code"]
    session["deletion_code"] = [code, at - 301]
    session.save()

    assert browser.post(DELETE, {"code": code_in(sent[0])}).status_code == 200
    assert User.objects.filter(username="ada").exists()


def test_account_without_password_and_address_is_deleted_by_its_session(browser: Client) -> None:
    browser.force_login(User.objects.create_user("ada"))

    assert browser.post(DELETE).status_code == 302
    assert not User.objects.filter(username="ada").exists()


@pytest.mark.servers
def test_deletion_sends_three_mails(browser: Client) -> None:
    user = User.objects.create_user("ada")
    EmailAddress.objects.create(user=user, email=EMAIL, verified=True)
    browser.force_login(user)

    statuses = [browser.post(DELETE, {"action": "resend"}).status_code for _ in range(5)]

    assert statuses == [302] * 3 + [429] * 2
    assert len(mail.outbox) == 3


# --- The terms ------------------------------------------------------------------------------------


def test_agreement_to_a_file_is_kept_with_its_digest(
    browser: Client, settings: Any, tmp_path: Path
) -> None:
    file = tmp_path / "terms.txt"
    file.write_text("Terms of today")
    settings.SECKILL_SHOP_TERMS = settings.SECKILL_SHOP_TERMS_EN = str(file)
    page = browser.get("/accounts/signup/")
    assert re.search(
        r'type="checkbox"[^>]*name="terms"|name="terms"[^>]*type="checkbox"', page.text
    )
    assert 'href="/terms/"' in page.text
    refused = browser.post("/accounts/signup/", {"phone": NUMBER})
    assert list(refused.context["form"].errors) == ["terms"]
    assert not User.objects.exists()

    browser.post("/accounts/signup/", {"phone": NUMBER, "terms": "on"})

    kept = Agreement.objects.get()
    assert kept.user == User.objects.get()
    assert kept.version == f"sha256:{hashlib.sha256(b'Terms of today').hexdigest()}"
    assert dt.datetime.now(dt.UTC) - kept.agreed_at < dt.timedelta(minutes=1)


def test_agreement_to_an_address_is_kept_with_the_day(browser: Client, settings: Any) -> None:
    url = "https://shop.example/terms"
    settings.SECKILL_SHOP_TERMS = settings.SECKILL_SHOP_TERMS_EN = url

    browser.post("/accounts/signup/", {"phone": NUMBER, "terms": "on"})

    assert re.fullmatch(rf"{re.escape(url)} 20\d\d-\d\d-\d\d", Agreement.objects.get().version)


def test_without_terms_there_is_no_box(browser: Client) -> None:
    assert "checkbox" not in browser.get("/accounts/signup/").text
    browser.post("/accounts/signup/", {"phone": NUMBER})

    assert not Agreement.objects.exists()


# --- Passkeys -------------------------------------------------------------------------------------


def test_sign_in_page_offers_a_passkey(browser: Client) -> None:
    page = browser.get("/accounts/login/?next=/orders/").text

    assert 'id="passkey_login"' in page
    assert 'action="/accounts/2fa/webauthn/login/"' in page
    options = browser.get("/accounts/2fa/webauthn/login/", headers={"Accept": "application/json"})
    assert options.json()["request_options"]["publicKey"]["userVerification"] == "required"
