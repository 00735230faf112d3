"""Accounts in the admin: the translated names of groups."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from backoffice.admin import accounts as admin
from tests.support.html_forms import edit
from tests.support.staff import staff_with

pytestmark = [pytest.mark.django_db, pytest.mark.quick]

USERS, GROUPS = "/admin/auth/user/", "/admin/auth/group/"


@pytest.fixture
def owner(client: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    """The client of a superuser, in a language that translates Keeper as Gardien."""
    words = {"Keeper": "Gardien"}
    monkeypatch.setattr(admin, "gettext", lambda text: words.get(text, text))
    client.force_login(
        User.objects.create(username="owner", password="!", is_staff=True, is_superuser=True)
    )
    return client


def make_keeper(name: str) -> User:
    user = User.objects.create(username=name, password="!", is_staff=True)
    user.groups.add(Group.objects.get_or_create(name="Keeper")[0])
    return user


def test_group_names_are_translated(owner: Client) -> None:
    keeper, other = make_keeper("ann"), Group.objects.create(name="Friends")
    page = owner.get(f"{USERS}{keeper.pk}/change/?advanced=1").text
    assert ">Gardien</option>" in page
    assert f'<option value="{other.pk}">Friends</option>' in page
    assert 'class="field-roles">Gardien</td>' in owner.get(USERS).text
    assert ">Gardien</a>" in owner.get(GROUPS).text


def test_account_without_group_has_no_role(owner: Client) -> None:
    User.objects.create(username="ben", password="!")
    assert owner.get(USERS, {"q": "ben"}).text.count('class="field-roles">–</td>') == 1


def test_user_page_assigns_a_group(owner: Client) -> None:
    user, group = User.objects.create(username="ben", password="!"), make_keeper("ann").groups.get()
    url = f"{USERS}{user.pk}/change/?advanced=1"
    data = {"username": "ben", "groups": [group.pk], "is_staff": "on", "is_active": "on"}
    assert edit(owner, url, data).status_code == 302
    assert list(user.groups.all()) == [group]


@pytest.mark.parametrize("is_owner", [True, False])
def test_only_owners_delete_an_owner(is_owner: bool) -> None:
    boss = User.objects.create(username="boss", is_superuser=True)
    buyer = User.objects.create(username="buyer")
    who = staff_with("view_user", "delete_user", is_owner=is_owner)
    who.post(f"{USERS}{boss.pk}/delete/", {"post": "yes"})
    assert User.objects.filter(pk=boss.pk).exists() is not is_owner
    boss.save()
    chosen = {"action": "delete_selected", "_selected_action": [boss.pk, buyer.pk], "post": "yes"}
    who.post(USERS, chosen)
    assert User.objects.filter(pk=boss.pk).exists() is not is_owner
    who.post(f"{USERS}{buyer.pk}/delete/", {"post": "yes"})
    assert not User.objects.filter(pk=buyer.pk).exists()


def test_log_forgets_the_name_of_a_deleted_account(owner: Client) -> None:
    users = [User.objects.create(username=name) for name in ("ann", "ben")]
    for user in users:
        edit(owner, f"{USERS}{user.pk}/change/", {"first_name": "Neu", "is_active": "on"})
    owner.post(f"{USERS}{users[0].pk}/delete/", {"post": "yes"})
    owner.post(
        USERS, {"action": "delete_selected", "_selected_action": [users[1].pk], "post": "yes"}
    )
    assert not User.objects.filter(username__in=("ann", "ben")).exists()
    told = set(LogEntry.objects.values_list("object_repr", flat=True))
    assert told == {f"deleted:{user.pk}" for user in users}


def test_account_list_query_count_is_constant(owner: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            owner.get(USERS)
        return len(captured)

    make_keeper("k0")
    two = queries()
    for number in range(1, 20):
        make_keeper(f"k{number}")
    assert queries() == two
