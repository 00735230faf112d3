"""The tables of orders, one module per subject."""

from orders.models.audience import (
    INVITATION_LENGTH,
    CodeUse,
    FirstOrder,
    InvitationCode,
    OrderRefusal,
    RuleRefusal,
)
from orders.models.draws import DrawEntry
from orders.models.jobs import JobStatus, OrderJob, Rehearsal, RehearsalPhase
from orders.models.notices import Notice
from orders.models.orders import (
    BARRING_STATUSES,
    CODE_ALPHABET,
    CODE_LENGTH,
    LIVE_STATUSES,
    PROGRAM,
    SOURCES,
    TOLD_STATUSES,
    UNDOES,
    UNUSED,
    ActorKind,
    EventCode,
    OrderEvent,
    OrderStatus,
    RefusalReason,
    VoucherOrder,
    WaitingEntry,
)
from orders.models.payments import (
    FOR_STAFF,
    GOING_BACK,
    HandledNotification,
    Payment,
    PaymentStatus,
    SandboxTrade,
)
from orders.models.restored import RestoredOrder
from orders.models.settlement import (
    MoneyDirection,
    ProviderLine,
    SettlementDifference,
    SettlementRun,
)
from orders.models.sums import DaySum
from orders.models.visits import RoomVisit
