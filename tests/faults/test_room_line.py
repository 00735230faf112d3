"""R7: the line of a waiting room through the faults of the ledger's Redis.

Visitors join, and some of them while the fault may still forget them. After it they come back, with
their signed places and without, to a web server that knew the line and to one that did not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from backoffice.rehearsal.http_client import Address
from bench.sale.data import open_sale, sign_in
from orders.models import RoomVisit
from orders.placing.places import read_held_place
from seckill_site.redis.ledger_connection import ledger_connection
from tests.faults.conftest import PATIENT_MS, ClockedRedis, OwnRedis, Pair, Switch
from tests.faults.history import History, Report
from tests.faults.test_r_ledger import is_built_anew, went_back
from tests.support.crowd import NO_ANSWER, Answer, fire
from tests.support.orders import make_buyers
from tests.support.patience import wait_for
from tests.support.sales import redis_now_ms
from tests.support.stack import Stack, Web
from vouchers.catalogue.live_changes import change_room_rate, open_room
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.rebuild import rebuild_sale
from vouchers.inventory.sale_state import snapshot
from vouchers.inventory.waiting_room import RoomTerms

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

STORED, LATER, NEW = 24, 12, 6
"""The visitors whom Redis cannot forget, whom it may forget, and of each server after the fault."""

EVERYBODY = 5_000
"""A rate that lets everybody in at once."""


@dataclass
class Visitor:
    """A signed-in browser: it keeps its signed place; ``given`` is the number that it got first."""

    session: str
    place: str = ""
    given: int = 0
    is_in: bool = False
    has_expired: bool = False


class Line:
    """A sale with a waiting room that lets one in per second, its visitors, and their answers."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.sale = open_sale(stock=STORED + LATER + 2 * NEW, begins_in_s=-7200)
        open_room(sale_id=self.sale.pk, rate=1)
        self.sale.refresh_from_db()
        self.visitors: list[Visitor] = []

    @property
    def terms(self) -> RoomTerms:
        self.sale.refresh_from_db()
        terms = RoomTerms.from_sale(self.sale)
        assert terms is not None
        return terms

    def join(self, count: int, *, url: str) -> list[Visitor]:
        """Let new visitors come; they are behind all others, and each has a number of its own."""
        last = max((it.given for it in self.visitors), default=0)
        users = make_buyers(count)
        found = [Visitor(cookie) for cookie in sign_in(user_ids=[it.pk for it in users])]
        self.visitors += found
        self.come_back(found, url=url)
        numbers = [it.given for it in found]
        assert min(numbers) > last, "a newcomer came before somebody who waits"
        assert len(set(numbers)) == count, "a place was given twice"
        return found

    def come_back(self, visitors: Sequence[Visitor], *, url: str, query: str = "") -> None:
        """Let these ask for their place until they are told: it is still theirs."""
        for visitor, answer in self._tell(visitors, "/vouchers/{}/room/" + query, url=url):
            cookie = answer.headers.get("set-cookie", "")
            if cookie:
                visitor.place = cookie.partition(";")[0]
            number = self._number_in(visitor)
            visitor.given = visitor.given or number
            assert number == visitor.given, "the visitor has another place"
            visitor.has_expired = answer.body["turn"] == "expired"
            now_ms = answer.body["server_time_ms"]
            if answer.body["turn"] == "waiting":
                assert answer.body["position"] + self.terms.head(now_ms) == visitor.given
            elif answer.body["turn"] == "in" and not visitor.is_in:
                self._check_due(visitor, now_ms)

    def join_again(self, *, url: str) -> None:
        """Let those whose turn has passed join the end of the line."""
        last = max(it.given for it in self.visitors)
        expired = [it for it in self.visitors if it.has_expired]
        for visitor in expired:
            visitor.given = 0
        self.come_back(expired, url=url, query="?again=1")
        assert all(it.given > last and not it.has_expired for it in expired)

    def enter(self, *, url: str) -> list[str]:
        """Let all ask for tokens; whoever has had one has one or an order. Return the tokens."""
        tokens = []
        for visitor, answer in self._tell(self.visitors, "/me/?sale={}", url=url):
            token, holds = (answer.body["sale"][name] for name in ("token", "holds"))
            assert token or holds or not visitor.is_in, "a visitor who was let in is sent back"
            if token and not visitor.is_in:
                self._check_due(visitor, redis_now_ms())
            visitor.is_in = bool(token or holds)
            tokens += [token] if token else []
        return tokens

    def let_in_ms(self) -> dict[int, int]:
        """Return when Redis let each number in."""
        places = ledger_connection().hvals(LedgerKeys(self.sale.pk).room)
        found = [map(int, it.split(":")) for it in places if it.count(":") == 2]
        return {given: let_in_ms for given, _, let_in_ms in found if let_in_ms}

    def wait_for_rows(self) -> None:
        """Wait until all visits so far are rows."""
        visits = RoomVisit.objects.filter(seckill_voucher=self.sale)
        wait_for(lambda: visits.count() == len(self.visitors), what="rows of all visits")

    def _number_in(self, visitor: Visitor) -> int:
        held = read_held_place(visitor.place.partition("=")[2], sale_id=self.sale.pk)
        assert held
        return held.place.given

    def _check_due(self, visitor: Visitor, now_ms: int) -> None:
        is_due = visitor.given <= self.terms.head(now_ms) or visitor.given in self.let_in_ms()
        assert is_due, "let in before the turn had come"

    def _tell(
        self, visitors: Sequence[Visitor], path: str, *, url: str
    ) -> Iterator[tuple[Visitor, Answer]]:
        """Ask until each has an answer that says something; every answer is on record."""
        todo = list(visitors)

        def all_told() -> bool:
            answers = fire([self._request(it, path, url) for it in todo], url=url, connections=8)
            for visitor, answer in zip(list(todo), answers, strict=True):
                self.history.note(answer)
                if answer.status not in (503, NO_ANSWER):
                    assert answer.status == 200, answer
                    told.append((visitor, answer))
                    todo.remove(visitor)
            return not todo

        told: list[tuple[Visitor, Answer]] = []
        wait_for(all_told, what="an answer for everybody")
        yield from told

    def _request(self, visitor: Visitor, path: str, url: str) -> bytes:
        cookie = "; ".join(filter(None, (visitor.session, visitor.place)))
        headers = {"Cookie": cookie}
        return Address.of(url).request("GET", path.format(self.sale.pk), headers=headers)


# --- The faults -----------------------------------------------------------------------------------


Fault = Callable[[Any, Line, str, Path], AbstractContextManager[None]]
"""A fault of a server: Redis may forget who joins in its block, and at its end it happens."""


@contextmanager
def restarted(redis: OwnRedis, line: Line, url: str, directory: Path) -> Iterator[None]:
    yield
    redis.kill()
    redis.start()


@contextmanager
def file_lost(redis: OwnRedis, line: Line, url: str, directory: Path) -> Iterator[None]:
    yield
    redis.kill()
    redis.forget_all()
    redis.start()


@contextmanager
def file_torn(redis: OwnRedis, line: Line, url: str, directory: Path) -> Iterator[None]:
    """The append-only file ends in the middle of a command."""
    (file,) = redis.directory.glob("appendonlydir/*.incr.aof")
    bytes_before = file.stat().st_size
    yield
    redis.kill()
    os.truncate(file, bytes_before + 7)
    redis.start()


@contextmanager
def older_copy(redis: OwnRedis, line: Line, url: str, directory: Path) -> Iterator[None]:
    with went_back(redis, directory / "older"):
        yield


@contextmanager
def damaged(redis: OwnRedis, line: Line, url: str, directory: Path) -> Iterator[None]:
    """One key after the other is lost or of a wrong type, and the ledger is built anew."""
    yield
    keys = LedgerKeys(line.sale.pk)
    with redis.client() as client:
        for key in (keys.buyers, keys.room, keys.visits):
            client.delete(key)
            rebuild_sale(sale_id=line.sale.pk)
            line.come_back(line.visitors, url=url)
            client.delete(key)
            client.set(key, "a mistyped command")
            rebuild_sale(sale_id=line.sale.pk)
            line.come_back(line.visitors, url=url)


@contextmanager
def switched_over(switch: Switch, line: Line, url: str, directory: Path) -> Iterator[None]:
    yield
    switch.swap_roles()
    switch.move_address()


@contextmanager
def failed_over(pair: Pair, line: Line, url: str, directory: Path) -> Iterator[None]:
    pair.line.stall()
    yield
    pair.fail_over()


@contextmanager
def replica_away(pair: Pair, line: Line, url: str, directory: Path) -> Iterator[None]:
    """No order is accepted meanwhile, and the line goes on."""
    pair.line.stall()
    yield
    tokens = line.enter(url=url)
    refused = line.history.fire(line.sale, tokens, url=url)
    assert {(it.status, it.headers["retry-after"]) for it in refused} == {(503, "1")}
    pair.line.heal()


def clock_jumps(*shifts_s: float) -> Fault:
    """Return a fault in which the clock of Redis jumps, from one shift to the next."""

    @contextmanager
    def jumped(redis: ClockedRedis, line: Line, url: str, directory: Path) -> Iterator[None]:
        yield
        for shift_s in shifts_s:
            redis.shift_clock(shift_s)
            line.come_back(line.visitors, url=url)
            line.enter(url=url)

    return jumped


class Case(NamedTuple):
    """A fault, the fixture with its servers, and whether the ledger is built anew after it."""

    what: str
    fault: Fault
    servers: str = "own_ledger"
    builds: bool = True
    replicas: int = 0


SAMPLE = Case("append-only file lost", file_lost)
CASES = [
    Case("Redis killed and restarted", restarted),
    Case("append-only file torn", file_torn),
    Case("older copy of the data", older_copy),
    Case("keys lost or of a wrong type", damaged),
    Case("switchover", switched_over, "switch"),
    Case("failover to a replica behind", failed_over, "pair"),
    Case("replica cut off, 1 waited for", replica_away, "pair", builds=False, replicas=1),
    Case("clock of Redis +60 s", clock_jumps(60), "clocked_ledger", builds=False),
    Case("clock of Redis -60 s", clock_jumps(-60), "clocked_ledger", builds=False),
    Case("clock of Redis +60 s and back", clock_jumps(60, 0), "clocked_ledger", builds=False),
    Case("clock of Redis +3600 s", clock_jumps(3600), "clocked_ledger", builds=False),
]


def url_of(servers: Any) -> str:
    """Return the address of the ledger's Redis."""
    if isinstance(servers, Pair):
        return servers.primary.url()
    return servers.address.url() if isinstance(servers, Switch) else str(servers.url())


@pytest.mark.parametrize(
    "case",
    [SAMPLE, *(pytest.param(it, marks=pytest.mark.faults) for it in CASES)],
    ids=lambda case: case.what.replace(" ", "-"),
)
def test_r7_places_stay_in_order(
    case: Case, request: pytest.FixtureRequest, stack: Stack, tmp_path: Path, report: Report
) -> None:
    servers = request.getfixturevalue(case.servers)
    environ: dict[str, Any] = {
        "REDIS_URL": url_of(servers),
        "SECKILL_LEDGER_REPLICAS": str(case.replicas),
        "SECKILL_LEDGER_REPLICAS_MS": str(PATIENT_MS),
    }
    with stack.together():
        web = stack.web(**environ)
        stack.worker("--beat", concurrency=1, **environ)
    line = Line(History("R7", f"line of a waiting room: {case.what}"))
    stored = line.join(STORED, url=web.url)
    line.enter(url=web.url)
    line.wait_for_rows()
    epoch = snapshot(sale_id=line.sale.pk).epoch

    with line.history.fault(), case.fault(servers, line, web.url, tmp_path):
        later = line.join(LATER, url=web.url)

    def is_whole() -> bool:  # pages ask on: the first request that finds no ledger has it built
        line.come_back(later, url=web.url)
        return not case.builds or is_built_anew(line.sale, since=epoch)

    wait_for(is_whole, what="a ledger of this run")
    line.come_back([*later, *stored], url=web.url)
    line.history.recovered()
    new_web = stack.web(**environ)
    come_without_place(line, stored, new_web)
    for server in (web, new_web):
        line.join(NEW, url=server.url)
    check_let_in(line)
    everybody_buys(line, new_web)
    outcome = line.history.check(line.sale)
    assert outcome.orders == len(line.visitors)
    report(outcome)


def come_without_place(line: Line, stored: list[Visitor], web: Web) -> None:
    """Let everybody come to a new server, some without the signed place."""
    for visitor in stored[::3]:
        visitor.place = ""
    line.come_back(line.visitors, url=web.url)
    line.enter(url=web.url)


def check_let_in(line: Line) -> None:
    """Nobody was let in before the turn had come, by the clock of Redis."""
    terms, let_in_ms = line.terms, line.let_in_ms()
    assert all(number <= terms.head(at_ms) for number, at_ms in let_in_ms.items())
    assert {it.given for it in line.visitors if it.is_in} <= set(let_in_ms)


def everybody_buys(line: Line, web: Web) -> None:
    """Let all in, and let all order."""
    line.join_again(url=web.url)
    change_room_rate(sale_id=line.sale.pk, rate=EVERYBODY, seen=1)
    line.history.fault_is_over()
    tokens: list[str] = []

    def all_are_in() -> bool:
        tokens[:] = line.enter(url=web.url)
        return all(it.is_in for it in line.visitors)

    wait_for(all_are_in, what="everybody let in")  # after a failure reconcile copies the rate
    line.history.fire(line.sale, tokens, url=web.url)
    line.history.ask_again(line.sale, url=web.url)
    line.history.settle(line.sale)
