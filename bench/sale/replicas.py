"""Row i: orders that wait for a replica of the ledger, against the same orders that do not.

Two web servers of one shop answer in turn; one has ``SECKILL_LEDGER_REPLICAS=1``. The replica
follows the ledger during both, so the difference is the wait alone. It shares the cores.

Then the replica is cut off: its process is stopped, so that its connection stays and nothing is
acknowledged. Orders are sent as fast as they are refused, and receipts are read meanwhile.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from urllib.parse import urlsplit

from redis import Redis as Client
from scratch import running
from servers import Redis

from bench.processes import stopped
from bench.sale.generator import Shot
from bench.sale.plan import DEPTH, SALE_CONNECTIONS
from bench.sale.report import Line, Target
from bench.sale.requests import queued, wins
from bench.sale.run import Run, Sample, Site, Web, expect_soon, expect_status, web
from seckill_site.redis.ledger_connection import ledger_connection

SITE_NUMBER = 9
WAIT = {"SECKILL_LEDGER_REPLICAS": "1", "SECKILL_LEDGER_REPLICAS_MS": "450"}
LOADED, ALONE = "under load", "one at a time"
LEAST = 0.33
LONGEST_REFUSAL_MS, MOST_TIMES = 1_500, 1.5
LONGEST_S = 60.0


def measure(run: Run) -> list[Line]:
    samples: defaultdict[tuple[str, bool], list[Sample]] = defaultdict(list)
    turns = [(turn, how) for turn in range(run.plan.repetitions) for how in (LOADED, ALONE)]
    site = Site(SITE_NUMBER, {**run.site.environ, **WAIT})
    with _replica(run.site) as replica, web(site) as waiting:
        for turn, how in run.steps(turns, what="i orders that wait for a replica"):
            for waits in (True, False)[:: -1 if turn % 2 else 1]:
                server = waiting if waits else run.web
                shot = _shot(run, port=server.port, how=how)
                samples[how, waits].append(run.sample_warm(shot, web=server, expect=202))
        of_cut_off = _measure_cut_off(run, waiting, replica)
    loaded, alone = ([samples[how, waits] for waits in (True, False)] for how in (LOADED, ALONE))
    return [
        _line(LOADED, "/s", lambda it: it.hits.rate, *loaded, target=Target(LEAST)),
        _line(ALONE, "µs", _latency_us, *alone),
        *of_cut_off,
    ]


def _line(
    how: str,
    unit: str,
    value: Callable[[Sample], float],
    ours: Sequence[Sample],
    theirs: Sequence[Sample],
    *,
    target: Target | None = None,
) -> Line:
    mine, others = [value(it) for it in ours], [value(it) for it in theirs]
    name = f"order request that wins and waits for a replica, {how}"
    against, note = "the same, without waiting", f"{_cost(ours)} (without: {_cost(theirs)})"
    return Line.ratio("i", name, against, target, unit, mine, others, note=note)


def _cost(samples: Sequence[Sample]) -> str:
    web_us, redis_us = (
        median(part) * 1e6
        for part in zip(*((it.web_cpu_s, it.redis_cpu_s) for it in samples), strict=True)
    )
    return f"web {web_us:.0f} µs, Redis {redis_us:.0f} µs"


@contextmanager
def _replica(site: Site) -> Iterator[Client]:
    """Run a replica of the ledger's Redis; it has all of the ledger when the block starts."""
    server, primary = Redis(site.scratch / "replica"), urlsplit(site.environ["REDIS_URL"])
    with running(site.scratch / "replicated", server) as wait, Client.from_url(server.url()) as it:
        wait()
        ledger_connection().config_set("repl-diskless-sync-delay", 0)
        it.config_set("masterauth", primary.password)
        it.replicaof(primary.hostname, primary.port)

        def is_in_step() -> bool:
            return bool(it.info("replication")["master_link_status"] == "up")

        expect_soon(is_in_step, "the replica did not get all of the ledger", within_s=LONGEST_S)
        yield it


def _shot(run: Run, *, port: int, how: str) -> Shot:
    requests = wins(run)
    if how == LOADED:
        return Shot(port, requests, run.plan.connections, DEPTH, run.plan.shot_s)
    return Shot(port, requests[: run.plan.warm_up + run.plan.single_requests], connections=1)


def _latency_us(sample: Sample) -> float:
    return median(answer.latency_s for answer in sample.hits.answers) * 1e6


# --- The replica is cut off -----------------------------------------------------------------------


def _measure_cut_off(run: Run, waiting: Web, replica: Client) -> list[Line]:
    plan, receipts = run.plan, queued(run)
    orders = Shot(waiting.port, wins(run), SALE_CONNECTIONS, seconds=plan.cut_off_s, again=True)
    reads = Shot(waiting.port, receipts, connections=1, seconds=plan.cut_off_s / 2, again=True)
    refusals: list[Sample] = []
    meanwhile: list[Sample] = []
    before: list[Sample] = []
    for _ in run.steps(range(plan.repetitions), what="i a replica that is cut off"):
        before.append(run.sample_warm(reads, web=waiting, expect=200))
        with stopped(int(replica.info("server")["process_id"])):
            refusals.append(run.sample(orders, web=waiting, expect=503))
            firing = run.start(orders)
            meanwhile.append(run.sample_warm(reads, web=waiting, expect=200))
            expect_status(firing.result(), 503)
    rates = [it.hits.rate for it in refusals]
    mine, others = ([_latency_us(it) for it in of] for of in (meanwhile, before))
    name, waited = "order request while the replica is cut off", WAIT["SECKILL_LEDGER_REPLICAS_MS"]
    longest = Target.most(LONGEST_REFUSAL_MS, "ms")
    slower, reading = Target.most(MOST_TIMES), "receipt of a queued order meanwhile, one at a time"
    waits_ms = [it.hits.latency_ms(100) for it in refusals]
    note = f"SECKILL_LEDGER_REPLICAS_MS={waited}, {SALE_CONNECTIONS} in flight"
    return [
        Line("i", f"{name}: the longest wait for its 503", "–", longest, waits_ms, note=note),
        Line("i", f"{name}: 503", "–", None, rates, "/s", note=_cost(refusals)),
        Line.ratio("i", reading, "the same before, without orders", slower, "µs", mine, others),
    ]
