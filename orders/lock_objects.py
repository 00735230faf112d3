"""Every row lock of orders. A flow locks the sale's row first, then orders by id, then payments.

A user's row is locked alone.
"""

from collections.abc import Iterable

from django.contrib.auth.models import User
from django.db.models import Q

from orders.models import OrderStatus, Payment, SandboxTrade, VoucherOrder


def lock_user(*, user_id: int) -> User:
    """Lock an account until the transaction ends.

    :raises User.DoesNotExist: there is no such account.
    """
    return User.objects.select_for_update().get(pk=user_id)


def lock_order(*, order_id: int) -> VoucherOrder:
    """Lock one order until the transaction ends, and return it as it is now.

    :raises VoucherOrder.DoesNotExist: there is no such order.
    """
    return VoucherOrder.objects.select_for_update().get(pk=order_id)


def lock_payment(*, payment_id: int) -> Payment:
    """Lock a payment until the transaction ends, and return it as it is now.

    :raises Payment.DoesNotExist: there is no such payment.
    """
    return Payment.objects.select_for_update().get(pk=payment_id)


def lock_trade(*, reference: str) -> SandboxTrade | None:
    """Lock a charge in the sandbox's books until the transaction ends, if there is one."""
    return SandboxTrade.objects.select_for_update().filter(reference=reference).first()


def lock_orders(
    *, sale_id: int, order_ids: Iterable[int], status: OrderStatus, only: Q | None = None
) -> list[VoucherOrder]:
    """Lock those of a sale's orders that have this status, by id, until the transaction ends."""
    orders = VoucherOrder.objects.select_for_update().filter(
        only or Q(), pk__in=order_ids, seckill_voucher=sale_id, status=status
    )
    return list(orders.order_by("pk"))
