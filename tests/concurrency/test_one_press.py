"""What Redis, MariaDB and Celery see of one press is what ``the-asked-for-design.md`` shows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import MySQLdb
import pytest
from django.db import connection
from redis import Redis

from locks.lua_script import LuaScript
from orders.placing.tokens import read_token
from tests.concurrency.sales import order_requests, sale_and_crowd
from tests.fixtures.processes import on_both_ways
from tests.support.crowd import fire
from tests.support.patience import wait_for
from tests.support.stack import ROOT, Process, Stack

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

DOCUMENT = ROOT / "docs" / "the-asked-for-design.md"
FIRST_IDS = {
    "vouchers_seckillvoucher": 7_000_000,
    "vouchers_voucher": 8_000_000,
    "auth_user": 9_000_000,
}
"""Ids that are nothing else."""

APPS = ("locks", "vouchers", "seckill_site")
SCRIPTS = {LuaScript(it).sha: it.name for app in APPS for it in ROOT.glob(f"{app}/**/lua/*.lua")}
BY_THE_CLOCK = {"add_counts.lua", "renew.lua"}
"""What a process sends when it is time, whoever presses."""

READS = re.compile(
    r"(TYPE|TIME|EXISTS|PTTL|LPOS|ZMSCORE|H?M?GET|HGETALL|HLEN|[HZ]\w*(CARD|COUNT|RANGE\w*|FIELD)"
    r"|PEXPIREAT)\b"
)
"""What a script asks, and the life of a hash of copies, which only the first of many sets."""

PLACEHOLDERS = (
    (r'\[?\{"body.*"orders\.tasks\.fulfill_sale".*', '{… "task": "orders.tasks.fulfill_sale" …}'),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "ID"),
    (r"\b[0-9a-f]{64}\b", "HEAD"),
    (r"[\w.-]+/\d+/\d+/\w+", "OWNER"),
    (r"[\w.-]+/\d+/[0-9a-f]{8}\b", "PROCESS"),
    (r"\b1[0-9]{9}\.[0-9]+|\b1[0-9]{12}\b", "MS"),
    (r"\b[0-9]{17,19}\b", "IDENTITY"),
    (r"(:pace MS |copies:)\d", r"\1N"),
    (r"'?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+([+-]\d{4})?'?", "TIME"),
    (r"[\d.e-]+s: None", "SECONDS: None"),
    (r"test_\w+ using", "DATABASE using"),
    (r", EXISTS\(SELECT .*?LIMIT 1\) AS `\w+`", ""),
    (r"(?<=SELECT )`.{60,}?(?= FROM)|(?<=\()`[^)]{60,}(?=\))", "…"),
)


@contextmanager
def general_log() -> Iterator[Any]:
    """Let MariaDB keep its statements in a table meanwhile; yields a cursor to read it."""
    url = urlsplit(os.environ["SECKILL_TEST_ADMIN_DATABASE_URL"])
    (path,) = parse_qs(url.query)["unix_socket"]
    admin = MySQLdb.connect(unix_socket=path, user=url.username, autocommit=True)
    cursor = admin.cursor()
    cursor.execute("TRUNCATE mysql.general_log")
    cursor.execute("SET GLOBAL log_output = 'TABLE', GLOBAL general_log = 1")
    try:
        yield cursor
    finally:
        cursor.execute("SET GLOBAL general_log = 0, GLOBAL log_output = 'FILE'")
        admin.close()


def ports_of(process: Process) -> set[str]:
    """Return the local ports of a process and its children."""
    pids = [process.pid, *process.children()]
    held: set[str] = set()
    for pid in pids:
        with suppress(OSError):  # it has ended since it was listed
            for fd in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(FileNotFoundError):  # closed since it was listed
                    held.add(os.readlink(fd))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {str(int(row[1][-4:], 16)) for row in rows if f"socket:[{row[9]}]" in held}


def of_redis(seen: list[dict[str, Any]], senders: dict[str, str]) -> Iterator[str]:
    """Yield the commands, with the names of scripts; of most scripts only what they write."""
    script = ""
    for it in seen:
        words = it["command"].split(" ")
        if it["client_type"] == "lua":
            sender, is_shown = "lua", script == "reserve.lua" or not READS.match(words[0])
        else:
            sender, is_shown = senders.get(it["client_port"], "?"), True
            if script := SCRIPTS.get("".join(words[1:2]), ""):
                first = 3 + int(words[2])  # argument, after the keys
                more = ["…"] if first > 4 else []
                words = [words[0], script, *words[2:4], *more, *words[first:]]
        shown = " ".join(word or '""' for word in words)
        if is_shown and script not in BY_THE_CLOCK:
            yield f"[{it['db']} {sender}] {shown}"


def shape(lines: Iterator[str] | list[str], about: str, names: dict[str, str]) -> str:
    """Return the lines that match, with placeholders for what differs from press to press."""
    found = []
    for line in lines:
        for pattern, name in (*((rf"\b{it}\b", names[it]) for it in names), *PLACEHOLDERS):
            line = re.sub(pattern, name, line)
        if re.search(about, line):
            found.append(line)
    return "\n".join(found)


@on_both_ways
def test_one_press_is_seen_as_documented(
    stack: Stack, server: str, redis_databases: list[Redis]
) -> None:
    with connection.cursor() as cursor:
        for table, number in FIRST_IDS.items():
            cursor.execute(f"ALTER TABLE {table} AUTO_INCREMENT = {number}")
    with stack.together():
        web = stack.web(server=server)
        worker = stack.worker(concurrency=1, DJANGO_SETTINGS_MODULE="tests.support.loud_celery")

    redis, _, broker = redis_databases

    def wait_until_written(orders: int) -> None:
        tasks = re.compile(r"fulfill_sale\[\S+\] succeeded")
        worker.wait_until(lambda: len(tasks.findall(worker.text())) == orders, what="order")
        wait_for(lambda: not broker.hlen("unacked"), what="acknowledged message")

    sale, texts = sale_and_crowd(stock=10, count=2)
    first, press = order_requests(sale, texts)
    fire([first], url=web.url)  # the scripts are loaded, and the connections are open
    wait_until_written(1)
    begin = len(worker.text())

    with general_log() as log, redis.monitor() as monitor:
        fire([press], url=web.url)
        wait_until_written(2)
        redis.echo("the end")
        seen = list(takewhile(lambda it: it["command"] != "ECHO the end", monitor.listen()))
        log.execute("SELECT command_type, argument FROM mysql.general_log")
        statements = [f"{kind} {text}" for kind, text in log.fetchall()]

    token = read_token(texts[1], sale_id=sale.pk, now_ms=0)
    ids = {"ORDER": token.order_id, "USER": token.user_id, "SALE": sale.pk}
    ids["VOUCHER"] = sale.voucher_id
    names = {str(number): name for name, number in ids.items()}
    senders = dict.fromkeys(ports_of(worker), "worker") | dict.fromkeys(ports_of(web), "web")
    shown = {
        "redis": shape(of_redis(seen, senders), r"\{SALE\}|fulfill_sale|unacked.* ID", names),
        "mariadb": shape(statements, r"^(?!Quit|.*general_log)", names),
        "celery": shape(worker.text()[begin:].splitlines(), "INFO", names),
    }
    text = DOCUMENT.read_text(encoding="utf-8")
    assert shown == dict(re.findall(r"```text (\w+)\n(.+?)\n```", text, re.DOTALL))
