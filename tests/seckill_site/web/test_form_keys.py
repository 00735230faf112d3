"""Keys of forms that create something: what is stored of them, and for how long."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.test import RequestFactory

from seckill_site.clocks.database import database_now
from seckill_site.models import SentForm
from seckill_site.web.form_keys import KEPT, key_of, make_once

pytestmark = pytest.mark.django_db


def request_with(key: str, *, pk: int = 1) -> HttpRequest:
    request = RequestFactory().post("/", {"form_key": key})
    request.user = User(pk=pk)
    return request


def test_first_press_makes_and_the_second_is_told() -> None:
    made = iter(["one", "two"])
    for _ in range(2):
        assert make_once(request_with("a key"), "tea", lambda: next(made)) == "one"
    assert make_once(request_with("a key"), "rice", lambda: next(made)) == "two"


def test_failure_stores_no_key() -> None:
    with pytest.raises(ZeroDivisionError):
        make_once(request_with("a key"), "tea", lambda: 1 / 0)
    assert make_once(request_with("a key"), "tea", lambda: "one") == "one"


def test_table_has_no_key_and_forgets_what_is_old() -> None:
    make_once(request_with("a key"), "tea", lambda: "one")
    old = SentForm.objects.get()
    assert "a key" not in old.digest
    SentForm.objects.update(sent_at=database_now() - KEPT * 2)
    make_once(request_with("another"), "tea", lambda: "two")
    assert [it.made for it in SentForm.objects.all()] == ["two"]


def test_new_forms_have_keys_of_their_own() -> None:
    page = RequestFactory().get("/")
    assert len({key_of(page) for _ in range(100)}) == 100
