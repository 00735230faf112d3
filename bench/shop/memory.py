"""The memory of Redis with the ledgers of old sales, and once beat has removed them."""

import datetime as dt
import sys
import time
from typing import Any

from bench.tables import shown

MB = 1 << 20
SALES, BUYERS = 300, 10_000
LEFT_MB = 5.0
"""What Redis may have more than without any of the sales."""

_FILL = """
INSERT INTO orders_voucherorder (id, user_id, seckill_voucher_id, unit, status, live, reason,
    price_cents, accepted_at, created_at)
SELECT %(first_id)s + seq, %(first_user)s + seq, %(sale)s, 1, 'used', 1, '', 100, %(at)s, %(at)s
FROM seq_0_to_{last}
"""


def measure_memory(only: str) -> dict[str, dict[str, Any]]:
    """Return the row of the table, if its name contains ``only``."""
    name = f"memory of Redis, {SALES} old sales of {BUYERS:,} buyers"
    if only not in name:
        return {}
    empty, full, left, seconds = memory_of_old_sales(sales=SALES, buyers=BUYERS)
    text = f"{shown((full - empty) / MB)} MB, then {shown((left - empty) / MB)} MB"
    sys.stderr.write(f"{name}: {text}\n")
    a_pass = {"median_s": seconds / SALES, "worst_s": seconds / SALES, "most_s": 1.0}
    return {name: {**a_pass, "status": text, "fits": left - empty <= LEFT_MB * MB}}


def memory_of_old_sales(*, sales: int, buyers: int) -> tuple[int, int, int, float]:
    """Make sales that were over ten days ago, load them, and let beat remove their ledgers.

    Return the bytes of Redis before, with the ledgers and after, and the seconds that all passes
    took. The rows are deleted again.
    """
    from django.contrib.auth.models import User
    from django.db import connection
    from django.utils import timezone

    from orders.fulfilment.removal import remove_ledgers
    from orders.placing.order_ids import EPOCH, SEQUENCE_BITS
    from vouchers.inventory.rebuild import load_sale
    from vouchers.models import SeckillVoucher, Voucher

    empty = _used_memory()
    voucher = Voucher.objects.create(title="Old", price_cents=100, face_value_cents=100)
    names = [f"old-buyer-{number}" for number in range(buyers)]
    User.objects.bulk_create([User(username=it, password="!") for it in names], batch_size=1_000)
    people = User.objects.filter(username__startswith="old-buyer-")
    first_user = people.order_by("pk").values_list("pk", flat=True)[0]
    ends_at = timezone.now() - dt.timedelta(days=10)
    made = []
    for number in range(sales):
        begins_at = ends_at - dt.timedelta(hours=number + 1)
        window = {"begins_at": begins_at, "ends_at": ends_at, "stock": buyers, "sold": buyers}
        sale = SeckillVoucher.objects.create(voucher=voucher, **window)
        first_id = int((begins_at - EPOCH).total_seconds()) << SEQUENCE_BITS
        values: dict[str, Any] = {
            "first_id": first_id,
            "first_user": first_user,
            "sale": sale.pk,
            "at": begins_at,
        }
        with connection.cursor() as cursor:
            cursor.execute(_FILL.format(last=buyers - 1), values)
        load_sale(sale_id=sale.pk)
        made.append(sale.pk)
    full, started = _used_memory(), time.perf_counter()
    while remove_ledgers(now=timezone.now()):
        pass
    seconds = time.perf_counter() - started
    left = _used_memory()
    for sale_id in made:
        with connection.cursor() as cursor:
            cursor.execute(
                "DELETE FROM orders_voucherorder WHERE seckill_voucher_id = %s", [sale_id]
            )
    SeckillVoucher.objects.filter(pk__in=made).delete()
    voucher.delete()
    people.delete()
    return empty, full, left, seconds


def _used_memory() -> int:
    """Return the bytes that Redis uses, once it has freed in the background what was unlinked."""
    from seckill_site.redis.ledger_connection import ledger_connection

    client = ledger_connection()
    while client.info("memory")["lazyfree_pending_objects"]:
        time.sleep(0.05)
    return int(client.info("memory")["used_memory"])
