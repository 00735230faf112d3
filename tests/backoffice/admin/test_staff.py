"""The staff: their page, the form for one of them, and invitations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core import mail
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.invitations import VALID_FOR
from accounts.models import Invitation
from orders.roles import Role, make_roles
from tests.accounts.test_addresses import Refusing
from tests.support.browsers import HTML, browser_of
from tests.support.html_forms import edit, filled
from tests.support.staff import said, staff_with
from vouchers.models import Merchant

pytestmark = [pytest.mark.django_db, pytest.mark.quick]

STAFF = "/admin/staff/"
INVITE = "/admin/accounts/invitation/add/"


@pytest.fixture(autouse=True)
def roles() -> None:
    make_roles()


@pytest.fixture
def owner() -> Client:
    return staff_with(name="owner", is_owner=True)


@pytest.fixture
def clerk() -> User:
    user = User.objects.create(username="clerk", first_name="Mei", is_staff=True)
    user.groups.add(Group.objects.get(name=Role.SHOP_STAFF))
    return user


def form_url(user: User) -> str:
    return reverse("admin:auth_user_change", args=[user.pk])


def sent(user: User, **changes: object) -> dict[str, object]:
    """Return what the form sends, with these changes."""
    role = user.groups.first()
    fields = {"first_name": user.first_name, "email": user.email, "is_active": "on"}
    return {**fields, "role": role.pk if role else "", **changes}


# --- The page -------------------------------------------------------------------------------------


def test_page_lists_staff_with_translated_roles(owner: Client, clerk: User) -> None:
    User.objects.create(username="buyer-ann")

    page = owner.get(STAFF, headers={"Accept-Language": "zh-hans"}).text

    assert "Mei" in page
    assert "店员" in page
    assert "店主" in page
    assert "buyer-ann" not in page


def test_page_shows_pending_invitations_alone(owner: Client) -> None:
    role = Group.objects.get(name=Role.CASHIER)
    Invitation.objects.create(email="open@example.com", name="Ada", role=role)
    late = Invitation.objects.create(email="late@example.com", role=role)
    Invitation.objects.filter(pk=late.pk).update(invited_at=late.invited_at - VALID_FOR)
    done = Invitation.objects.create(email="done@example.com", role=role)
    Invitation.objects.filter(pk=done.pk).update(accepted_at=done.invited_at)

    page = owner.get(STAFF).text

    assert "open@example.com" in page
    assert "late@example.com" in page
    assert page.count("expired") == page.count("data-copy=") == 1
    assert "done@example.com" not in page


# --- One member -----------------------------------------------------------------------------------


def test_form_has_name_mail_role_and_nothing_technical(owner: Client, clerk: User) -> None:
    clerk.set_password("some-long-password")
    clerk.save()

    page = owner.get(form_url(clerk)).text

    assert ">Shop staff</option>" in page
    assert "Cashier" in page
    for technical in ("pbkdf2", "argon2", "user_permissions", "id_groups", "is_superuser"):
        assert technical not in page
    assert 'href="?advanced=1"' in page


def test_advanced_form_has_the_rest(owner: Client, clerk: User) -> None:
    page = owner.get(f"{form_url(clerk)}?advanced=1").text

    assert "id_user_permissions" in page
    assert "id_groups" in page


def test_form_replaces_the_role_and_keeps_other_groups(owner: Client, clerk: User) -> None:
    others, operator = Group.objects.create(name="Friends"), Group.objects.get(name=Role.OPERATOR)
    clerk.groups.add(others)

    response = edit(owner, form_url(clerk), sent(clerk, role=operator.pk, first_name="Mei Li"))

    assert response.status_code == 302
    clerk.refresh_from_db()
    assert set(clerk.groups.all()) == {others, operator}
    assert (clerk.first_name, clerk.is_staff, clerk.username) == ("Mei Li", True, "clerk")


def test_saved_group_keeps_a_permission_of_another_app(owner: Client) -> None:
    group = Group.objects.create(name="Auditors")
    group.permissions.add(Permission.objects.get(codename="view_session"))
    url = reverse("admin:auth_group_change", args=[group.pk])
    owner.post(url, {**filled(owner.get(url)), "name": "Reviewers"})
    group.refresh_from_db()
    assert group.name == "Reviewers"
    assert [it.codename for it in group.permissions.all()] == ["view_session"]


def test_without_a_role_nobody_is_staff(owner: Client, clerk: User) -> None:
    edit(owner, form_url(clerk), sent(clerk, role=""))

    clerk.refresh_from_db()
    assert not clerk.is_staff
    assert not clerk.groups.exists()


def test_buyer_who_gets_a_role_signs_in_again(owner: Client) -> None:
    ben = User.objects.create(username="ben")
    client = browser_of(ben)

    edit(owner, form_url(ben), sent(ben, role=Group.objects.get(name=Role.CASHIER).pk))

    ben.refresh_from_db()
    assert ben.is_staff
    assert "_auth_user_id" not in Client(cookies=client.cookies).session


def test_nobody_locks_themselves_out(owner: Client) -> None:
    me = User.objects.get(username="owner")

    response = edit(owner, form_url(me), {"first_name": "", "email": ""})

    assert "You cannot lock yourself out." in response.text
    assert User.objects.get(username="owner").is_active


def test_owner_has_no_role_to_choose(owner: Client) -> None:
    me = User.objects.get(username="owner")

    assert 'name="role"' not in owner.get(form_url(me)).text


# --- Merchants ------------------------------------------------------------------------------------


def test_owner_binds_a_cashier_to_merchants(owner: Client, clerk: User) -> None:
    tea, rice = (Merchant.objects.create(name=it) for it in ("Tea", "Rice"))
    assert 'name="merchants"' in owner.get(form_url(clerk)).text
    assert Merchant.redeemed_by(clerk) is None, "all, as before there was a choice"
    edit(owner, form_url(clerk), sent(clerk, merchants=[tea.pk, rice.pk]))
    assert Merchant.redeemed_by(clerk) == frozenset({tea.pk, rice.pk})
    edit(owner, form_url(clerk), sent(clerk, merchants=[rice.pk]))
    assert Merchant.redeemed_by(clerk) == frozenset({rice.pk})
    edit(owner, form_url(clerk), sent(clerk))
    assert Merchant.redeemed_by(clerk) is None


def test_only_owners_bind_and_are_not_bound(owner: Client, clerk: User) -> None:
    rice = Merchant.objects.create(name="Rice")
    manager = staff_with("change_user", "view_user", name="manager")
    assert 'name="merchants"' not in manager.get(form_url(clerk)).text
    edit(manager, form_url(clerk), sent(clerk, merchants=[rice.pk]))
    assert Merchant.redeemed_by(clerk) is None
    boss = User.objects.get(username="owner")
    assert 'name="merchants"' not in owner.get(form_url(boss)).text


def test_merchant_with_bound_staff_stays(owner: Client, clerk: User) -> None:
    """Else its cashier would redeem for all."""
    rice = Merchant.objects.create(name="Rice")
    clerk.merchants.add(rice)
    owner.post(reverse("admin:vouchers_merchant_delete", args=[rice.pk]), {"post": "yes"})
    assert Merchant.redeemed_by(clerk) == frozenset({rice.pk})
    clerk.delete()
    owner.post(reverse("admin:vouchers_merchant_delete", args=[rice.pk]), {"post": "yes"})
    assert not Merchant.objects.filter(pk=rice.pk).exists()


# --- Invitations ----------------------------------------------------------------------------------


def test_invitation_is_one_page_with_a_translated_role(owner: Client) -> None:
    page = owner.get(INVITE, headers={"Accept-Language": "zh-hans"}).text

    assert ">收银员</option>" in page
    assert "发送邀请" in page
    assert "_addanother" not in page


@pytest.mark.django_db(transaction=True)  # the mail is sent after the commit
def test_invited_name_becomes_the_accounts(owner: Client) -> None:
    data = {"name": "Ada", "email": "ada@example.com", "role": Role.CASHIER}

    response = owner.post(INVITE, data, follow=True)

    assert response.redirect_chain == [(STAFF, 302)]
    assert "The invitation was sent to ada@example.com." in response.text
    link = re.search(r"http://\S+", str(mail.outbox[0].body))
    assert link
    client = browser_of(User.objects.create(username="ada"), headers=HTML)
    client.post(urlsplit(link[0]).path)
    ada = User.objects.get(username="ada")
    assert (ada.first_name, ada.is_staff) == ("Ada", True)
    assert client.get("/admin/")["Location"] == "/staff/redeem/"


def link_on(page: str) -> str:
    link = re.search(r'data-copy="(http[^"]+)"', page)
    assert link
    return urlsplit(link[1]).path


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("scheme", ["console", "dummy", "filebased"])
def test_without_a_mail_server_no_mail_is_claimed(
    owner: Client, settings: Any, tmp_path: Path, scheme: str
) -> None:
    settings.EMAIL_BACKEND = f"django.core.mail.backends.{scheme}.EmailBackend"
    settings.EMAIL_FILE_PATH = str(tmp_path)

    response = owner.post(INVITE, {"email": "ada@example.com", "role": Role.CASHIER}, follow=True)

    assert said(response) == [
        "warning: The invitation for ada@example.com is valid, but no mail was sent. Copy the link "
        "and pass it on."
    ]
    assert "No email was sent" in response.text
    assert Invitation.objects.get().mailed_at is None
    assert browser_of(User.objects.create(username="ada")).post(link_on(response.text)).status_code


@pytest.mark.django_db(transaction=True)
def test_mail_that_failed_is_sent_again(owner: Client, settings: Any) -> None:
    works, settings.EMAIL_BACKEND = settings.EMAIL_BACKEND, f"{Refusing.__module__}.Refusing"
    response = owner.post(INVITE, {"email": "ada@example.com", "role": Role.CASHIER}, follow=True)
    assert said(response)[0].startswith("warning: The invitation for ada@example.com is valid")
    settings.EMAIL_BACKEND = works
    invitation = Invitation.objects.get()

    response = owner.post(resend_url(invitation), follow=True)

    assert said(response) == ["success: The invitation was sent to ada@example.com."]
    assert [it.to for it in mail.outbox] == [["ada@example.com"]]
    assert "Last email:" in response.text
    history = reverse("admin:accounts_invitation_history", args=[invitation.pk])
    assert owner.get(history).text.count("Invitation sent again") == 1


def resend_url(invitation: Invitation) -> str:
    return reverse("admin:accounts_invitation_resend", args=[invitation.pk])


@pytest.mark.django_db(transaction=True)
def test_expired_invitation_sent_again_is_valid_for_three_days(owner: Client) -> None:
    owner.post(INVITE, {"email": "ada@example.com", "role": Role.CASHIER})
    Invitation.objects.update(invited_at=timezone.now() - 2 * VALID_FOR)
    ada = browser_of(User.objects.create(username="ada"), headers=HTML)
    assert "data-copy=" not in owner.get(STAFF).text

    page = owner.post(resend_url(Invitation.objects.get()), follow=True).text

    assert ada.post(link_on(page))["Location"] == "/admin/"


def test_accepted_invitation_is_not_sent_again(owner: Client) -> None:
    role = Group.objects.get(name=Role.CASHIER)
    done = Invitation.objects.create(email="a@example.com", role=role, accepted_at=timezone.now())

    response = owner.post(resend_url(done), follow=True)

    assert said(response) == ["error: This invitation was accepted or withdrawn."]
    assert mail.outbox == []


# --- Who is not an owner --------------------------------------------------------------------------


@pytest.fixture
def manager(clerk: User) -> Client:
    """Sign in the clerk, who may change accounts."""
    clerk.user_permissions.add(
        *Permission.objects.filter(codename__in=["change_user", "view_user"])
    )
    return browser_of(clerk, headers=HTML)


def test_manager_changes_a_name_and_no_role(manager: Client, clerk: User) -> None:
    operator = Group.objects.get(name=Role.OPERATOR)

    assert edit(manager, form_url(clerk), sent(clerk, first_name="Li", role=operator.pk))

    clerk.refresh_from_db()
    assert (clerk.first_name, clerk.is_staff) == ("Li", True)
    assert [it.name for it in clerk.groups.all()] == [Role.SHOP_STAFF]


def test_manager_sets_no_password_and_changes_no_owner(
    manager: Client, owner: Client, clerk: User
) -> None:
    boss = User.objects.get(username="owner")

    assert (
        manager.get(reverse("admin:auth_user_password_change", args=[clerk.pk])).status_code == 403
    )
    assert manager.post(form_url(boss), {"first_name": "Eve"}).status_code == 403
    assert owner.get(reverse("admin:auth_user_password_change", args=[clerk.pk])).status_code == 200


def test_corrected_name_leaves_staff_without_a_role_of_ours_in(owner: Client) -> None:
    user = User.objects.create(username="auditor", is_staff=True)

    edit(owner, form_url(user), sent(user, first_name="Ann"))

    user.refresh_from_db()
    assert (user.first_name, user.is_staff) == ("Ann", True)
