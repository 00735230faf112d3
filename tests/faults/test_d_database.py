"""D1: the database loses connections, refuses, deadlocks, is killed; each buyer has one order.

What changes global variables, or kills the server, happens to a MariaDB of the module's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import MySQLdb
import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.urls import reverse

from backoffice.rehearsal.http_client import Address
from orders.models import VoucherOrder
from orders.placing.tokens import read_token
from tests.concurrency.sales import crowd_of, make_sale, sale_and_crowd
from tests.faults.history import History, Report, get_receipt
from tests.faults.private import OwnMariaDB, database_at, make_tables
from tests.fixtures.processes import on_both_ways
from tests.support.browsers import session_cookie
from tests.support.crowd import fire
from tests.support.orders import another_session, hold_row
from tests.support.patience import GENEROUS_S, Stalls, wait_for
from tests.support.proxy import FaultProxy
from tests.support.stack import Stack
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

COMMIT = b"\x07\x00\x00\x00\x03COMMIT"
"""What a client of MariaDB sends to commit: length, number, query. SET AUTOCOMMIT is another."""


# --- What the tests look at and do ----------------------------------------------------------------


def sessions_of_others(*, doing: str = "") -> list[int]:
    """Return the connections to this database that are not ours, which do such a statement."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM information_schema.processlist WHERE db = DATABASE() "
            "AND id != CONNECTION_ID() AND IFNULL(info, '') LIKE %s",
            [f"{doing}%"],
        )
        return [row[0] for row in cursor.fetchall()]


def kill_sessions(ids: list[int]) -> None:
    with connection.cursor() as cursor:
        for number in ids:
            with suppress(OperationalError):  # gone by itself
                cursor.execute(f"KILL {number}")


@contextmanager
def held_buyers(tokens: list[str], sale: SeckillVoucher) -> Iterator[Any]:
    """Hold the rows of these buyers: an order of theirs waits in the middle of its INSERT."""
    ids = [read_token(text, sale_id=sale.pk, now_ms=0).user_id for text in tokens]
    with another_session() as session, session.cursor() as cursor:
        cursor.execute("SELECT id FROM auth_user WHERE id IN %s FOR UPDATE", [ids])
        yield cursor


def inserting(*, besides: list[int] | None = None) -> list[int]:
    """Wait until others insert orders, and return their connections."""
    inserters: list[int] = []

    def look() -> bool:
        inserters[:] = set(sessions_of_others(doing="INSERT INTO `orders_")) - set(besides or [])
        return bool(inserters)

    wait_for(look, what="an INSERT that waits")
    return inserters


def finish(history: History, sale: SeckillVoucher, *, ordered: int, report: Report) -> None:
    history.settle(sale)
    outcome = history.check(sale)
    assert outcome.orders == ordered
    report(outcome)


# --- Connections, locks ---------------------------------------------------------------------------


@on_both_ways
def test_d1_connection_killed_at_commit_is_reopened(
    stack: Stack, server: str, report: Report
) -> None:
    history = History("D1", "connection killed at COMMIT")
    with stack.together():
        web = stack.web(server=server)
        worker = stack.worker(concurrency=1, FAILPOINT="batch.before_commit=stop")
    sale = make_sale(stock=10)
    history.fire(sale, crowd_of(sale, count=5), url=web.url)
    worker.wait_for_stopped_child()
    with history.fault():
        kill_sessions(sessions_of_others())
        worker.resume()
    finish(history, sale, ordered=5, report=report)


@pytest.mark.faults
def test_d1_connection_killed_during_insert_is_reopened(stack: Stack, report: Report) -> None:
    history = History("D1", "connection killed during INSERT")
    web, _ = stack.web(), stack.worker(concurrency=1)
    sale, tokens = sale_and_crowd(stock=10, count=5)
    with held_buyers(tokens[-1:], sale):
        history.fire(sale, tokens, url=web.url)
        with history.fault():
            kill_sessions(inserting())
    finish(history, sale, ordered=5, report=report)


@pytest.mark.faults
def test_d1_lock_wait_timeout_is_retried(stack: Stack, report: Report) -> None:
    """Error 1205, after 3 s: the statement is over, and the transaction begins anew."""
    history = History("D1", "1205: row held for too long")
    web, _ = stack.web(), stack.worker(concurrency=1)
    sale, tokens = sale_and_crowd(stock=10, count=5)
    with held_buyers(tokens[-1:], sale), history.fault():
        history.fire(sale, tokens, url=web.url)
        inserting(besides=inserting())
    finish(history, sale, ordered=5, report=report)


def test_d1_deadlock_victim_retries_its_batch(stack: Stack, report: Report) -> None:
    """Error 1213: the other holds a buyer and wants the sale, the worker the other way round."""
    history = History("D1", "1213: deadlock")
    web, _ = stack.web(), stack.worker(concurrency=1)
    sale = make_sale(stock=10)
    heavy = crowd_of(sale, count=400)  # the lighter one is given up
    tokens = heavy[:5]
    with held_buyers(heavy, sale) as other:
        other.execute("UPDATE auth_user SET last_name = 'held'")
        history.fire(sale, tokens, url=web.url)
        with history.fault():
            inserting()
            hold_row(other.db, sale)  # no error: it was not the victim
    finish(history, sale, ordered=5, report=report)


def test_d1_commit_with_lost_reply_is_found_done(stack: Stack, report: Report) -> None:
    history = History("D1", "reply of COMMIT dropped")
    web = stack.web()
    with database_proxy() as (proxy, url):
        stack.worker(concurrency=1, DATABASE_URL=url)
        sale, tokens = sale_and_crowd(stock=10, count=5)
        proxy.drop_replies(matching=COMMIT)
        history.fire(sale, tokens, url=web.url)
        proxy.wait_for_fault(GENEROUS_S)
        history.fault_is_over()
        # Committed, and nobody but the database knows.
        assert VoucherOrder.objects.filter(seckill_voucher=sale).exists()
        finish(history, sale, ordered=5, report=report)


@contextmanager
def database_proxy() -> Iterator[tuple[FaultProxy, str]]:
    """Put a proxy before the test's database; yields it and the URL through it."""
    to = connection.settings_dict
    upstream = to["OPTIONS"].get("unix_socket") or (to["HOST"], int(to["PORT"] or 3306))
    with FaultProxy(upstream, remember=False) as proxy:
        account = f"{quote(to['USER'])}:{quote(to['PASSWORD'])}"
        yield proxy, f"mysql://{account}@127.0.0.1:{proxy.port}/{to['NAME']}"


# --- A server of the module's own -----------------------------------------------------------------


@pytest.fixture(scope="module")
def mariadb(
    tmp_path_factory: pytest.TempPathFactory,
    django_db_setup: None,
    django_db_blocker: pytest.FixtureRequest,
) -> Iterator[OwnMariaDB]:
    server = OwnMariaDB(tmp_path_factory.mktemp("mariadb"))
    try:
        server.start()
        with django_db_blocker.unblock():  # type: ignore[attr-defined]
            make_tables(server.url)
        yield server
    finally:
        server.kill()


@pytest.fixture
def own_stack(mariadb: OwnMariaDB, transactional_db: None, tmp_path: Path) -> Iterator[Stack]:
    """Real processes on that server."""
    with database_at(mariadb.url), Stack(tmp_path, database="seckill") as stack:
        yield stack


@pytest.mark.faults
@pytest.mark.parametrize(
    ("fault", "variable", "value", "error"),
    [
        ("read-only", "read_only", 1, "1290"),
        ("too many connections", "max_connections", 10, "1040"),
    ],
)
def test_d1_orders_wait_while_database_refuses(
    own_stack: Stack, mariadb: OwnMariaDB, report: Report,
    fault: str, variable: str, value: int, error: str,
) -> None:  # fmt: skip
    history = History("D1", fault)
    with own_stack.together():
        web, worker = own_stack.web(), own_stack.worker("--beat", concurrency=1)
    sale, tokens = sale_and_crowd(stock=10, count=5)
    crowded = full_house() if variable == "max_connections" else nullcontext()
    with mariadb.with_global(variable, value), crowded:
        history.fire(sale, tokens, url=web.url)
        worker.wait_for_log(error)  # after its own tries it leaves the rest to the sweep
    history.fault_is_over()
    finish(history, sale, ordered=5, report=report)


@contextmanager
def full_house() -> Iterator[None]:
    """Take every connection that a client may have, those of the shop's processes too."""
    with ExitStack() as taken:
        guests: set[int] = set()

        def are_alone() -> bool:
            while guest := connected():
                taken.callback(guest.close)
                guests.add(guest.thread_id())
            strangers = clients() - guests
            kill_sessions(list(strangers))
            return not strangers

        # Again and again: whoever left between two looks has left a free place.
        wait_for(
            lambda: all(are_alone() for _ in range(5)), what="a server without a free connection"
        )
        yield


def clients() -> set[int]:
    """Return every other connection, also those that are still signing in and name no database."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM information_schema.processlist "
            "WHERE id != CONNECTION_ID() AND user NOT IN ('system user', 'event_scheduler')"
        )
        return {row[0] for row in cursor.fetchall()}


def connected() -> MySQLdb.connections.Connection | None:
    """Return a new connection of the shop's account, or None where there are too many."""
    to = connection.settings_dict
    socket = to["OPTIONS"]["unix_socket"]
    with suppress(MySQLdb.OperationalError):
        return MySQLdb.connect(
            user=to["USER"], password=to["PASSWORD"], database=to["NAME"], unix_socket=socket
        )
    return None


@pytest.mark.faults
def test_d1_connections_closed_while_idle_are_reopened(
    own_stack: Stack, mariadb: OwnMariaDB, report: Report
) -> None:
    """By ``wait_timeout``: neither the worker nor the receipt's web server minds."""
    history = History("D1", "idle connections closed")
    with mariadb.with_global("wait_timeout", 1):
        web, _ = own_stack.web(), own_stack.worker(concurrency=1)
        sale = make_sale(stock=10)
        for tokens in (crowd_of(sale, count=2), crowd_of(sale, count=3)):
            connection.close()  # ours, too, was opened under the old rule or has been closed
            history.fire(sale, tokens, url=web.url)
            for token in tokens:
                history.note(get_receipt(sale, token, url=web.url))
            history.settle(sale)
            wait_for(lambda: not sessions_of_others(), what="the end of idle connections")
    history.fault_is_over()
    assert all(answer.status == 200 for answer in history.others)
    finish(history, sale, ordered=5, report=report)


@pytest.mark.faults
def test_d1_database_restarted_under_load_loses_no_order(
    own_stack: Stack, mariadb: OwnMariaDB, report: Report
) -> None:
    history = History("D1", "MariaDB killed and restarted")
    with own_stack.together():
        web, _ = own_stack.web(workers=2), own_stack.worker("--beat", SECKILL_BATCH_UNITS="20")
    sale, tokens = sale_and_crowd(stock=1_000, count=1_000)
    history.fire(sale, tokens[:500], url=web.url)
    wait_for(VoucherOrder.objects.exists, what="a first order")
    connection.close()
    with history.fault():
        mariadb.kill()
        history.fire(sale, tokens[500:], url=web.url)  # no SQL is needed to accept
        history.note(get_receipt(sale, tokens[-1], url=web.url))
        mariadb.start()
    waiting = history.others[0]  # nor to say that an order waits
    assert (waiting.status, waiting.body["status"]) == (200, "queued")
    history.settle(sale)
    history.ask_again(sale, url=web.url)
    finish(history, sale, ordered=1_000, report=report)


# --- Web processes --------------------------------------------------------------------------------

CONNECT_S = 1.0
"""The longest that a web process waits for a connection."""


@pytest.mark.parametrize("how", ["refuses", "swallows"])
def test_d1_pages_are_refused_quickly_without_database(stack: Stack, how: str) -> None:
    """The first request may wait for a timeout, later ones do not; a stored page is still shown."""
    warm, cold = (a_get(f"/vouchers/{make_sale(stock=10).pk}/") for _ in range(2))
    owner = User.objects.create(username="shop", is_staff=True, is_superuser=True)
    admin = a_get(reverse("admin:index"), Cookie=session_cookie(owner))
    with database_proxy() as (proxy, url):
        web = stack.web(DATABASE_URL=url)
        answers = fire([warm, *[admin] * 8], url=web.url, connections=8)
        assert {answer.status for answer in answers} == {200}
        if how == "refuses":
            proxy.refuse()
        else:
            proxy.stall()
        proxy.cut()

        stalls = Stalls()
        (kept,) = fire([warm], url=web.url)
        refused = fire([cold, *[admin] * 80], url=web.url, connections=8)
        (kept_for_longer,) = fire([warm], url=web.url)
        assert (kept.status, kept.body) == (200, answers[0].body)
        assert kept_for_longer.body == kept.body
        assert {(it.status, it.headers.get("retry-after")) for it in refused} == {(503, "1")}
        seconds, stalled_s = sorted(it.seconds for it in refused), stalls.seconds()
        # For a thread, and for its attempt, when busy.
        assert seconds[-1] < 2 * CONNECT_S + 1.5 + stalled_s
        assert seconds[len(seconds) // 2] < CONNECT_S / 2 + stalled_s

        proxy.heal()
        wait_for(lambda: fire([cold], url=web.url)[0].status == 200, what="a page")
        wait_for(lambda: fire([admin], url=web.url)[0].status == 200, what="a page of the admin")


def a_get(path: str, **headers: str) -> bytes:
    headers = {"Accept": "text/html", **headers}
    return Address.of("http://localhost").request("GET", path, headers=headers)
