"""Sessions and users in the cache: they end with their change, and no refill brings them back."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from pytest_django import DjangoAssertNumQueries, DjangoCaptureOnCommitCallbacks
from redis.exceptions import ConnectionError as NotConnected

from seckill_site import process_memory, sessions
from seckill_site.clocks.database import database_now
from seckill_site.models import StaleFact
from seckill_site.redis import cached_facts
from seckill_site.redis.cached_facts import (
    LONGEST_LIFE_S,
    LONGEST_SAVE_S,
    cache_connection,
    drop_stale_facts,
    record_stale_fact,
    stored_key,
)
from seckill_site.sessions import Buyer, SessionStore, find_buyer, session_call
from tests.support.browsers import browser_of
from tests.support.inspection import redis_commands
from tests.support.orders import make_buyer
from tests.support.patience import GENEROUS_S
from tests.support.tiers import slow_after

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(buyer: User) -> Client:
    return browser_of(buyer)


def key_of(client: Client) -> str:
    return client.cookies[settings.SESSION_COOKIE_NAME].value


def cached(key: str) -> Buyer | None:
    return session_call(session_key=key).run(cache_connection())


@pytest.fixture
def key(client: Client, buyer: User) -> str:
    """A session that the cache knows, with its user."""
    key = key_of(client)
    assert find_buyer(session_key=key) == Buyer(buyer.pk, buyer.username)
    assert cached(key) == Buyer(buyer.pk, buyer.username)
    StaleFact.objects.all().delete()  # of the sign-in, in a transaction that never ends
    return key


class Lost:
    """A cache that does not respond."""

    def __getattr__(self, name: str) -> Any:
        raise NotConnected("lost")


def sign_out(client: Client, buyer: User) -> None:
    assert client.post("/accounts/logout/").status_code == 302


def change_password(client: Client, buyer: User) -> None:
    buyer.set_password("another, and a long one")
    buyer.save()


def deactivate(client: Client, buyer: User) -> None:
    buyer.is_active = False
    buyer.save()


def delete(client: Client, buyer: User) -> None:
    buyer.delete()


def assert_ended(key: str) -> None:
    """Assert that nothing knows the session, and that no refill brings it back."""
    assert cached(key) is None
    assert find_buyer(session_key=key) is None
    assert cached(key) is None
    assert not StaleFact.objects.exists()


Change = Callable[[Client, User], None]
each_change = pytest.mark.parametrize(
    "change", slow_after(2, [sign_out, change_password, deactivate, delete])
)


@each_change
def test_session_ends_with_the_commit(
    change: Change,
    key: str,
    client: Client,
    buyer: User,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        change(client, buyer)
    assert_ended(key)


@pytest.mark.slow
@each_change
def test_session_ends_once_a_lost_cache_responds(
    change: Change,
    key: str,
    client: Client,
    buyer: User,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as lost:
        lost.setattr(cached_facts, "cache_connection", Lost)
        with django_capture_on_commit_callbacks(execute=True):
            change(client, buyer)
        assert drop_stale_facts() == 0
    assert cached(key) is not None  # the control: nothing but the repetition ends it
    assert drop_stale_facts() == 1
    assert_ended(key)


@pytest.mark.django_db(transaction=True)
def test_fact_is_dropped_after_a_save_without_transaction(
    key: str, client: Client, buyer: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record_and_refill(name: str) -> int:
        record_id = record_stale_fact(name)
        assert find_buyer(session_key=key) is not None  # as before the change, which follows
        return record_id

    cache.clear()
    monkeypatch.setattr(sessions, "record_stale_fact", record_and_refill)
    deactivate(client, buyer)
    assert_ended(key)


@pytest.mark.django_db(transaction=True)
def test_save_without_transaction_is_repeated_once_a_lost_cache_responds(
    key: str, client: Client, buyer: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as lost:
        lost.setattr(cached_facts, "cache_connection", Lost)
        deactivate(client, buyer)
    assert cached(key) is not None
    assert drop_stale_facts() == 1
    assert cached(key) is None


@pytest.mark.django_db(transaction=True)
def test_save_without_transaction_is_repeated_if_its_process_dies(
    key: str, client: Client, buyer: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"seckill.user{buyer.pk}"
    facts = cache.get(name)
    monkeypatch.setattr(sessions, "drop_after_commit", lambda *args: None)
    deactivate(client, buyer)
    assert cached(key) is not None
    assert drop_stale_facts() == 0
    assert cached(key) is None
    cache.set(name, facts)  # by a reader, had the save not been over
    over_at = database_now() + dt.timedelta(seconds=LONGEST_SAVE_S)
    monkeypatch.setattr(cached_facts, "database_now", lambda: over_at)
    assert drop_stale_facts() == 1
    assert cached(key) is None


@each_change
@pytest.mark.parametrize("guarded", [True, False], ids=["lease", "control"])
def test_refill_begun_before_the_change_brings_nothing_back(
    change: Change,
    guarded: bool,
    key: str,
    client: Client,
    buyer: User,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real_fill = cached_facts.fill_fact
    late: list[tuple[str, str, str, int]] = []

    def wait(name: str, text: str, *, lease: str, life_s: int) -> bool:
        late.append((name, text, lease, life_s))
        return True

    cache.clear()
    monkeypatch.setattr(sessions, "fill_fact", wait)
    assert find_buyer(session_key=key) is not None
    monkeypatch.undo()
    with django_capture_on_commit_callbacks(execute=True):
        change(client, buyer)
    for name, text, lease, life_s in late:
        if guarded:
            real_fill(name, text, lease=lease, life_s=life_s)
        else:
            cache.set(name, json.loads(text), life_s)
    assert (cached(key) is None) == guarded


def test_session_that_changed_meanwhile_is_not_cached_as_it_was(key: str) -> None:
    cache.clear()
    name = SessionStore.cache_key_prefix + key
    writer = SessionStore(key)
    writer["colour"] = "red"
    lease = cached_facts.take_lease(name)  # a reader reads what was before ...
    writer.save()
    assert not cached_facts.fill_fact(name, "{}", lease=lease, life_s=60)
    assert SessionStore(key)["colour"] == "red"


def test_cache_keeps_neither_session_nor_user_for_long(key: str, buyer: User) -> None:
    """What is changed past all signals is noticed then."""
    for name in (SessionStore.cache_key_prefix + key, f"seckill.user{buyer.pk}"):
        life_s = cache_connection().ttl(stored_key(name))
        assert LONGEST_LIFE_S - GENEROUS_S < life_s <= LONGEST_LIFE_S


def test_lost_cache_costs_one_statement_for_each_of_both(
    key: str, buyer: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    cache.clear()
    assert cached(key) is None
    with django_assert_num_queries(2):
        assert find_buyer(session_key=key) == Buyer(buyer.pk, buyer.username)
    assert cached(key) == Buyer(buyer.pk, buyer.username)


def upper(key: str) -> str:
    return key.upper()


def with_space(key: str) -> str:
    return f"{key} "


@pytest.mark.parametrize("other_form", [upper, with_space])
def test_session_has_one_key_only(key: str, other_form: Callable[[str], str]) -> None:
    """To MariaDB they are the same, and a sign-out drops the copy of one."""
    assert SessionStore(key).model.objects.filter(session_key=other_form(key)).exists()
    cache.clear()
    assert find_buyer(session_key=other_form(key)) is None
    assert cached(other_form(key)) is None
    SessionStore(other_form(key)).delete()
    assert find_buyer(session_key=key) is not None


def test_lease_has_a_key_that_no_fact_can_have() -> None:
    assert find_buyer(session_key="x" * 32) is None
    (lease,) = cache_connection().keys("*lease*")
    assert not lease.decode().startswith(stored_key(""))


@pytest.mark.parametrize("form", ["{}:lease", "lease:{}", "../{}", "{}\n", "{}é", ""])
def test_key_unlike_those_of_django_costs_nothing(
    form: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with redis_commands() as commands, django_assert_num_queries(0):
        assert find_buyer(session_key=form.format("x" * 32)) is None
    assert list(commands) == []


def test_unknown_session_is_asked_for_once_a_second(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    key = "x" * 32
    monkeypatch.setattr(sessions._unknown, "for_s", 600.0)
    with django_assert_num_queries(1):
        assert find_buyer(session_key=key) is None
    with redis_commands() as commands, django_assert_num_queries(0):
        assert find_buyer(session_key=key) is None
        assert SessionStore(key).load() == {}
    assert list(commands) == []
    monkeypatch.setattr(process_memory, "monotonic", lambda: time.monotonic() + 600.0)
    with django_assert_num_queries(1):
        assert SessionStore(key).load() == {}


def test_unknown_key_is_never_used_for_a_new_session() -> None:
    key = "x" * 32
    for _ in range(2):  # once from the database, once from memory
        session = SessionStore(key)
        session["colour"] = "red"
        session.save()
        assert session.session_key != key
        assert SessionStore(session.session_key)["colour"] == "red"


def test_cache_holds_the_session_hash_and_no_password_hash(key: str, buyer: User) -> None:
    buyer.set_password("a password of some length")
    buyer.save()
    cache.clear()
    find_buyer(session_key=key)
    for stored in cache_connection().scan_iter():
        text = cache_connection().get(stored)
        assert buyer.password.encode() not in text


def test_sign_in_alone_drops_nothing(key: str, buyer: User) -> None:
    buyer.save(update_fields=["last_login"])
    assert not StaleFact.objects.exists()
    assert cached(key)


def test_facts_of_another_user_confirm_no_session(key: str, buyer: User) -> None:
    other = make_buyer()
    name, texts = f"seckill.user{buyer.pk}", cache.get(f"seckill.user{buyer.pk}")
    cache.set(name, {**texts, "id": other.pk, "name": other.username})
    assert cached(key) is None
    cache.set(name, {**texts, "session_hash": "another"})
    assert cached(key) is None
    cache.set(name, texts)
    assert cached(key) == Buyer(buyer.pk, buyer.username)
