"""Alive, ready, and the metrics."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from unittest import mock

import pytest
from django.contrib.sessions.models import Session
from django.db import connection
from redis import Redis

from seckill_site import health, process_memory
from seckill_site.redis.ledger_connection import BACKING_OFF
from seckill_site.settings import database_options
from tests.seckill_site.checks.test_configuration import configured, renamed
from tests.support.heartbeats import ORDERS, note, note_all
from tests.support.patience import MOMENT_S, running_s, wait_for
from vouchers.inventory.batch_journal import back_off


def probe_anew():
    """Let the next question probe all parts, as after two seconds."""
    health._parts.forget()


@pytest.fixture(autouse=True)
def sound_shop(monkeypatch):
    """Let no clock of this machine be wrong, and all run that ought to."""
    monkeypatch.setattr(health, "wrong_clocks", dict)
    note_all()


# --- healthz -------------------------------------------------------------------------------------


def test_healthz_touches_neither_database_nor_redis(client, ledger_trips):
    """Without the database mark, pytest-django refuses any query."""
    response = client.get("/healthz")

    assert (response.status_code, response.content) == (200, b"ok\n")
    assert ledger_trips == []
    assert not response.cookies


def test_healthz_answers_while_every_server_is_gone(
    client, database_gone, broker_refuses, redis_gone
):
    with redis_gone():
        assert client.get("/healthz").status_code == 200


# --- readyz --------------------------------------------------------------------------------------

ALL_OK = {
    "ready": True, "redis": "ok", "database": "ok", "broker": "ok", "orders": "ok", "checks": "ok",
    "clocks": "ok", "heartbeats": "ok", "release": "ok",
}  # fmt: skip


@pytest.mark.django_db
def test_readyz_names_each_part(client):
    response = client.get("/readyz")

    assert response.status_code == 200
    assert response.json() == ALL_OK
    assert response["Cache-Control"] == "no-store"
    assert "Retry-After" not in response


def assert_missing(response, *parts):
    assert response.status_code == 503
    missing = {"ready": False, **dict.fromkeys(parts, "unavailable")}
    beats = {"heartbeats": "unknown"} if "redis" in parts else {}
    assert response.json() == {**ALL_OK, **missing, **beats}
    assert int(response["Retry-After"]) >= 1
    assert response["Cache-Control"] == "no-store"


def test_readyz_names_all_missing_parts_in_time(client, database_gone, broker_refuses, redis_gone):
    started = running_s()

    with redis_gone():
        assert_missing(client.get("/readyz"), "redis", "database", "broker")

    assert running_s() - started < MOMENT_S


@pytest.mark.django_db
def test_readyz_recovers_with_its_parts(client, monkeypatch, redis_gone):
    with redis_gone():
        assert client.get("/readyz").status_code == 503

    probe_anew()
    assert client.get("/readyz").json() == ALL_OK


@pytest.mark.django_db
def test_readyz_counts_too_few_replicas_as_missing_redis(client, settings):
    settings.SECKILL_LEDGER_REPLICAS = 1

    assert_missing(client.get("/readyz"), "redis")


@pytest.mark.django_db
def test_readyz_says_that_workers_pause_a_sale(client):
    back_off(sale_id=1, error=ValueError("the table is full"))

    assert_missing(client.get("/readyz"), "orders")


@pytest.mark.django_db
def test_readyz_names_what_does_not_run_and_stays_ready(client):
    note_all({ORDERS: 45}, without="queue:webhooks")

    for _ in range(2):
        response = client.get("/readyz")
        beats = response.json().pop("heartbeats")
        assert response.status_code == 200
        assert beats == {ORDERS: pytest.approx(45, abs=2), "queue:webhooks": None}

    note({ORDERS: 0, "queue:webhooks": 0})
    assert client.get("/readyz").json() == ALL_OK  # uncached


@pytest.mark.django_db
def test_pause_prolonged_by_the_clock_of_redis_is_no_pause(client, ledger):
    back_off(sale_id=1, error=ValueError("the table is full"))
    ledger.pexpire(BACKING_OFF, 60_000)

    assert client.get("/readyz").status_code == 200


@pytest.mark.django_db
def test_redis_that_takes_no_write_is_missing(client, settings):
    """One server holds ledger and broker here."""
    with Redis.from_url(settings.REDIS_URL) as server:
        server.config_set("min-replicas-to-write", 1)
        try:
            assert_missing(client.get("/readyz"), "redis", "broker")
        finally:
            server.config_set("min-replicas-to-write", 0)


@pytest.mark.django_db
def test_full_broker_is_missing(client, settings):
    with Redis.from_url(settings.REDIS_URL) as server:
        server.config_set("maxmemory", 1)
        try:
            assert client.get("/readyz").json()["broker"] == "unavailable"
        finally:
            server.config_set("maxmemory", 0)


@pytest.mark.slow
@pytest.mark.django_db
def test_broker_that_became_a_replica_is_missing(client, settings):
    with Redis.from_url(settings.REDIS_URL) as server:
        server.replicaof("127.0.0.1", "1")
        try:
            assert client.get("/readyz").json()["broker"] == "unavailable"
        finally:
            server.replicaof("NO", "ONE")
            # The front door's connection is the one that finds that out.
            wait_for(lambda: client.get("/readyz").json()["redis"] == "ok", what="the primary")


@pytest.mark.django_db
def test_broker_whose_queue_is_none_is_missing(client, settings):
    with Redis.from_url(settings.CELERY_BROKER_URL) as broker:
        broker.delete("celery")
        broker.set("celery", "by hand")
        try:
            assert_missing(client.get("/readyz"), "broker")
        finally:
            broker.delete("celery")


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("row_locks")
def test_database_that_takes_no_insert_is_missing(client):
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TRIGGER full BEFORE INSERT ON django_session FOR EACH ROW "
            "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'full'"
        )
        try:
            assert_missing(client.get("/readyz"), "database")
        finally:
            cursor.execute("DROP TRIGGER full")


@pytest.mark.django_db(transaction=True)
def test_missing_table_is_named(client):
    with renamed("django_session"):
        response = client.get("/readyz")

    text = "Tables are missing: 1."
    named = {"ready": False, "checks": [{"id": "seckill.E026", "message": text}]}
    assert response.status_code == 503
    assert response.json() == {**ALL_OK, **named}


@pytest.mark.django_db(transaction=True)
def test_probe_leaves_no_row(client):
    assert client.get("/readyz").json() == ALL_OK
    assert not Session.objects.exists()


@pytest.mark.django_db
def test_probes_run_at_most_every_two_seconds(client, monkeypatch):
    monkeypatch.setattr(health._parts, "for_s", 3600)  # on a slow machine, 20 requests take long
    probes = []
    monkeypatch.setitem(health.PARTS, "orders", lambda: probes.append(1))
    for _ in range(20):
        client.get("/readyz")

    assert len(probes) == 1


@pytest.mark.slow
@pytest.mark.django_db
def test_repeated_probes_leave_no_connection_open(client, settings):
    def connections():
        return broker.info("clients")["connected_clients"]

    with Redis.from_url(settings.CELERY_BROKER_URL) as broker:
        client.get("/readyz")
        before = connections()
        for _ in range(20):
            probe_anew()
            client.get("/readyz")
        assert connections() < before + 10


@pytest.fixture
def all_silent(monkeypatch, settings, transactional_db, tmp_path, impatient_redis):
    """Servers that take every connection and never say a word."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        local = stack.enter_context(socket.socket(socket.AF_UNIX))
        local.bind(str(tmp_path / "s"))
        local.listen()
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        monkeypatch.setenv("CELERY_BROKER_URL", url)
        caches = settings.CACHES
        settings.CACHES = {**caches, "ledger": {**caches["ledger"], "LOCATION": url}}
        shops = database_options(connection.settings_dict["ENGINE"])
        options = {**connection.settings_dict["OPTIONS"], **shops}
        options["unix_socket"] = str(tmp_path / "s")
        stack.enter_context(mock.patch.dict(connection.settings_dict, OPTIONS=options))
        yield


@pytest.mark.slow
def test_readyz_names_silent_servers_in_time(client, all_silent):
    started = running_s()

    assert_missing(client.get("/readyz"), "redis", "database", "broker")

    assert running_s() - started < MOMENT_S


# --- readyz: the checks --------------------------------------------------------------------------

EVICTS = {
    "id": "seckill.E010",
    "message": "The ledger's Redis evicts keys as soon as its memory is full.",
}


@pytest.mark.django_db
def test_check_error_makes_site_unready(client):
    with configured(maxmemory="1gb", maxmemory_policy="allkeys-lru"):
        response = client.get("/readyz")

    assert response.status_code == 503
    assert response.json() == {**ALL_OK, "ready": False, "checks": [EVICTS]}
    assert int(response["Retry-After"]) >= 1


@pytest.mark.django_db
def test_check_warning_leaves_site_ready(client):
    with configured(maxmemory="0", maxmemory_policy="allkeys-lru"):
        response = client.get("/readyz")

    assert (response.status_code, response.json()) == (200, ALL_OK)


@pytest.mark.django_db
def test_silenced_check_leaves_site_ready(client, settings):
    settings.SILENCED_SYSTEM_CHECKS = ["seckill.E010"]

    with configured(maxmemory="1gb", maxmemory_policy="allkeys-lru"):
        assert client.get("/readyz").json() == ALL_OK


@pytest.mark.slow
@pytest.mark.django_db
def test_check_results_are_cached_for_seconds(client, monkeypatch):
    client.get("/readyz")
    with configured(maxmemory="1gb", maxmemory_policy="allkeys-lru"):
        probe_anew()
        assert client.get("/readyz").status_code == 200

        now = time.monotonic()
        monkeypatch.setattr(process_memory, "monotonic", lambda: now + health.CACHE_SECONDS)
        assert client.get("/readyz").status_code == 503


@pytest.mark.django_db
def test_returned_server_is_checked_again(client, redis_gone):
    client.get("/readyz")
    with redis_gone():
        probe_anew()
        client.get("/readyz")

    probe_anew()
    with configured(maxmemory="1gb", maxmemory_policy="allkeys-lru"):
        assert client.get("/readyz").json()["checks"] == [EVICTS]


# --- metrics -------------------------------------------------------------------------------------


def test_metrics_count_order_answers(client):
    response = client.get("/metrics")

    text = response.content.decode()
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/plain")
    for name in ("seckill_order_requests", "seckill_publishes", "seckill_fulfilled"):
        assert f"# TYPE {name}_total counter" in text
