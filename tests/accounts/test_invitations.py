"""Invitations of staff: by mail, with a role, for one account, for three days."""

from __future__ import annotations

import datetime as dt
import re
from urllib.parse import quote, urlsplit

import pytest
from django.contrib.auth.models import Group, User
from django.core import mail
from django.test import Client, TestCase
from django.utils import timezone

from accounts.contacts import confirmed_contact
from accounts.invitations import VALID_FOR
from accounts.models import Invitation
from seckill_site.clocks.machine import epoch_ms
from tests.accounts.test_addresses import Refusing
from tests.support.accounts import PASSWORD
from tests.support.browsers import browser_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("cheap_passwords"), pytest.mark.quick]

EMAIL = "new@example.com"
ADD = "/admin/accounts/invitation/add/"


@pytest.fixture
def owner() -> Client:
    Group.objects.get_or_create(name="Operator")
    return browser_of(User.objects.create_superuser("owner"))


def invite(owner: Client) -> str:
    """Send an invitation and return the path in its mail."""
    with TestCase.captureOnCommitCallbacks(execute=True):
        assert owner.post(ADD, {"email": EMAIL, "role": "Operator"}).status_code == 302
    link = re.search(r"http://\S+", str(mail.outbox[-1].body))
    assert link
    return urlsplit(link[0]).path


def buyer(name: str) -> Client:
    return browser_of(User.objects.create_user(name))


def test_newcomer_signs_up_and_accepts(owner: Client) -> None:
    path = invite(owner)
    assert mail.outbox[0].to == [EMAIL]
    client = Client()
    assert f"/accounts/signup/?next={quote(path)}" in client.get(path).text
    form = {"username": "new", "password1": PASSWORD, "password2": PASSWORD, "next": path}
    assert client.post("/accounts/signup/", form)["Location"] == path

    assert client.post(path)["Location"] == "/admin/"

    user = User.objects.get(username="new")
    assert user.is_staff
    assert not user.is_superuser
    assert [it.name for it in user.groups.all()] == ["Operator"]
    assert confirmed_contact(user).email == EMAIL
    assert client.session.get_expiry_age() <= 12 * 3600


@pytest.mark.django_db(transaction=True)  # the cache drops them after the commit
def test_accepting_ends_the_other_sessions(owner: Client) -> None:
    path = invite(owner)
    user = User.objects.create_user("new", password=PASSWORD)
    here, elsewhere = Client(), Client()
    for client in (here, elsewhere):
        client.post("/accounts/login/", {"username": user.username, "password": PASSWORD})

    here.post(path)

    assert here.get("/accounts/profile/").status_code == 200
    assert elsewhere.get("/accounts/profile/").status_code == 302


def test_visitor_cannot_accept(owner: Client) -> None:
    assert Client().post(invite(owner)).status_code == 200
    assert User.objects.filter(is_staff=True).count() == 1


def test_invitation_is_accepted_once(owner: Client) -> None:
    path = invite(owner)
    assert buyer("one").post(path).status_code == 302

    assert buyer("two").post(path).status_code == 410
    assert not User.objects.get(username="two").is_staff


@pytest.mark.parametrize("how", ["three days later", "withdrawn"])
def test_ended_invitation_is_of_no_use(owner: Client, how: str) -> None:
    path = invite(owner)
    if how == "withdrawn":
        Invitation.objects.all().delete()
    Invitation.objects.update(invited_at=timezone.now() - dt.timedelta(days=3, seconds=1))

    assert buyer("one").post(path).status_code == 410


@pytest.mark.parametrize("stepped", ["database", "Redis"])
def test_one_clock_that_is_set_ends_no_invitation(owner: Client, monkeypatch, stepped: str) -> None:
    path = invite(owner)
    later = timezone.now() + VALID_FOR + dt.timedelta(hours=1)
    if stepped == "database":
        monkeypatch.setattr("accounts.invitations.database_now", lambda: later)
    else:
        monkeypatch.setattr("seckill_site.clocks.steps.ledger_now_ms", lambda: epoch_ms(later))

    assert buyer("one").post(path).status_code == 302


@pytest.mark.parametrize("token", ["x", "MQ:x:y", "1", "%00"])
def test_forged_link_is_refused(client: Client, token: str) -> None:
    assert client.get(f"/accounts/invitations/{token}/").status_code == 410


def test_only_the_shops_roles_are_offered(owner: Client) -> None:
    Group.objects.create(name="Others")

    owner.post(ADD, {"email": EMAIL, "role": "Others"})

    assert not Invitation.objects.exists()


def test_invitation_is_mailed_after_the_commit(owner: Client) -> None:
    owner.post(ADD, {"email": EMAIL, "role": "Operator"})

    assert Invitation.objects.exists()
    assert mail.outbox == []  # the test's own transaction goes on


@pytest.mark.django_db(transaction=True)
def test_mail_server_that_is_away_is_told(owner: Client, settings) -> None:
    settings.EMAIL_BACKEND = f"{Refusing.__module__}.Refusing"

    page = owner.post(ADD, {"email": EMAIL, "role": "Operator"}, follow=True)

    assert "messagelist" in page.text
    assert 'class="warning"' in page.text
