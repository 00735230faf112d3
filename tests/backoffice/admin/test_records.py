"""The page of held locks in the admin: its permissions, and that it is read-only."""

from __future__ import annotations

import io
import re

import pytest
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.test import Client
from redis import Redis

from tests.fixtures.site import RedisGone
from tests.locks.test_inspection import NAME, OTHER, write_lock, write_reader, write_waiting
from tests.support.staff import staff_with

pytestmark = pytest.mark.django_db

LIST = "/admin/locks/lock/"


def test_locks_are_listed_with_their_details(shop: Client, redis_client: Redis) -> None:
    write_lock(redis_client, token=1_234_567, age_ms=12_300)
    write_waiting(redis_client, f"{NAME}:waiting", "web-2/12/bbbbbbbb", 1_000, left_ms=9_000)
    write_reader(redis_client, OTHER, key="lock:{12}:page:readers")
    response = shop.get(LIST)
    assert response.status_code == 200
    for text in (NAME, "web-1/4711", ">1234567<", "exclusive lock", "read lock"):
        assert text in response.text
    assert re.search(r">(1[2-9]|[2-9]\d)\.\d", response.text), "held for 12.3 s and a bit"
    assert "2 held locks" in response.text


def test_empty_lock_list_has_a_message(shop: Client, redis_client: Redis) -> None:
    response = shop.get(LIST)
    assert response.status_code == 200
    assert "0 held locks" in response.text
    assert "office__table" not in response.text


def test_lock_page_is_translated(redis_client: Redis) -> None:
    write_lock(redis_client)
    page = staff_with(is_owner=True, language="zh-hans").get(LIST).text
    for text in ("持有中的锁", "独占锁", "剩余租期", "共持有 1 把锁"):
        assert text in page


def test_lock_name_is_escaped(shop: Client, redis_client: Redis) -> None:
    write_lock(redis_client, "lock:<script>")
    page = shop.get(LIST).text
    assert "lock:&lt;script&gt;" in page
    assert "lock:<script>" not in page


def test_system_only_links_to_the_lock_list(shop: Client, redis_client: Redis) -> None:
    for index in ("/admin/system/", "/admin/locks/"):
        page = shop.get(index).text
        assert f'href="{LIST}"' in page
        assert f"{LIST}add/" not in page


@pytest.mark.slow
@pytest.mark.parametrize(("address", "said"), [("", True), ("203.0.113.7", False)])
def test_system_names_requests_without_addresses(shop: Client, address: str, said: bool) -> None:
    page = shop.get("/admin/system/", REMOTE_ADDR=address).text
    assert ("Requests come through a unix socket, without an address" in page) is said
    assert ("Settings and servers are as they should be." in page) is not said


def test_only_view_permission_exists_for_locks() -> None:
    found = Permission.objects.filter(content_type__app_label="locks")
    assert list(found.values_list("codename", flat=True)) == ["view_lock"]


def test_forged_lock_action_does_nothing(shop: Client, redis_client: Redis) -> None:
    write_lock(redis_client)
    shop.post(LIST, {"action": "delete_selected", "_selected_action": NAME, "post": "yes"})
    assert redis_client.exists(NAME)


def test_lock_page_without_redis_says_so(shop: Client, redis_gone: RedisGone) -> None:
    with redis_gone():
        response = shop.get(LIST)
    assert response.status_code == 503
    assert "Redis did not respond" in response.text
    assert "office__table" not in response.text


def test_dumpdata_skips_the_lock_model() -> None:
    out = io.StringIO()
    call_command("dumpdata", "locks", stdout=out)
    assert out.getvalue().strip() == "[]"
