"""Short descriptions of statements, commands and replies."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from django.db import connection

from lab.interleaving.descriptions import (
    WIDEST,
    describe_calls,
    describe_command,
    describe_reply,
    describe_rows,
    describe_statement,
    is_read,
)
from lab.models import LabSale
from locks.lua_script import LuaScript


@pytest.mark.parametrize(
    ("sql", "params", "words"),
    [
        (
            "UPDATE `lab_labsale` SET `stock` = (`lab_labsale`.`stock` - %s)"
            " WHERE `lab_labsale`.`id` = %s",
            (1, 7),
            "UPDATE lab_labsale SET stock = (stock - 1) WHERE id = 7",
        ),
        (
            "SELECT `t`.`id`, `t`.`a_long_name`, `t`.`another_long_name`, `t`.`more` FROM `t`"
            " WHERE `t`.`id` = %s LIMIT 21 FOR UPDATE",
            (7,),
            "SELECT … FROM t WHERE id = 7 FOR UPDATE",
        ),
        (
            "SELECT COUNT(*) AS `__count` FROM `t` WHERE `t`.`name` = %s",
            ("v1",),
            "SELECT COUNT(*) FROM t WHERE name = 'v1'",
        ),
        (
            "INSERT INTO `t` (`a`, `b`, `c`, `d`) VALUES (%s, %s, %s, %s) RETURNING `t`.`id`",
            (None, True, 1.5, dt.datetime(2026, 1, 2, 3, 4, 5)),
            "INSERT INTO t (a, b, c, d) VALUES (NULL, 1, 1.5, '03:04:05')",
        ),
        ("SELECT 1 WHERE 'a' LIKE '%%'", (), "SELECT 1 WHERE 'a' LIKE '%%'"),
        (
            "DELETE FROM `t` WHERE `t`.`id` = %s",
            ("123456789012345678",),
            "DELETE FROM t WHERE id = '…45678'",
        ),
    ],
)
def test_statement_has_values_and_no_noise(
    sql: str, params: tuple[object, ...], words: str
) -> None:
    assert describe_statement(sql, params, many=False) == words


def test_many_statements_at_once_are_counted() -> None:
    assert describe_statement("DELETE FROM `t`", [(1,), (2,)], many=True) == "DELETE FROM t × 2"


def test_long_statement_is_cut() -> None:
    words = describe_statement("SELECT " + "x " * 200, (), many=False)

    assert (len(words), words[-1]) == (WIDEST, "…")


@pytest.mark.django_db
def test_described_rows_can_still_be_fetched() -> None:
    LabSale.objects.create(step="v1", offered=9, stock=3)
    with connection.cursor() as cursor:
        if connection.vendor != "mysql":
            pytest.fail("the driver of MariaDB is meant")
        cursor.execute("SELECT * FROM lab_labsale")
        assert describe_rows(cursor.cursor) == "stock 3"
        assert len(cursor.fetchall()) == 1
        cursor.execute("SELECT id FROM lab_labsale")
        assert describe_rows(cursor.cursor) == "1 row"
        cursor.execute("SELECT * FROM lab_labsale WHERE id < 0")
        assert describe_rows(cursor.cursor) == "no row"
        cursor.execute("UPDATE lab_labsale SET stock = 5")
        assert describe_rows(cursor.cursor) == "1 row"
        cursor.execute("SELECT COUNT(*) FROM lab_labsale")
        assert describe_rows(cursor.cursor) == "1"


@pytest.fixture
def script(tmp_path: Path) -> LuaScript:
    path = tmp_path / "decide.lua"
    path.write_text("return 1")
    return LuaScript(path)


def test_script_has_name_key_and_arguments(script: LuaScript) -> None:
    keys = ["lock:a:released:vm/1/2/3", "lock:a"]

    assert describe_calls(script, None, [(keys, ["vm/1/2/abcdef", 5, 6])]) == (
        "decide.lua lock:a …bcdef 5"
    )
    assert describe_calls(script, None, [(["k"], [1])]) == "decide.lua k 1"
    assert describe_calls(script, None, []) == "decide.lua"


def test_command_shows_the_end_of_random_values() -> None:
    assert describe_command(None, "SET", "lab:{7}:lock:1", "0123456789abcdef", "NX", "PX", 400) == (
        "SET lab:{7}:lock:1 …bcdef NX PX 400"
    )


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (None, "nil"),
        (True, "OK"),
        (False, "no"),
        (7, "7"),
        (b"OK", "OK"),
        ([], "empty"),
        ({}, "empty"),
        (["a", [1, None]], "a, 1, nil"),
        ({"user_id": "1"}, "user_id 1"),
    ],
)
def test_reply_is_described(reply: object, words: str) -> None:
    assert describe_reply(reply) == words


@pytest.mark.parametrize(
    ("what", "reads"),
    [
        ("SELECT stock FROM t", True),
        ("SELECT stock FROM t FOR UPDATE", False),
        ("UPDATE t SET x = 1", False),
        ("GET key", True),
        ("SET key 1", False),
        ("snapshot.lua key", True),
        ("reserve.lua key", False),
    ],
)
def test_reads_are_recognized(what: str, reads: bool) -> None:
    assert is_read(what) is reads
