"""Long work in processes of its own, whose memory says what it needed."""

import resource
import sys
import time

import django


def export_all(sale_ids: list[int]) -> tuple[float, int]:
    """Export the orders of these sales; return the seconds and the most bytes of this process."""
    django.setup()
    from django.utils import timezone

    from backoffice.order_export import export_orders
    from orders.models import VoucherOrder
    from seckill_site.web.csv_files import csv_parts

    started = time.perf_counter()
    orders = VoucherOrder.objects.filter(seckill_voucher__in=sale_ids)
    export = export_orders(orders=orders, codes=False, now=timezone.now())
    for _ in csv_parts(*export):
        pass
    return time.perf_counter() - started, most_bytes()


def reconcile_all() -> tuple[float, int]:
    """Run ``manage.py reconcile``; return the seconds and the most bytes of this process."""
    django.setup()
    from contextlib import suppress
    from io import StringIO

    from django.core.management import call_command

    started = time.perf_counter()
    with suppress(SystemExit):  # sales without a ledger count as different
        call_command("reconcile", stdout=StringIO(), stderr=sys.stderr)
    return time.perf_counter() - started, most_bytes()


def most_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
