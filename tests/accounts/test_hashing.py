"""Password hashing is bounded in each process; what is more is answered 429."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier, Event

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.http import HttpResponse

from accounts import hashing
from accounts.hashing import NICE, BoundedHasher, TooManyHashes, hashing_threads
from tests.support.accounts import PASSWORD
from tests.support.patience import GENEROUS_S

pytestmark = [pytest.mark.quick]
CROWD = 8


@pytest.fixture
def busy() -> Iterator[None]:
    """Have this process hash as many passwords as it may, for the whole test."""
    release, places = Event(), 2

    def hold() -> str:
        assert release.wait(GENEROUS_S)
        return ""

    with ThreadPoolExecutor(places) as pool:
        held: list[Future[str]] = [pool.submit(hashing_threads.run, hold) for _ in range(places)]
        while hashing_threads._places.acquire(blocking=False):
            hashing_threads._places.release()
        yield
        release.set()
        assert [it.result(GENEROUS_S) for it in held] == ["", ""]


def hash_at_once(hasher: PBKDF2PasswordHasher) -> list[bool]:
    """Return, for each of a crowd that comes at one moment, whether its password was hashed."""
    together = Barrier(CROWD)

    def one() -> bool:
        together.wait(GENEROUS_S)
        try:
            return bool(hasher.encode(PASSWORD, "salt"))
        except TooManyHashes:
            return False

    with ThreadPoolExecutor(CROWD) as pool:
        return [it.result() for it in [pool.submit(one) for _ in range(CROWD)]]


def test_process_hashes_one_and_lets_one_wait() -> None:
    assert sum(hash_at_once(BoundedHasher())) == 2


def test_django_alone_hashes_all_at_once() -> None:
    assert sum(hash_at_once(PBKDF2PasswordHasher())) == CROWD


def test_hash_is_djangos() -> None:
    assert BoundedHasher().encode(PASSWORD, "salt", 10) == PBKDF2PasswordHasher().encode(
        PASSWORD, "salt", 10
    )


def test_hashing_threads_go_last() -> None:
    ours = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def theirs() -> str:
        return str(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    assert int(hashing_threads.run(theirs)) == min(ours + NICE, 19)


POSTS: dict[str, tuple[str, dict[str, str]]] = {
    "sign in": ("/accounts/login/", {"username": "ada", "password": PASSWORD}),
    "unknown name": ("/accounts/login/", {"username": "bob", "password": PASSWORD}),
    "sign up": (
        "/accounts/signup/",
        {"username": "eve", "password1": PASSWORD, "password2": PASSWORD},
    ),
}


@pytest.mark.django_db
@pytest.mark.parametrize(("path", "form"), POSTS.values(), ids=POSTS)
def test_hash_too_many_is_answered_429(client, busy, path, form) -> None:
    User.objects.create(username="ada", password="pbkdf2_sha256$1$salt$hash")

    response = client.post(path, form)

    assert response.status_code == 429
    assert response.json()["code"] == "rate_limited"
    assert int(response["Retry-After"]) == 2
    assert User.objects.count() == 1


@pytest.mark.django_db
def test_admin_gets_429_too(client, busy) -> None:
    client.force_login(User.objects.create(username="owner", is_staff=True, is_superuser=True))
    form = {"username": "eve", "password1": PASSWORD, "password2": PASSWORD}

    response = client.post("/admin/auth/user/add/", {**form, "usable_password": "true"})

    assert response.status_code == 429


@pytest.mark.django_db
def test_other_pages_do_not_mind(client, busy) -> None:
    assert client.get("/accounts/login/").status_code == 200


def test_another_exception_is_left_alone(rf) -> None:
    middleware = hashing.TooManyMiddleware(HttpResponse)

    assert middleware.process_exception(rf.get("/"), ValueError()) is None
