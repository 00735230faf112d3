"""The tables of orders, one module per subject."""

from orders.models.history import ActorKind, OrderEvent
from orders.models.jobs import JobStatus, OrderJob
from orders.models.orders import (
    BARRING_STATUSES,
    CODE_LENGTH,
    LIVE_STATUSES,
    SOURCES,
    OrderStatus,
    RefusalReason,
    VoucherOrder,
)
from orders.models.payments import Payment, PaymentStatus
from orders.models.rehearsals import Rehearsal, RehearsalPhase
from orders.models.sandbox import SandboxTrade
from orders.models.waiting import WaitingEntry

__all__ = [
    "BARRING_STATUSES",
    "CODE_LENGTH",
    "LIVE_STATUSES",
    "SOURCES",
    "ActorKind",
    "JobStatus",
    "OrderEvent",
    "OrderJob",
    "OrderStatus",
    "Payment",
    "PaymentStatus",
    "RefusalReason",
    "Rehearsal",
    "RehearsalPhase",
    "SandboxTrade",
    "VoucherOrder",
    "WaitingEntry",
]
