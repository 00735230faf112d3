"""The lab's pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.test import Client
from redis import RedisError

from lab import views
from lab.engine.fork_server import ProcessEnded
from lab.experiments import EXPERIMENTS
from lab.interleaving.actors import NeverCame
from lab.interleaving.races import RACES, races_of
from lab.steps import STEPS
from locks import RedisLock
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.tiers import slow_after

HTML: dict[str, Any] = {"HTTP_ACCEPT": "text/html", "HTTP_ACCEPT_LANGUAGE": "en"}
RACE = "/lab/v1/last-unit/"

pytestmark = pytest.mark.usefixtures("db")


@pytest.fixture(scope="module")
def db(seen_by_all: None) -> None:
    """The database of the whole module."""


def text_of(response: Any) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", response.content.decode())).split())


def test_index_lists_steps_and_races_in_order(client: Client) -> None:
    response = client.get("/lab/", **HTML)

    page = response.content.decode()
    links = re.findall(r'href="(/lab/[^"]+/)"', page)
    races = [f"/lab/{step.name}/{race.name}/" for step in STEPS.values() for race in races_of(step)]
    assert links == [*races, *(f"/lab/experiments/{name}/" for name in EXPERIMENTS)]
    assert response["Cache-Control"] == "public, max-age=1"


def test_page_shows_story_and_code_with_culprit(client: Client) -> None:
    race = RACES["last-unit"]
    for step, findings in race.expects.items():
        response = client.get(f"/lab/{step}/{race.name}/", **HTML)

        assert str(race.story) in text_of(response)
        assert "Play it" in text_of(response)
        marks = re.findall(r'<mark data-line="(\d+)">', response.content.decode())
        assert bool(marks) == bool(findings)
        assert response["Cache-Control"] == "private, no-store"


@pytest.mark.parametrize("path", ["v9/last-unit", "v1/rush-hour", "v1/double-click"])
def test_unknown_step_or_race_returns_404(path: str, client: Client) -> None:
    assert client.get(f"/lab/{path}/", **HTML).status_code == 404


def test_missing_csrf_token_and_other_methods_are_refused() -> None:
    strict = Client(enforce_csrf_checks=True)

    assert strict.post(RACE, **HTML).status_code == 403
    assert strict.delete(RACE, **HTML).status_code in (403, 405)
    assert Client().put("/lab/", **HTML).status_code == 405


def test_one_race_at_a_time(client: Client, elsewhere: Callable[..., Any]) -> None:
    lock = RedisLock(ledger_connection(), views.STAGE_LOCK)
    elsewhere(lock.acquire)

    response = client.post(RACE, **HTML)

    elsewhere(lock.release)

    assert response.status_code == 409
    assert "Another race is being played on this server." in text_of(response)


@pytest.mark.parametrize(
    ("error", "status", "says"),
    slow_after(
        1,
        [
            (NeverCame("A is nowhere"), 503, "The race could not be played: A is nowhere"),
            (ProcessEnded("B is gone"), 503, "The race could not be played: B is gone"),
            (RedisError(), 503, "Try again"),
        ],
    ),
)
def test_failed_play_is_shown(
    error: Exception, status: int, says: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(views, "play", fail)

    response = client.post(RACE, **HTML)

    assert response.status_code == status
    assert says in text_of(response)


def test_without_row_locks_the_page_names_what_is_needed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "has_row_locks", lambda: False)

    page = client.get(RACE, **HTML)

    assert "Play it" not in text_of(page)
    assert "script/server --mysql" in text_of(page)
    assert client.post(RACE, **HTML).status_code == 409


def test_button_plays_the_race_and_shows_its_outcome(client: Client) -> None:
    response = client.post(RACE, **HTML)

    text = text_of(response)
    assert response.status_code == 200
    assert "Broken 1 sold beyond the stock Look at this line: lab/steps/v1.py:" in text
    assert "Play it again" in text
    page = response.content.decode()
    assert page.count('role="columnheader"') == 4
    assert "UPDATE lab_labsale SET stock = (stock - 1)" in page
    assert not re.findall(r"<script|style=", page)
    assert not RedisLock(ledger_connection(), views.STAGE_LOCK).locked()


@pytest.mark.slow
def test_right_verdict_is_shown_without_reads(client: Client) -> None:
    text = text_of(client.post("/lab/ours/redis-empty/", **HTML))

    assert "Right 2 of 2 sold, and every promise was kept." in text
    assert "Redis comes back empty" in text
    assert "checks of database and ledger by the lab are left out" in text
    assert "snapshot.lua" not in text
