"""What orders use up of their sale's rules: an invitation code, or the buyer's first order.

Two tokens of a buyer may both have been issued before either has become an order. So the rules
that allow one order are decided here, in the transaction that writes it: by ``code_used_once``, and
across sales by ``first_order_once_per_buyer``. Writing orders of a sale without such rules costs no
statement.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from django.db import OperationalError
from django.db.models import Exists, OuterRef

from orders.models import CodeUse, FirstOrder, InvitationCode, RefusalReason, VoucherOrder
from vouchers.inventory.holdings import Holding
from vouchers.models import SeckillVoucher

LOCK_WAIT_TIMEOUT = 1205
"""MariaDB's number of the error (ER_LOCK_WAIT_TIMEOUT)."""


class FirstOrderBusy(OperationalError):
    """A buyer's first order is being written in another sale, whose transaction does not end."""


@dataclass
class RuleUses:
    """What the orders of a transaction may use up; None: the sale has no such rule.

    ``codes`` are the unused codes of each buyer who has entered any. ``first`` are the orders that
    are their buyer's first.
    """

    codes: dict[int, list[int]] | None = None
    first: set[int] | None = None
    _uses: list[CodeUse] = field(default_factory=list)
    _written: set[int] = field(default_factory=set)

    def refusal(self, order: Holding, *, before: int = 0) -> RefusalReason | None:
        """Return why a rule refuses this order, taken after ``before`` others of its buyer."""
        if self.first is not None and order.order_id not in self.first:
            return RefusalReason.NOT_FIRST_ORDER
        # A buyer who has entered no code had a token before the sale took codes.
        codes = self.codes.get(order.user_id) if self.codes is not None else None
        if codes is not None and len(codes) <= before:
            return RefusalReason.CODE_USED
        return None

    def take(self, order: Holding) -> None:
        """Use up what an order needs, which is to be written."""
        self._written.add(order.order_id)
        if codes := (self.codes or {}).get(order.user_id):
            self._uses.append(CodeUse(code_id=codes.pop(0), order_id=order.order_id))

    def save(self) -> None:
        """Write what was used up, and give back what no order needed.

        :raises django.db.IntegrityError: a code was used meanwhile; the caller rolls back.
        """
        if self._uses:
            CodeUse.objects.bulk_create(self._uses)
        if unused := (self.first or set()) - self._written:
            FirstOrder.objects.filter(order_id__in=unused).delete()


def open_rule_uses(sale: SeckillVoucher, orders: Sequence[Holding]) -> RuleUses:
    """Return what these new orders may use up; the caller holds the sale's row ``FOR UPDATE``.

    :raises FirstOrderBusy: another sale writes a buyer's first order; the caller rolls back.
    """
    return RuleUses(
        codes=_unused_codes(sale, orders) if sale.needs_code and orders else None,
        first=_take_first(orders) if sale.first_order_only and orders else None,
    )


def return_rule_uses(sale: SeckillVoucher, *, order_ids: Sequence[int]) -> None:
    """Give back what ended orders used up: the code only if their buyers may buy again."""
    FirstOrder.objects.filter(order_id__in=order_ids).delete()
    if sale.rebuy:
        CodeUse.objects.filter(order_id__in=order_ids).delete()


def _unused_codes(sale: SeckillVoucher, orders: Iterable[Holding]) -> dict[int, list[int]]:
    codes = InvitationCode.objects.filter(
        seckill_voucher=sale, user__in={it.user_id for it in orders}
    )
    by_user: dict[int, list[int]] = {}
    rows = codes.annotate(is_used=Exists(CodeUse.objects.filter(code=OuterRef("pk"))))
    for code_id, user_id, is_used in rows.order_by("pk").values_list("pk", "user_id", "is_used"):
        unused = by_user.setdefault(user_id or 0, [])
        if not is_used:
            unused.append(code_id)
    return by_user


def _take_first(orders: Iterable[Holding]) -> set[int]:
    """Take the first order of each buyer who has none, for the first of their orders here.

    A buyer's first order that is being written in another sale makes this wait for its commit.
    """
    wanted: dict[int, int] = {}
    for it in orders:
        wanted.setdefault(it.user_id, it.order_id)
    others = VoucherOrder.objects.filter(user__in=wanted, live=True)
    buyers = set(others.values_list("user_id", flat=True))
    users = sorted(wanted.keys() - buyers)  # in order: two sales never wait for each other
    try:
        FirstOrder.objects.bulk_create(
            (FirstOrder(user_id=it, order_id=wanted[it]) for it in users), ignore_conflicts=True
        )
    except OperationalError as error:
        if error.args[:1] != (LOCK_WAIT_TIMEOUT,):
            raise
        raise FirstOrderBusy(*error.args) from error
    taken = FirstOrder.objects.filter(order_id__in=[wanted[it] for it in users])
    return set(taken.values_list("order_id", flat=True))
