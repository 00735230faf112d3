"""Alive, ready, and the metrics."""

from __future__ import annotations

import time

import pytest
from redis import Redis

from tests.vouchers.conftest import closed_port


@pytest.fixture
def broker_gone(monkeypatch):
    monkeypatch.setenv("CELERY_BROKER_URL", f"redis://127.0.0.1:{closed_port()}/0")


# --- healthz -------------------------------------------------------------------------------------


def test_alive_touches_neither_database_nor_redis(client, ledger_trips):
    """Without the database mark, pytest-django refuses any query."""
    response = client.get("/healthz")

    assert (response.status_code, response.content) == (200, b"ok\n")
    assert ledger_trips == []
    assert not response.cookies


def test_alive_is_answered_while_everything_is_gone(client, database_gone, broker_gone, redis_gone):
    with redis_gone():
        assert client.get("/healthz").status_code == 200


# --- readyz --------------------------------------------------------------------------------------

ALL_OK = {"ready": True, "redis": "ok", "database": "ok", "broker": "ok"}


@pytest.mark.django_db
def test_ready_names_each_part(client):
    response = client.get("/readyz")

    assert response.status_code == 200
    assert response.json() == ALL_OK
    assert response["Cache-Control"] == "no-store"
    assert "Retry-After" not in response


def assert_missing(response, *parts):
    assert response.status_code == 503
    assert response.json() == {**ALL_OK, "ready": False, **dict.fromkeys(parts, "unavailable")}
    assert int(response["Retry-After"]) >= 1
    assert response["Cache-Control"] == "no-store"


@pytest.mark.django_db
def test_a_redis_that_is_gone_is_named(client, redis_gone):
    with redis_gone():
        assert_missing(client.get("/readyz"), "redis")


def test_a_database_that_is_gone_is_named(client, database_gone):
    assert_missing(client.get("/readyz"), "database")


@pytest.mark.django_db
def test_a_broker_that_is_gone_is_named(client, broker_gone):
    assert_missing(client.get("/readyz"), "broker")


def test_everything_that_is_gone_is_named_and_in_time(
    client, database_gone, broker_gone, redis_gone
):
    started = time.monotonic()

    with redis_gone():
        assert_missing(client.get("/readyz"), "redis", "database", "broker")

    assert time.monotonic() - started < 2


@pytest.mark.django_db
def test_what_came_back_is_ready_again(client, monkeypatch, redis_gone):
    with redis_gone():
        assert client.get("/readyz").status_code == 503

    assert client.get("/readyz").json() == ALL_OK


@pytest.mark.django_db
def test_asking_again_and_again_leaves_no_connection_behind(client, settings):
    def connections():
        return broker.info("clients")["connected_clients"]

    with Redis.from_url(settings.CELERY_BROKER_URL) as broker:
        client.get("/readyz")
        before = connections()
        for _ in range(20):
            client.get("/readyz")
        assert connections() < before + 10


# --- metrics -------------------------------------------------------------------------------------


def test_prometheus_is_told_how_orders_were_answered(client):
    response = client.get("/metrics")

    text = response.content.decode()
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/plain")
    for name in ("seckill_order_requests", "seckill_publishes", "seckill_fulfilled"):
        assert f"# TYPE {name}_total counter" in text


def test_with_several_processes_prometheus_is_told_of_all(client, monkeypatch, tmp_path):
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))

    response = client.get("/metrics")

    assert (response.status_code, response.content) == (200, b"")  # none has written yet
