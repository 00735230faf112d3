"""The commands of the ledger: all are tried, and each one that is refused is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings as site
from pytest_django import Settings
from redis import Redis, RedisError

from seckill_site import health
from seckill_site.checks import services
from seckill_site.checks.configuration import found_by
from seckill_site.checks.ledger_commands import COMMANDS
from seckill_site.redis.ledger_connection import ledger_connection
from tests.faults.conftest import OwnRedis
from tests.support.patience import wait_for
from tests.support.stack import free_port

UseUser = Callable[..., None]


def errors() -> list[tuple[str, str]]:
    found = found_by(services.check_ledger)
    return [(str(it.id), it.msg) for it in found if str(it.id).startswith("seckill.E")]


def point_ledger_at(settings: Settings, url: str) -> None:
    ledger = {**settings.CACHES["ledger"], "LOCATION": url}
    settings.CACHES = {**settings.CACHES, "ledger": ledger}


@pytest.fixture
def use_user(settings: Settings) -> Callable[..., None]:
    """Let the ledger be asked as a user with these rules."""
    url = urlsplit(site.REDIS_URL)

    def use(*rules: str) -> None:
        with Redis.from_url(site.REDIS_URL) as server:
            server.execute_command("ACL", "SETUSER", "shop", "reset", "on", ">pw", *rules)
        netloc = f"shop:pw@{url.hostname}:{url.port}"
        point_ledger_at(settings, url._replace(netloc=netloc).geturl())

    return use


@pytest.fixture(autouse=True)
def remove_user() -> object:
    yield
    with Redis.from_url(site.REDIS_URL) as server:
        server.acl_deluser("shop")


def test_user_of_the_hint_is_enough(use_user: UseUser) -> None:
    """The control: what the hint says is all that the shop needs."""
    use_user("~*", "&*", "+@all", "-@dangerous", "+info")
    assert errors() == []
    assert ledger_connection().ping()


@pytest.mark.parametrize(
    "command",
    [
        "info", "evalsha", "eval", "script|load", "time", "wait", "scan", "hset",
        "zadd", "rename", "unlink", "multi",
    ],
)  # fmt: skip
def test_refused_command_is_named(use_user: UseUser, command: str) -> None:
    use_user("~*", "&*", "+@all", f"-{command}")
    [(number, message)] = errors()
    assert number == "seckill.E015"
    assert message.endswith(f"Refused: {command.replace('|', ' ').upper()}.")


def test_refused_select_is_named(use_user: UseUser, settings: Settings) -> None:
    use_user("~*", "&*", "+@all", "-select")
    url = urlsplit(settings.CACHES["ledger"]["LOCATION"])
    point_ledger_at(settings, url._replace(path="/1").geturl())
    [(number, message)] = errors()
    assert (number, "select" in message) == ("seckill.E015", True)


def test_missing_keys_are_named(use_user: UseUser) -> None:
    use_user("~seckill:*", "&*", "+@all")
    [(number, message)] = errors()
    assert (number, "MGET" in message) == ("seckill.E015", True)


@pytest.mark.parametrize("rules", [("resetchannels",), ("&*", "-publish"), ("&*", "-subscribe")])
def test_missing_channels_are_a_warning(use_user: UseUser, rules: tuple[str, ...]) -> None:
    use_user("~*", "+@all", *rules)
    assert errors() == []
    assert "seckill.W017" in {it.id for it in found_by(services.check_ledger)}


def test_user_without_info_is_not_ready(use_user: UseUser) -> None:
    use_user("~*", "&*", "+@all", "-info")
    [error] = health._cached_errors("redis")
    assert error.id == "seckill.E015"


def test_all_commands_of_the_scripts_are_tried() -> None:
    tried = {str(command[0]) for command in COMMANDS} | {"PUBLISH"}
    files = [
        it
        for app in ("vouchers", "orders", "locks")
        for it in site.BASE_DIR.glob(f"{app}/**/*.lua")
    ]
    used = {
        name for it in files for name in re.findall(r"redis\.p?call\(['\"](\w+)", it.read_text())
    }
    assert len(used) > 30
    assert used <= tried


def test_tried_commands_leave_no_key(ledger: Any) -> None:
    assert errors() == []
    assert not list(ledger.scan_iter("*{probe}*"))


@pytest.mark.slow
@pytest.mark.parametrize("slots", [False, True], ids=["without slots", "with all slots"])
@pytest.mark.parametrize("number", [0, 1])
def test_cluster_node_is_refused(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory, slots: bool, number: int
) -> None:
    with OwnRedis(
        tmp_path_factory.mktemp("node"),
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        str(free_port()),
    ) as node:
        with node.client() as client:
            if slots:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
                wait_for(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
        point_ledger_at(settings, node.url(number))
        assert [number for number, _ in errors()] == ["seckill.E016"]


def test_single_server_is_no_cluster(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The control: the same server without cluster mode."""
    with OwnRedis(tmp_path_factory.mktemp("single")) as single:
        point_ledger_at(settings, single.url(1))
        assert errors() == []


def test_replica_as_ledger_is_an_error(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with OwnRedis(tmp_path_factory.mktemp("replica")) as replica:
        with replica.client() as client:
            client.replicaof("127.0.0.1", 1)
        point_ledger_at(settings, replica.url())
        with pytest.raises(RedisError):
            ledger_connection().ping()
        assert [number for number, _ in errors()] == ["seckill.E012"]
