"""Merchants, vouchers, pictures and flash sales, and the stored counts of order requests."""

from __future__ import annotations

import datetime as dt
import secrets
from typing import TypeVar

from django.conf import settings
from django.contrib.auth.models import AnonymousUser, Group, User
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_lazy as _

from seckill_site.face.site_face import both_faces, contact_url, map_url

YEARS = (2000, 2100)
"""The first and the last year of a sale: others are typing errors."""

M = TypeVar("M", int, dt.datetime)
"""A moment: milliseconds since 1970, or an aware datetime."""

MAX_STOCK = 1_000_000
"""The most units of one sale: the size up to which the ledger is measured."""

MAX_LIMIT = 20
"""The most units of a sale for one buyer: the reserve script reads a field for each."""

MAX_ROOM_RATE = 100_000
"""The most people that a waiting room lets in per second."""

MAX_ACCOUNT_AGE_H = 10 * 365 * 24
"""The greatest age that a sale may ask of an account, in hours."""

PAY_WITHIN_S = (60, 7 * 24 * 3600)
"""The shortest and the longest time to pay."""


MAX_DRAW_WAIT_S = 24 * 3600
"""The longest time after a draw in which units that come back are given away."""


def validate_year(moment: dt.date) -> None:
    """Refuse a year outside of ``YEARS``."""
    first, last = YEARS
    if not first <= moment.year <= last:
        text = gettext("The year must be between %(first)s and %(last)s.")
        raise ValidationError(text, params={"first": first, "last": last})


def new_seed() -> str:
    """Return the seed of a draw: 64 random hexadecimal digits."""
    return secrets.token_hex(32)


def new_identity() -> int:
    """Return a random number that no other sale and no other installation has."""
    return secrets.randbits(63)


RUN_PERMISSION = "vouchers.run_seckillvoucher"
"""The permission to change sales that have started."""

ACTIVE_AFTER_END = dt.timedelta(days=1)
"""The time after its end during which a sale may still change by itself."""


class SaleState(models.TextChoices):
    """The state of a sale at a moment: the first that applies, in this order."""

    ENDED = "ended", _("ended")
    PAUSED = "paused", _("paused")
    SCHEDULED = "scheduled", _("scheduled")
    SOLD_OUT = "sold_out", _("sold out")
    OPEN = "open", _("open")

    @classmethod
    def at(cls, now: M, *, window: tuple[M, M], closed: bool, sold_out: bool) -> SaleState:
        """Return the state of a sale with this window, which includes its start but not its end."""
        if now >= window[1]:
            return cls.ENDED
        if closed:
            return cls.PAUSED
        if now < window[0]:
            return cls.SCHEDULED
        return cls.SOLD_OUT if sold_out else cls.OPEN


class SaleStage(models.TextChoices):
    """Visibility of a sale."""

    DRAFT = "draft", _("draft")
    PUBLIC = "public", _("public")
    REHEARSAL = "rehearsal", _("rehearsal")


class RoomKind(models.TextChoices):
    """When a sale has a waiting room."""

    OFF = "off", _("no waiting room")
    BUSY = "busy", _("only while more people come than it lets in")
    START = "start", _("everybody waits in it for the start")


class Work(models.IntegerChoices):
    """The zero bits that the work behind an order must show: 2^bits hashes on average.

    A phone does about 300,000 a second: Chromium did 304,000 to 375,000 with its processor slowed
    down four to six times.
    """

    NONE = 0, _("none")
    LIGHT = 14, _("light: an instant on a phone")
    USUAL = 16, _("usual: a quarter of a second on a phone, rarely a whole one")
    HEAVY = 18, _("heavy: a second on a phone, rarely four")


class SaleMode(models.TextChoices):
    """How a sale chooses its buyers."""

    FIRST_COME = "first", _("first come, first served")
    DRAW = "draw", _("draw among all entries after the end")


class Picture(models.Model):
    """A voucher's picture as it is served: WebP, identified by the digest of its bytes."""

    digest = models.CharField(max_length=32, primary_key=True)
    content = models.BinaryField()
    width = models.PositiveSmallIntegerField()
    height = models.PositiveSmallIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = _("picture")
        verbose_name_plural = _("pictures")

    def __str__(self) -> str:
        return self.digest


class Merchant(models.Model):
    """A business that redeems vouchers. The oldest one is the default."""

    name = models.CharField(_("name"), max_length=80, unique=True)
    name_en = models.CharField(
        _("English name"),
        max_length=80,
        blank=True,
        help_text=_("For pages in English. Empty: the same in both languages."),
    )
    address = models.CharField(
        _("address"),
        max_length=200,
        blank=True,
        help_text=_("Where buyers redeem, unless a voucher says otherwise."),
    )
    address_en = models.CharField(_("English address"), max_length=200, blank=True)
    contact = models.CharField(
        _("contact"),
        max_length=120,
        blank=True,
        help_text=_("A phone number or an email address that buyers may use."),
    )
    staff = models.ManyToManyField(settings.AUTH_USER_MODEL, related_name="merchants")
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        verbose_name = _("merchant")
        verbose_name_plural = _("merchants")
        ordering = ("name",)

    def __str__(self) -> str:
        return (_reads_english() and self.name_en) or self.name

    @property
    def local_address(self) -> str:
        """The address in the reader's language."""
        return (_reads_english() and self.address_en) or self.address

    @property
    def contact_url(self) -> str:
        """The link of the contact, if it is an address or a number and no other text."""
        return contact_url(self.contact)

    @classmethod
    def default(cls) -> Merchant:
        """Return the default merchant; a shop without one gets one of its own name."""
        first = cls.objects.order_by("pk").first()
        return first or cls.objects.get_or_create(name=both_faces()[0].name)[0]

    @classmethod
    def redeemed_by(cls, user: User | AnonymousUser) -> frozenset[int] | None:
        """Return the merchants whose vouchers alone a member of staff redeems; None: all."""
        if user.is_superuser:  # an owner may do everything
            return None
        return frozenset(cls.objects.filter(staff=user.pk).values_list("pk", flat=True)) or None


class Voucher(models.Model):
    """A voucher worth ``face_value_cents`` in the shop, sold for ``price_cents``."""

    title = models.CharField(_("title"), max_length=120)
    title_en = models.CharField(
        _("English title"),
        max_length=120,
        blank=True,
        default="",
        db_default="",
        help_text=_("For pages in English. Empty: the title is the same in both languages."),
    )
    merchant = models.ForeignKey(
        Merchant,
        on_delete=models.PROTECT,
        null=True,  # for the release before, which knows no merchants, during an update
        blank=True,
        related_name="vouchers",
        verbose_name=_("merchant"),
    )
    rules = models.TextField(_("rules"), blank=True, max_length=4000)
    rules_en = models.TextField(
        _("English rules"), blank=True, max_length=4000, default="", db_default=""
    )
    valid_where = models.CharField(
        _("where it is valid"),
        max_length=120,
        blank=True,
        default="",
        db_default="",
        help_text=_("Such as “all branches”. Empty: at the merchant's address."),
    )
    valid_until = models.DateField(
        _("valid until"),
        null=True,
        blank=True,
        help_text=_("The last day on which it can be redeemed. Empty: it does not expire."),
    )
    price_cents = models.PositiveIntegerField(_("price in cents"))
    face_value_cents = models.PositiveIntegerField(_("face value in cents"))
    picture = models.ForeignKey(
        Picture,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        verbose_name=_("picture"),
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        verbose_name = _("voucher")
        verbose_name_plural = _("vouchers")
        constraints = [
            models.CheckConstraint(
                name="voucher_price_within_face_value",
                condition=Q(price_cents__gte=0, price_cents__lte=F("face_value_cents")),
                violation_error_message=_("The price cannot be above the face value."),
            ),
        ]

    def __str__(self) -> str:
        return self.local_title

    @property
    def local_title(self) -> str:
        """The title in the reader's language."""
        return (_reads_english() and self.title_en) or self.title

    @property
    def local_rules(self) -> str:
        """The rules in the reader's language."""
        return (_reads_english() and self.rules_en) or self.rules

    @property
    def place(self) -> str:
        """Where it is redeemed, if that is known."""
        return self.valid_where or (self.merchant.local_address if self.merchant else "")

    @property
    def map_url(self) -> str:
        """The link that searches the merchant and the place on a map, if the shop has named one."""
        return map_url(f"{self.merchant or ''} {self.place}".strip()) if self.place else ""

    def is_past(self, today: dt.date) -> bool:
        """Return whether its last day is over."""
        return self.valid_until is not None and today > self.valid_until


def _reads_english() -> bool:
    return (get_language() or "").startswith("en")


class SeckillVoucher(models.Model):
    """A flash sale of a voucher: its stock, its window, and its limit per buyer.

    ``stock`` is the number of units offered (Note [Derived stock] in ``inventory/sale_state.py``);
    ``sold`` is the number of live orders. Only ``vouchers.catalogue.sales`` and ``orders`` write
    them, with the row locked.
    """

    voucher = models.ForeignKey(
        Voucher, on_delete=models.PROTECT, related_name="sales", verbose_name=_("voucher")
    )
    stock = models.PositiveIntegerField(
        _("stock"), help_text=_("How many vouchers this sale offers.")
    )
    sold = models.PositiveIntegerField(_("sold"), default=0, editable=False)
    begins_at = models.DateTimeField(_("starts at"), validators=[validate_year])
    ends_at = models.DateTimeField(_("ends at"), db_index=True, validators=[validate_year])
    limit = models.PositiveSmallIntegerField(
        _("limit per buyer"),
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_LIMIT)],
    )
    paused = models.BooleanField(
        _("paused"),
        default=False,
        help_text=_("A paused sale accepts no orders until it is resumed."),
    )
    pay_within_s = models.PositiveIntegerField(
        _("seconds to pay"),
        default=15 * 60,
        validators=[MinValueValidator(PAY_WITHIN_S[0]), MaxValueValidator(PAY_WITHIN_S[1])],
        help_text=_("Orders that are not paid within this time expire."),
    )
    rebuy = models.BooleanField(
        _("may buy again"),
        default=True,
        help_text=_(
            "Whether a buyer whose order was cancelled, refunded or expired may buy again."
        ),
    )
    refundable = models.BooleanField(
        _("refundable"),
        default=True,
        help_text=_("Whether a buyer may return a voucher that is paid and unused."),
    )
    refund_unused = models.BooleanField(
        _("refund unused vouchers"),
        null=True,  # of sales from before this rule, and of the release before during an update
        blank=True,
        default=True,
        help_text=_(
            "Whether a paid voucher that was not used is refunded by itself after its last day. "
            "The counter then makes no exceptions."
        ),
    )
    extendable = models.BooleanField(
        _("more time to pay"),
        default=True,
        db_default=True,
        help_text=_(
            "Whether a buyer may extend the time to pay once, by at most ten minutes, in its "
            "last two minutes."
        ),
    )
    stage = models.CharField(
        _("stage"),
        max_length=16,
        choices=SaleStage,
        default=SaleStage.PUBLIC,
        help_text=_("A draft is visible to staff only and accepts no orders."),
    )
    room = models.CharField(
        _("waiting room"),
        max_length=8,
        choices=RoomKind,
        default=RoomKind.OFF,
        db_default=RoomKind.OFF,
        help_text=_(
            "Buyers wait in line before they can buy. Once let in, they can buy at any time."
        ),
    )
    room_rate = models.PositiveIntegerField(
        _("people let in per second"),
        default=200,
        db_default=200,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_ROOM_RATE)],
    )
    room_shuffled = models.BooleanField(
        _("draw the early places"),
        default=False,
        db_default=False,
        help_text=_(
            "Buyers who wait for the start get a random place when the sale starts, instead "
            "of a place in the order of arrival. Applies only if everybody waits for the "
            "start."
        ),
    )
    work = models.PositiveSmallIntegerField(
        _("work before a purchase"),
        choices=Work,
        default=Work.NONE,
        db_default=Work.NONE,
        help_text=_(
            "Each buyer's browser computes for a moment while they wait, which slows down a "
            "program with many accounts. Without JavaScript, a buyer answers a picture instead."
        ),
    )
    needs_contact = models.BooleanField(
        _("confirmed contact"),
        default=False,
        db_default=False,
        help_text=_("Only buyers who have confirmed an email address or a phone number."),
    )
    account_age_h = models.PositiveIntegerField(
        _("age of the account in hours"),
        default=0,
        db_default=0,
        validators=[MaxValueValidator(MAX_ACCOUNT_AGE_H)],
        help_text=_("Only accounts that are at least this old; 0: of any age."),
    )
    group = models.ForeignKey(
        Group,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        verbose_name=_("group"),
        help_text=_("Only accounts in this group; you choose its members on their pages."),
    )
    needs_code = models.BooleanField(
        _("invitation code"),
        default=False,
        db_default=False,
        help_text=_("Each voucher takes a code that has not been used yet."),
    )
    first_order_only = models.BooleanField(
        _("first order only"),
        default=False,
        db_default=False,
        help_text=_("Only buyers who hold no order of any sale, unpaid, paid or used."),
    )
    room_opened_ms = models.PositiveBigIntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text="When the waiting room was opened, in ms since 1970 by Redis; 0: it is closed.",
    )
    room_base = models.PositiveBigIntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text="The number in line that had been let in at room_since_ms.",
    )
    room_since_ms = models.PositiveBigIntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text="When people were last let in at another rate, in ms since 1970 by Redis.",
    )
    per_address = models.PositiveIntegerField(
        _("orders per address"),
        null=True,
        blank=True,
        help_text=_(
            "The most new orders from one network address in 1,000 seconds; 0: any number. "
            "Empty: the limit of the site."
        ),
    )
    mode = models.CharField(
        _("mode"),
        max_length=8,
        choices=SaleMode,
        default=SaleMode.FIRST_COME,
        db_default=SaleMode.FIRST_COME,
        help_text=_(
            "In a draw, buyers enter until the end, one entry each. Winners are then drawn at "
            "random. The mode is fixed once the sale has started."
        ),
    )
    draw_wait_s = models.PositiveIntegerField(
        _("waiting list after the draw, in seconds"),
        default=0,
        db_default=0,
        validators=[MaxValueValidator(MAX_DRAW_WAIT_S)],
        help_text=_(
            "How long after the end of a draw returned vouchers go to those who did not win, "
            "in drawn order, such as 3600. 0: nobody waits. It should be longer than the time "
            "to pay."
        ),
    )
    epoch = models.PositiveIntegerField(
        default=0, editable=False, help_text="How often this sale's ledger was built."
    )
    fence = models.PositiveBigIntegerField(
        default=0, editable=False, help_text="The highest fencing token that wrote to this sale."
    )
    sold_out_at = models.DateTimeField(
        null=True,
        editable=False,
        help_text="When the last unit went for the first time; more stock does not change it.",
    )
    batch = models.PositiveBigIntegerField(
        default=0, editable=False, help_text="The number of the last batch of orders written."
    )
    ledger_removed_at = models.DateTimeField(
        null=True, editable=False, help_text="When this sale's ledger left Redis; null: it has not."
    )
    ledger_back_at = models.DateTimeField(
        null=True, editable=False, help_text="When staff brought a removed ledger back."
    )
    identity = models.PositiveBigIntegerField(
        default=new_identity,
        db_default=0,  # for the release before, which knows no identity, during an update
        editable=False,
        help_text="Which sale this is: an id may be given again after a backup was restored.",
    )
    reminded_for = models.DateField(
        null=True, editable=False, help_text="The last day of which its buyers were reminded."
    )
    chain_head = models.CharField(
        max_length=64, blank=True, default="", db_default="", editable=False
    )
    chain_links = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    chain_entries = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    locked_at: dt.datetime
    """The database's time when ``lock_seckill_voucher`` read this row; no field."""

    is_marked: bool
    """Whether the database was then marked as a restored one; no field."""

    class Meta:
        verbose_name = _("sale")
        verbose_name_plural = _("sales")
        ordering = ("-begins_at", "-id")
        constraints = [
            models.CheckConstraint(
                name="sale_sold_within_stock", condition=Q(sold__gte=0, sold__lte=F("stock"))
            ),
            models.CheckConstraint(
                name="sale_stock_within_bounds", condition=Q(stock__gte=0, stock__lte=MAX_STOCK)
            ),
            models.CheckConstraint(
                name="sale_ends_after_it_begins",
                condition=Q(ends_at__gt=F("begins_at")),
                violation_error_message=_("The end must be after the start."),
            ),
            models.CheckConstraint(
                name="sale_limit_1_to_20", condition=Q(limit__gte=1, limit__lte=MAX_LIMIT)
            ),
            models.CheckConstraint(
                name="sale_draw_is_for_one_unit_without_a_room",
                condition=~Q(mode=SaleMode.DRAW) | Q(limit=1, room=RoomKind.OFF),
                violation_error_message=_("A draw has a limit of 1 per buyer and no waiting room."),
            ),
        ]
        indexes = [models.Index(fields=("begins_at",), name="sale_by_begins_at")]
        permissions = [
            ("run_seckillvoucher", _("Can run sales: pause, resume, extend, end, change stock")),
        ]

    def __str__(self) -> str:
        return f"{self.voucher} #{self.pk}"

    @property
    def extension_min(self) -> int:
        """The minutes by which the time to pay can be extended: at most as many as it has."""
        return min(10, self.pay_within_s // 60)

    @property
    def is_draw(self) -> bool:
        return self.mode == SaleMode.DRAW

    @property
    def gives_until(self) -> dt.datetime:
        """When units that come back are no longer given away: the end, or later after a draw."""
        wait_s = self.draw_wait_s if self.is_draw else 0
        return self.ends_at + dt.timedelta(seconds=wait_s)

    @property
    def closed_by_shop(self) -> bool:
        """Whether the shop lets nobody buy, at any time: the sale is paused or still a draft."""
        return self.paused or self.stage == SaleStage.DRAFT

    @classmethod
    def still_active(cls, now: dt.datetime) -> Q:
        """Return the condition for sales that may still change by themselves."""
        return Q(ends_at__gt=now - ACTIVE_AFTER_END)

    @classmethod
    def refunds_unused(cls, today: dt.date) -> Q:
        """Return the condition for sales whose unused vouchers go back: their last day is over."""
        is_past = Q(refund_unused=True, voucher__valid_until__lt=today)
        return is_past & ~Q(stage=SaleStage.REHEARSAL)

    def note_sold_out(self, at: dt.datetime) -> None:
        """Keep the first moment at which no unit is left; the caller saves the row."""
        if self.sold_out_at is None and 0 < self.stock <= self.sold:
            self.sold_out_at = at

    def state_at(self, now: dt.datetime) -> SaleState:
        """Return the state from the row alone, for when the ledger cannot be read."""
        window, sold_out = (self.begins_at, self.ends_at), self.sold >= self.stock
        return SaleState.at(now, window=window, closed=self.closed_by_shop, sold_out=sold_out)


class Draw(models.Model):
    """The seed and the result of a sale's draw (``docs/adr/0030``). No page of staff shows it.

    ``closed_at`` is when the list was closed, with the ``digest`` of its ``entries`` and the number
    of ``units`` to win. ``cutoff`` is the ticket of the last winner. ``finished_at`` is when every
    winner had an order. From then on the others get notices: those up to the entry ``told_to`` have
    one; null once all have.
    """

    seckill_voucher = models.OneToOneField(
        SeckillVoucher, on_delete=models.CASCADE, related_name="draw"
    )
    seed = models.CharField(max_length=64, default=new_seed)
    entries = models.PositiveIntegerField(null=True)
    units = models.PositiveIntegerField(null=True)
    digest = models.CharField(max_length=64, blank=True)
    cutoff = models.CharField(max_length=64, blank=True)
    closed_at = models.DateTimeField(null=True)
    drawn_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    told_to = models.BigIntegerField(null=True)

    class Meta:
        default_permissions = ()
        verbose_name = _("draw")
        verbose_name_plural = _("draws")

    def __str__(self) -> str:
        return str(self.seckill_voucher_id)

    @property
    def winners(self) -> int | None:
        """The number of entries that won; None before the draw."""
        return min(self.units or 0, self.entries or 0) if self.drawn_at else None

    @classmethod
    def of(cls, sale: SeckillVoucher) -> Draw:
        """Return the draw of this sale, made with its seed if it is new."""
        return cls.objects.get_or_create(seckill_voucher=sale)[0]


class ChainLink(models.Model):
    """A link in the chain of a sale: a batch of orders, or a ``mark`` (``vouchers/chain.py``).

    ``number`` counts the links of the sale from 1. ``last`` is the position of the last order so
    far; those of a batch follow the ``last`` of the link before.
    """

    seckill_voucher = models.ForeignKey(
        SeckillVoucher, on_delete=models.CASCADE, related_name="links"
    )
    number = models.PositiveIntegerField()
    last = models.PositiveIntegerField()
    mark = models.CharField(max_length=100, blank=True)
    head = models.CharField(max_length=64)

    class Meta:
        verbose_name = _("fingerprint")
        verbose_name_plural = _("fingerprints")
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                name="chain_one_link_per_number", fields=("seckill_voucher", "number")
            ),
        ]
        indexes = [models.Index(fields=("seckill_voucher", "last"), name="chain_by_sale_last")]

    def __str__(self) -> str:
        return f"{self.seckill_voucher_id}: {self.number}"


class AnswerCount(models.Model):
    """The number of order requests of a sale with this answer in the ``seconds`` from ``at`` on.

    The report needs single seconds from a minute before the start until ten minutes after it, where
    a sale is decided, and minutes for the rest. The start may be edited, so each row says which.
    """

    seckill_voucher = models.ForeignKey(
        SeckillVoucher, on_delete=models.CASCADE, related_name="answer_counts"
    )
    at = models.DateTimeField()
    answer = models.CharField(max_length=16)
    count = models.PositiveIntegerField()
    seconds = models.PositiveSmallIntegerField(default=1)

    class Meta:
        verbose_name = _("response count")
        verbose_name_plural = _("response counts")
        ordering = ("at",)
        constraints = [
            models.UniqueConstraint(
                name="answer_count_once", fields=("seckill_voucher", "at", "answer")
            ),
        ]
        indexes = [models.Index(fields=("at",), name="answer_count_by_at")]

    def __str__(self) -> str:
        return f"{self.seckill_voucher_id} {self.at} {self.answer}: {self.count}"
