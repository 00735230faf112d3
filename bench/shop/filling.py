"""Fill a shop with sales, buyers and the history of their orders, by SQL alone.

Time goes on from sale to sale as in a shop: ids and times of orders and of their events rise
together. Every ``BIG_EVERY``-th sale is for a crowd, and ``REGULARS`` buy in all the others.
"""

import datetime as dt
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import Model
from django.utils import timezone

from orders.models import OrderEvent, Payment, VoucherOrder
from orders.placing.order_ids import EPOCH, SEQUENCE_BITS
from vouchers.models import SeckillVoucher, Voucher

REGULARS = 2
"""The first buyers: each buys in every second of the sales that are not big."""

MERCHANTS, VOUCHERS = 50, 300
BUYERS = "buyer-"
"""How the names of buyers begin."""

YEAR = dt.timedelta(days=360)

_STATUS = """
    CASE WHEN n = 7 AND {age_days} < 2 THEN 'refunding'
         WHEN k < 45 THEN 'used' WHEN k < 70 THEN 'paid' WHEN k < 76 THEN 'refunded'
         WHEN k < 84 THEN 'cancelled' WHEN {age_days} = 0 AND k < 90 THEN 'unpaid'
         WHEN k < 98 THEN 'expired' ELSE 'refused' END"""
_LIVE = "('used', 'paid', 'refunding', 'unpaid')"
_PAID = "('used', 'paid', 'refunding', 'refunded')"


@dataclass(frozen=True)
class Size:
    """How much a shop holds; ``orders`` is a little less than there are in the end."""

    orders: int
    sales: int = 1_000
    buyers: int = 100_100
    big: int = 10

    @property
    def crowd(self) -> int:
        """The orders of a big sale: a fifth of all orders is in these sales."""
        return min(self.orders // (5 * self.big), self.buyers - REGULARS)

    @property
    def usual(self) -> int:
        """The orders of any other sale."""
        return -(-(self.orders - self.big * self.crowd) // (self.sales - self.big))

    def orders_of(self, number: int) -> int:
        """Return the orders of a sale; sale 0 is the oldest, and the last but two is big."""
        every = self.sales // self.big
        return self.crowd if (self.sales - 3 - number) % every == 0 else self.usual


def fill(size: Size, *, in_bulk: bool = True) -> None:
    """Fill an empty shop; ``in_bulk`` makes the indexes afterwards, which is faster for many rows.

    The sales end before now, but for the last two; one more begins tomorrow.
    """
    make_people(size.buyers)
    _make_sales(size)
    sales = list(SeckillVoucher.objects.order_by("begins_at").values_list("pk", "begins_at"))
    with _without_indexes(*([VoucherOrder, OrderEvent, Payment] if in_bulk else [])):
        for number, (sale_id, begins_at) in enumerate(sales[: size.sales]):
            count = size.orders_of(number)
            add_orders(sale_id, begins_at, count=count, buyers=size.buyers, regular=number % 2)
    _note_sold()
    _make_the_rest(big=[pk for n, (pk, _) in enumerate(sales) if size.orders_of(n) == size.crowd])
    analyze()


def analyze() -> None:
    """Let the server count the rows of all tables anew, for its plans; this commits."""
    _execute(f"ANALYZE TABLE {', '.join(connection.introspection.django_table_names())}")


def add_orders(
    sale_id: int,
    begins_at: dt.datetime,
    *,
    count: int,
    buyers: int,
    regular: int = 0,
    first: int = 0,
    names: str = BUYERS,
) -> None:
    """Add ``count`` orders to a sale, with events and payments.

    The first one of a sale is of a regular buyer, the others are of different buyers, whose names
    begin so. ``first`` is how many orders it has already.
    """
    base = int((begins_at - EPOCH).total_seconds()) << SEQUENCE_BITS
    age_days = (timezone.now() - begins_at).days
    values = {
        "sale": sale_id,
        "base": base,
        "begins": _text(begins_at),
        "regular": 1 + regular,
        "others": buyers - REGULARS,
        "after_regulars": 1 + REGULARS,
        "shift": sale_id * 31_337,
        "names": f"{names}%",
    }
    status = _STATUS.format(age_days=age_days)
    last = first + count - 1
    # 100,000 orders come within ten minutes.
    _execute(
        f"""
        INSERT INTO orders_voucherorder (id, user_id, seckill_voucher_id, unit, status, live,
            reason, price_cents, pay_by, code, accepted_at, created_at, position)
        SELECT id, user, %(sale)s, 1, status, IF(status IN {_LIVE}, 1, NULL),
            IF(status = 'refused', IF(id MOD 10000 = 99, 'failed', 'sold_out'), ''), price,
            at + INTERVAL 900 SECOND, IF(status IN {_PAID}, code, NULL), at,
            at + INTERVAL 150000 MICROSECOND, NULL
        FROM (SELECT %(base)s + ((n * 6 DIV 1000) << {SEQUENCE_BITS}) + n AS id,
            UPPER(LEFT(MD5(%(base)s + n), 16)) AS code, k, {status} AS status,
            IF(n = 0, first_buyer + %(regular)s, first_buyer + %(after_regulars)s
                + (n * 7919 + %(shift)s) MOD %(others)s) AS user,
            TIMESTAMP(%(begins)s) + INTERVAL n * 6000 MICROSECOND AS at, price
            FROM (SELECT seq AS n, seq * 61 MOD 100 AS k FROM seq_{first}_to_{last}) AS numbers,
                (SELECT MIN(id) - 1 AS first_buyer FROM auth_user
                 WHERE username LIKE %(names)s) AS b,
                (SELECT v.price_cents AS price FROM vouchers_voucher v
                 JOIN vouchers_seckillvoucher s ON s.voucher_id = v.id WHERE s.id = %(sale)s) AS p
            ORDER BY n) AS orders
        """,
        values,
    )
    ids = {"sale": sale_id, "least": base + first, "most": base + ((last * 6 // 1000) << 32) + last}
    its_orders = "seckill_voucher_id = %(sale)s AND id BETWEEN %(least)s AND %(most)s"
    _execute(
        f"""
        INSERT INTO orders_orderevent (order_id, `before`, `after`, at, actor_kind, actor_id,
            reason, code, `values`, notified_at, notify_at, webhooks_due)
        SELECT id, was, becomes, at, kind, NULL, why, '', NULL, at + INTERVAL 1 SECOND, NULL, NULL
        FROM (
            SELECT id, '' AS was, IF(status = 'refused', status, 'unpaid') AS becomes,
                created_at AS at, 'system' AS kind, '' AS why
            FROM orders_voucherorder WHERE {its_orders}
            UNION ALL SELECT id, 'unpaid', 'paid', created_at + INTERVAL 60 SECOND, 'provider', ''
            FROM orders_voucherorder WHERE {its_orders} AND status IN {_PAID}
            UNION ALL SELECT id, 'unpaid', status, created_at + INTERVAL 900 SECOND, 'system', ''
            FROM orders_voucherorder WHERE {its_orders} AND status IN ('cancelled', 'expired')
            UNION ALL SELECT id, 'paid', 'used', created_at + INTERVAL 2 HOUR, 'system', ''
            FROM orders_voucherorder WHERE {its_orders} AND status = 'used'
            UNION ALL SELECT id, 'paid', 'refunding', created_at + INTERVAL 3 HOUR, 'buyer', 'no'
            FROM orders_voucherorder WHERE {its_orders} AND status IN ('refunded', 'refunding')
            UNION ALL SELECT id, 'refunding', status, created_at + INTERVAL 4 HOUR, 'provider', ''
            FROM orders_voucherorder WHERE {its_orders} AND status = 'refunded'
        ) AS events ORDER BY at
        """,
        ids,
    )
    _execute(
        f"""
        INSERT INTO orders_payment (order_id, reference, provider, provider_reference, amount_cents,
            refunded_cents, refund_round, received_currency, client, status, settles, pay_url,
            problem, asked, created_at, paid_at, refunded_at, changed_at)
        SELECT id, MD5(id), IF(unit * id MOD 3, 'sandbox', 'alipay'), CONCAT('there-', id),
            price_cents, IF(status = 'refunded', price_cents, 0), 0, '', '',
            CASE WHEN status IN ('paid', 'used') THEN 'paid' WHEN status = 'expired' THEN 'closed'
                WHEN status = 'unpaid' THEN 'open' ELSE status END,
            status IN {_PAID}, '', IF(id MOD 50000 = 0, 'The provider has no such charge.', ''), 1,
            created_at + INTERVAL 5 SECOND,
            IF(status IN {_PAID}, created_at + INTERVAL 60 SECOND, NULL),
            IF(status = 'refunded', created_at + INTERVAL 4 HOUR, NULL),
            created_at + INTERVAL 60 SECOND
        FROM orders_voucherorder WHERE {its_orders}
            AND (status IN {_PAID} OR status IN ('expired', 'unpaid') AND id MOD 3 = 0) ORDER BY id
        """,
        ids,
    )


def make_people(buyers: int, *, names: str = BUYERS) -> None:
    """Make accounts with contacts."""
    joined = _text(timezone.now() - YEAR)
    _execute(
        f"""
        INSERT INTO auth_user (password, last_login, is_superuser, username, first_name, last_name,
            email, is_staff, is_active, date_joined)
        SELECT '!', NULL, 0, CONCAT('{names}', LPAD(seq, 7, '0')), '', '',
            CONCAT('{names}', LPAD(seq, 7, '0'), '@example.com'), 0, 1, %(joined)s
        FROM seq_1_to_{buyers}
        """,
        {"joined": joined},
    )
    _execute(
        "INSERT INTO account_emailaddress (user_id, email, verified, `primary`) "
        f"SELECT id, email, 1, 1 FROM auth_user WHERE username LIKE '{names}%%'"
    )
    _execute(
        "INSERT INTO accounts_phone (user_id, number) "
        "SELECT id, CONCAT('+86139', LPAD(id, 8, '0')) "
        f"FROM auth_user WHERE username LIKE '{names}%%' AND id MOD 2"
    )


def _make_sales(size: Size) -> None:
    """Make merchants, vouchers and sales: from a year ago until now, and one for tomorrow."""
    now = timezone.now()
    _execute(
        f"""
        INSERT INTO vouchers_merchant (name, name_en, address, address_en, contact, created_at)
        SELECT CONCAT('商家 ', seq), CONCAT('Merchant ', seq), '', '', '', %(now)s
        FROM seq_1_to_{MERCHANTS}
        """,
        {"now": _text(now)},
    )
    merchant = "(SELECT MIN(id) FROM vouchers_merchant WHERE name LIKE '商家 %%')"
    _execute(
        f"""
        INSERT INTO vouchers_voucher (title, title_en, merchant_id, rules, rules_en, valid_where,
            valid_until, price_cents, face_value_cents, created_at)
        SELECT CONCAT('代金券 ', seq), CONCAT('Voucher ', seq), {merchant} + seq MOD {MERCHANTS},
            '', '', '', DATE(%(now)s) + INTERVAL 7 + seq MOD 60 DAY, 1000 + 100 * (seq MOD 90),
            20000, %(now)s
        FROM seq_1_to_{VOUCHERS}
        """,
        {"now": _text(now)},
    )
    first = Voucher.objects.filter(title="代金券 1").values_list("pk", flat=True)[0]
    begin = max(now - YEAR, EPOCH + dt.timedelta(days=1))
    step = (now - dt.timedelta(hours=5) - begin) / (size.sales - 1)
    SeckillVoucher.objects.bulk_create(
        SeckillVoucher(
            voucher_id=first + number % VOUCHERS,
            stock=size.orders_of(number) + 100,
            begins_at=(at := (begin + number * step).replace(microsecond=0)),
            ends_at=at + dt.timedelta(hours=36 if number >= size.sales - 2 else 3),
            room="start" if size.orders_of(number) == size.crowd else "off",
        )
        for number in range(size.sales + 1)
    )
    coming = SeckillVoucher.objects.order_by("-begins_at")[0]
    coming.begins_at, coming.ends_at = now + dt.timedelta(days=1), now + dt.timedelta(days=2)
    coming.save()


def _note_sold() -> None:
    _execute(
        "UPDATE vouchers_seckillvoucher s SET epoch = 1, sold = (SELECT COUNT(*) FROM "
        "orders_voucherorder o WHERE o.seckill_voucher_id = s.id AND o.live = 1), sold_out_at = "
        "s.begins_at + INTERVAL 10 MINUTE, ledger_removed_at = IF(s.ends_at < %(week_ago)s, "
        "s.ends_at + INTERVAL 7 DAY, NULL)",
        {"week_ago": _text(timezone.now() - dt.timedelta(days=7))},
    )


def _make_the_rest(*, big: list[int]) -> None:
    """Make what other lists, a customer's page and the reports show."""
    crowds = ", ".join(map(str, big))
    for answer, share in (("accepted", 1), ("sold_out", 3)):
        _execute(
            f"""
            INSERT INTO vouchers_answercount (seckill_voucher_id, at, answer, count, seconds)
            SELECT s.id, s.begins_at + INTERVAL seq * IF(s.id IN ({crowds}), 1, 60) SECOND,
                '{answer}', 1 + {share} * 500 DIV seq, IF(s.id IN ({crowds}), 1, 60)
            FROM vouchers_seckillvoucher s, seq_1_to_120
            """
        )
    # Visits and refusals are kept for thirty days.
    its_buyers = f"FROM orders_voucherorder o WHERE o.seckill_voucher_id IN ({crowds})"
    lately = "o.accepted_at > UTC_TIMESTAMP() - INTERVAL 30 DAY"
    _execute(
        f"""
        INSERT INTO orders_roomvisit (seckill_voucher_id, user_id, opened_ms, given, joined_at,
            let_in_at)
        SELECT o.seckill_voucher_id, o.user_id, 1, o.id MOD 1000000,
            o.accepted_at - INTERVAL 60 SECOND, o.accepted_at {its_buyers} AND {lately}
        """
    )
    _execute(
        f"""
        INSERT INTO orders_orderrefusal (seckill_voucher_id, reason, user_id, refused_at)
        SELECT o.seckill_voucher_id, 'sold_out', o.user_id, o.accepted_at
        {its_buyers} AND {lately} AND o.id MOD 2
        """
    )
    _execute(
        f"""
        INSERT INTO orders_waitingentry (seckill_voucher_id, user_id, order_id, joined_at, quantity,
            all_or_none, live, outcome)
        SELECT o.seckill_voucher_id, o.user_id, o.id, o.accepted_at, 1, 0, NULL, 'over'
        {its_buyers} AND o.id MOD 10 = 0
        """
    )
    _execute(
        f"""
        INSERT INTO orders_invitationcode (seckill_voucher_id, code, created_at)
        SELECT s.id, UPPER(LEFT(MD5(s.id * 100000 + seq), 12)), s.begins_at
        FROM vouchers_seckillvoucher s, seq_1_to_10000 WHERE s.id IN ({crowds})
        """
    )
    _execute(
        """
        INSERT INTO orders_settlementdifference (provider, day, direction, kind, reference,
            payment_id, our_cents, their_cents, their_currency, found_at)
        SELECT provider, DATE(created_at), 'payment', 'missing_there', reference, id,
            amount_cents, NULL, '', created_at
        FROM orders_payment WHERE id MOD 5000 = 0
        """
    )


# --- SQL ------------------------------------------------------------------------------------------


@contextmanager
def _without_indexes(*models: type[Model]) -> Iterator[None]:
    """Drop the secondary indexes of these tables, and make them again after the block, sorted."""
    _execute("SET SESSION foreign_key_checks = 0, unique_checks = 0")
    keys = {}
    for table in (model._meta.db_table for model in models):
        text = _execute(f"SHOW CREATE TABLE {table}")[0][1]
        lines = [line.strip().rstrip(",") for line in text.splitlines()]
        keys[table] = [it for it in lines if it.startswith(("KEY", "UNIQUE KEY"))]
        names = [f"DROP INDEX `{it.split('`')[1]}`" for it in keys[table]]
        _execute(f"ALTER TABLE {table} {', '.join(names)}")
    yield
    for table, lines in keys.items():
        _execute(f"ALTER TABLE {table} {', '.join(f'ADD {line}' for line in lines)}")
    _execute("SET SESSION foreign_key_checks = 1, unique_checks = 1")


def _execute(statement: str, values: Mapping[str, Any] | None = None) -> list[tuple[str, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or {})
        return list(cursor.fetchall()) if cursor.description else []


def _text(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S")
