"""Row m: orders while staff read the report on a large sale and export all orders.

One reader asks for the report and one for the export, again and again. nginx sends such requests
to web processes of their own (``deploy/nginx.conf``), which run at a lower priority. The row
compares that with sending them to the processes that answer the orders, and with no reader at all.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from statistics import median

from django.contrib.auth import get_user_model
from servers import BEHIND

from bench.sale.data import FIRST_ORDER_ID, insert_orders, open_sale, sign_in, users
from bench.sale.generator import Shot
from bench.sale.report import Line, Target
from bench.sale.requests import wins
from bench.sale.run import Run, Site, WrongAnswers, web
from vouchers.models import MAX_LIMIT

SITE_NUMBER = 8

APART, TOGETHER, ALONE = "in other processes", "in the same processes", "without"
TARGETS = {APART: Target.most(2), TOGETHER: None}
PART_BYTES = 1 << 16

Seconds = dict[str, list[float]]


def measure(run: Run) -> list[Line]:
    plan = run.plan
    staff = get_user_model().objects.create_superuser("reader")
    (cookie,) = sign_in(user_ids=[staff.pk])
    paths = {
        "report": f"/admin/vouchers/seckillvoucher/{_large_sale(plan.admin_orders)}/report/",
        "export": "/admin/orders/voucherorder/export/",
    }
    p99_ms: defaultdict[str, list[float]] = defaultdict(list)
    answered_s: defaultdict[str, Seconds] = defaultdict(lambda: defaultdict(list))
    with web(Site(SITE_NUMBER, run.site.environ), *BEHIND) as other:
        ports = {APART: other.port, TOGETHER: run.web.port, ALONE: 0}
        each = list(ports)
        turns = [how for turn in range(plan.repetitions) for how in each[:: -1 if turn % 2 else 1]]
        for how in run.steps(turns, what="m orders beside a report and an export"):
            asked = paths if ports[how] else {}
            shot = Shot(run.web.port, wins(run), plan.connections, seconds=plan.shot_s)
            with _readers(ports[how], asked, cookie, answered_s[how]):
                sample = run.sample_warm(shot, web=run.web, expect=202)
            p99_ms[how].append(sample.hits.latency_ms(99))
    return [_line(plan.admin_orders, how, p99_ms, answered_s[how]) for how in TARGETS]


def _line(orders: int, how: str, p99_ms: dict[str, list[float]], answered_s: Seconds) -> Line:
    waits = [f"{what} began after {median(it):.2f} s" for what, it in sorted(answered_s.items())]
    name = f"p99 of orders beside a report and an export of {orders:,} orders, {how}"
    target, mine, others = TARGETS[how], p99_ms[how], p99_ms[ALONE]
    note = ", ".join(waits)
    return Line.ratio("m", name, "the same without them", target, "ms", mine, others, note=note)


def _large_sale(count: int) -> int:
    """Return a sale with this many orders in the table."""
    sale = open_sale()
    units = range(1, MAX_LIMIT + 1)
    pairs = [(user, unit) for user in users(count=-(-count // MAX_LIMIT)) for unit in units]
    orders = [(FIRST_ORDER_ID + n, user, sale.pk, unit) for n, (user, unit) in enumerate(pairs)]
    insert_orders(orders[:count])
    return sale.pk


@contextmanager
def _readers(port: int, paths: dict[str, str], cookie: str, answered_s: Seconds) -> Iterator[None]:
    """Ask for each path again and again, until the block ends."""
    over = threading.Event()

    def read(what: str, path: str) -> None:
        while not over.is_set():
            with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
                began_at = time.monotonic()
                headers = {"Host": "localhost", "Accept": "text/html", "Cookie": cookie}
                connection.request("GET", path, headers=headers)
                answer = connection.getresponse()
                answered_s[what].append(time.monotonic() - began_at)
                if answer.status != 200:
                    raise WrongAnswers(f"status {answer.status} of {path}")
                while answer.read(PART_BYTES) and not over.is_set():
                    pass

    with ThreadPoolExecutor(max(1, len(paths))) as threads:
        reading = [threads.submit(read, *pair) for pair in paths.items()]
        try:
            yield
        finally:
            over.set()
        for it in reading:
            it.result()
