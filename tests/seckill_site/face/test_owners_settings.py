"""What owners set: the environment wins, then the page, and each process hears of a change."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils.translation import override

from seckill_site.face.owners_settings import FRESH_S, MAY_LAG_S, known
from seckill_site.face.site_face import both_faces, site_face, terms_version
from seckill_site.front_door.shells import MAX_AGE_S
from seckill_site.models import ShopSettings
from seckill_site.web.responses import PUBLIC_SECONDS
from tests.support.settings import set_by_owner

pytestmark = [pytest.mark.django_db, pytest.mark.quick]


def test_environment_wins_then_page_then_built_in(settings: Any) -> None:
    assert both_faces()[0].name == "Seckill"

    set_by_owner(name="老街茶馆", contact="help@tea.example")
    assert (both_faces()[0].name, both_faces()[1].name) == ("老街茶馆", "老街茶馆")

    settings.SECKILL_SHOP_NAME = "好券集市"
    assert (site_face().name, site_face().contact) == ("好券集市", "help@tea.example")


def test_english_field_wins_over_the_chinese_one() -> None:
    set_by_owner(name="老街茶馆", name_en="Old Street", imprint="沪ICP备1号")

    with override("en"):
        assert (site_face().name, site_face().imprint) == ("Old Street", "沪ICP备1号")


def test_every_field_reaches_the_face() -> None:
    given: dict[str, Any] = {
        **{"name": "茶", "imprint": "备", "terms": "条款", "invitation": "欢迎"},
        **{"contact": "a@tea.example", "colour": "#0a7d4f", "mail_from": "Tea <b@tea.example>"},
    }

    set_by_owner(**given)

    assert {name: getattr(both_faces()[0], name) for name in given} == given


def test_terms_of_the_page_are_text_and_no_path() -> None:
    set_by_owner(terms="/etc/passwd")

    assert site_face().terms_text == b"/etc/passwd"
    assert site_face().terms_url == "/terms/"
    assert terms_version().startswith("sha256:")


def test_address_as_terms_is_linked() -> None:
    set_by_owner(terms="https://tea.example/terms")

    assert site_face().terms_url == "https://tea.example/terms"
    assert terms_version().startswith("https://tea.example/terms 20")


def test_process_asks_once_and_reads_only_what_is_new() -> None:
    def statements() -> int:
        with CaptureQueriesContext(connection) as asked:
            for _ in range(20):
                site_face()
        return len(asked)

    set_by_owner(name="茶")
    assert statements() == 2
    assert statements() == 0
    known.trust(for_s=0)
    assert statements() == 1


def test_change_of_another_process_is_heard_in_time() -> None:
    """Pages in memory and in caches are added, and half of the time is left."""
    set_by_owner(name="茶")
    assert site_face().name == "茶"
    ShopSettings.objects.update(values={"name": "面"}, revision="another")

    known._until -= FRESH_S

    assert site_face().name == "面"
    assert FRESH_S + MAY_LAG_S + MAX_AGE_S + PUBLIC_SECONDS < 10


def test_process_goes_on_with_what_it_knows_without_the_database() -> None:
    set_by_owner(name="茶")
    assert site_face().name == "茶"
    tried = []

    def fail(*_: Any) -> None:
        tried.append(True)
        raise OperationalError("gone")

    known.trust(for_s=0)
    with connection.execute_wrapper(fail):
        assert [site_face().name for _ in range(3)] == ["茶"] * 3

    assert len(tried) == 1


def test_silent_database_holds_one_caller() -> None:
    set_by_owner(name="茶")
    assert site_face().name == "茶"
    meanwhile: list[str] = []
    others = ThreadPoolExecutor(1)

    def answer_late(execute: Any, *query: Any) -> Any:
        meanwhile.append(others.submit(lambda: site_face().name).result(timeout=20))
        return execute(*query)

    known.trust(for_s=0)
    with connection.execute_wrapper(answer_late):
        site_face()

    assert meanwhile == ["茶"]


def test_deleted_row_means_nothing_is_set() -> None:
    set_by_owner(name="茶")
    assert site_face().name == "茶"
    ShopSettings.objects.all().delete()

    known.trust(for_s=0)

    assert site_face().name == "Seckill"


def test_database_holds_one_row() -> None:
    with pytest.raises(IntegrityError, match="shop_settings_one_row"):
        ShopSettings.objects.create(pk=2, revision="x")
