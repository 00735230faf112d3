"""The benchmark ``shop``; ``script/bench`` starts it beside the servers of a shop that is kept."""

import argparse
import datetime as dt
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import django
from django.conf import settings
from django.utils import translation

from bench.processes import spawned
from bench.shop.jobs import export_all, reconcile_all
from bench.shop.memory import measure_memory
from bench.tables import Report, shown

MB = 1 << 20
EXPORT_S, RECONCILE_S, RECONCILE_MB = 5.0, 30.0, 1_000
REPEATED, PATIENCE_S, GIVE_UP_S = 5, 5.0, 10
"""A page is asked for so often, or until it has taken so long; a statement ends after the last."""

LEDGER_DAYS = 7
HEADINGS = ("page", "at most", "statements", "rows read", "median", "worst", "before", "verdict")


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="script/bench shop")
    parser.add_argument("--orders", type=int, default=5_000_000, help="of the shop")
    parser.add_argument("--only", default="", help="pages whose names contain this")
    parser.add_argument("--before", type=Path, help="the values of a run before")
    parser.add_argument("--json", type=Path, help="write all values to this file")
    parser.add_argument("--markdown", type=Path, help="write the table into a document")
    return parser


def main() -> None:
    chosen = options().parse_args()
    settings.LOGGING = {}
    django.setup()
    translation.activate("en")
    filled_s = prepare(chosen.orders)
    before = json.loads(chosen.before.read_text()) if chosen.before else {}
    results = {**measure_pages(chosen.only), **measure_jobs(chosen.only)}
    results |= measure_memory(chosen.only)
    rows = [row(name, it, before.get(name)) for name, it in results.items()]
    missed = sum(it[-1] == "MISS" for it in rows)
    text = f"{chosen.orders:,} orders. {len(rows)} lines, {missed} beyond their limit."
    if filled_s:
        text += f" Filling took {filled_s:.0f} s."
    Report("shop", HEADINGS, rows, text, results).publish(chosen)


def prepare(orders: int) -> float:
    """Migrate, and fill the shop if it is empty; return how long filling took."""
    from django.core.management import call_command
    from django.db import connection

    from bench.shop.filling import Size, fill
    from orders.models import VoucherOrder

    connection.settings_dict["OPTIONS"]["read_timeout"] = 3600  # an index of millions takes minutes
    call_command("migrate", verbosity=0)
    filled = Path(os.environ["SECKILL_SCRATCH"]) / "filled"
    started, filled_s = time.monotonic(), 0.0
    if not filled.exists():
        if VoucherOrder.objects.exists():
            raise SystemExit(f"{filled.parent} was not filled to its end: remove it")
        scale = min(1.0, orders / 5_000_000)
        sales, buyers = max(20, round(1_000 * scale)), max(300, round(100_100 * scale))
        fill(Size(orders=orders, sales=sales, buyers=buyers, big=max(1, sales // 100)))
        filled_s = time.monotonic() - started
        filled.write_text(f"{filled_s:.0f} s\n")
    load_ledgers()
    add_up()
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION max_statement_time = {GIVE_UP_S}")
    sys.stderr.write(f"filled and loaded after {time.monotonic() - started:.0f} s\n")
    return filled_s


def add_up() -> None:
    """Sum up what has changed, as beat does."""
    from django.utils import timezone

    from backoffice.report.day_sums import sum_days

    while sum_days(now=timezone.now()):
        pass


def load_ledgers() -> None:
    """Load the sales of the last days, as their evenings did."""
    from django.utils import timezone

    from vouchers.inventory.rebuild import load_sale
    from vouchers.models import SeckillVoucher

    since = timezone.now() - dt.timedelta(days=LEDGER_DAYS)
    for sale_id in SeckillVoucher.objects.filter(ends_at__gt=since).values_list("pk", flat=True):
        load_sale(sale_id=sale_id)


# --- Measurements ---------------------------------------------------------------------------------


def measure_pages(only: str) -> dict[str, dict[str, Any]]:
    from django.contrib.auth.models import User
    from django.test import Client

    from bench.shop.pages import MOST_STATEMENTS, find_subjects, measure, pages

    owner, _ = User.objects.get_or_create(username="owner", is_staff=True, is_superuser=True)
    subjects = find_subjects()
    clients = {it: Client(raise_request_exception=False, SERVER_NAME="localhost") for it in (0, 1)}
    for client, user in zip(clients.values(), (owner, subjects.buyer), strict=True):
        client.force_login(user, backend=settings.AUTHENTICATION_BACKENDS[-1])
    results = {}
    for page in list(pages(subjects)):  # named in English before a request asks for Chinese
        if only not in page.name:
            continue
        samples = [measure(clients[page.of_buyer], page)]
        while len(samples) < REPEATED and sum(it.seconds for it in samples) < PATIENCE_S:
            samples.append(measure(clients[page.of_buyer], page))
        times = [it.seconds for it in samples]
        last = samples[-1]
        results[page.name] = {
            "most_s": page.most_s,
            "status": last.status,
            "statements": last.statements,
            "rows": last.rows,
            "median_s": median(times),
            "worst_s": max(times),
            "fits": last.status < 400 and max(times) <= page.most_s
            and last.statements <= MOST_STATEMENTS,
        }  # fmt: skip
        sys.stderr.write(f"{page.name}: {last.statements}, {median(times):.3f} s\n")
    return results


def measure_jobs(only: str) -> dict[str, dict[str, Any]]:
    from vouchers.models import SeckillVoucher

    by_size = SeckillVoucher.objects.order_by("-sold").values_list("pk", "sold")
    small = list(by_size.filter(sold__gt=0).order_by("sold").values_list("pk", flat=True)[:2])
    jobs: dict[str, tuple[float, Callable[[], tuple[float, int]]]] = {
        "export of 10,000 orders": (EXPORT_S, partial(export_all, small)),
        "export of 100,000 orders": (EXPORT_S, partial(export_all, [by_size[0][0]])),
        "manage.py reconcile": (RECONCILE_S, reconcile_all),
    }
    results = {}
    for name, (most_s, job) in jobs.items():
        if only not in name:
            continue
        with spawned(1) as pool:
            seconds, most_bytes = pool.submit(job).result()
        results[name] = {
            "most_s": most_s,
            "status": f"{most_bytes / MB:.0f} MB",
            "median_s": seconds,
            "worst_s": seconds,
            "fits": seconds <= most_s and most_bytes < RECONCILE_MB * MB,
        }
        sys.stderr.write(f"{name}: {seconds:.1f} s, {most_bytes / MB:.0f} MB\n")
    return results


def row(name: str, result: dict[str, Any], before: dict[str, Any] | None) -> list[str]:
    was = "–"
    if before:
        was = f"{before.get('statements', '')} in {in_s(before['worst_s'])}".removeprefix(" in ")
    status = "" if result["status"] in (200, 302) else f" ({result['status']})"
    return [
        f"{name}{status}",
        in_s(result["most_s"]),
        shown(result.get("statements", "–")),
        shown(result.get("rows", "–")),
        in_s(result["median_s"]),
        in_s(result["worst_s"]),
        was,
        "pass" if result["fits"] else "MISS",
    ]


def in_s(seconds: float) -> str:
    return f"{shown(seconds)} s" if seconds >= 1 else f"{seconds * 1000:,.0f} ms"


if __name__ == "__main__":
    main()
