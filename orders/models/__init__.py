"""The tables of orders, one module per subject."""

from orders.models.jobs import JobStatus, OrderJob, Rehearsal, RehearsalPhase
from orders.models.notices import Notice
from orders.models.orders import (
    BARRING_STATUSES,
    CODE_LENGTH,
    LIVE_STATUSES,
    SOURCES,
    ActorKind,
    OrderEvent,
    OrderStatus,
    RefusalReason,
    VoucherOrder,
    WaitingEntry,
)
from orders.models.payments import Payment, PaymentStatus, SandboxTrade
from orders.models.visits import RoomVisit

__all__ = [
    "BARRING_STATUSES",
    "CODE_LENGTH",
    "LIVE_STATUSES",
    "SOURCES",
    "ActorKind",
    "JobStatus",
    "Notice",
    "OrderEvent",
    "OrderJob",
    "OrderStatus",
    "Payment",
    "PaymentStatus",
    "RefusalReason",
    "Rehearsal",
    "RehearsalPhase",
    "RoomVisit",
    "SandboxTrade",
    "VoucherOrder",
    "WaitingEntry",
]
