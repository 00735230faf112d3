"""The steps by name: what each one is, and how a race opens a sale of it and buys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from django.utils.translation import gettext_lazy as _

from lab.steps import ours, v1, v2, v3, v4, v5, v5_stream, v6
from lab.steps.sales import clear_sale, make_buyers, open_sale, user_ids_of
from lab.steps.step import Buy, Step, Writer

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


def _of_the_lab(
    name: str,
    title: StrOrPromise,
    buy: Buy,
    open: Callable[[int], int] | None = None,
    writer: Callable[[str], Writer] | None = None,
) -> Step:
    """Describe a step that sells from the lab's own tables."""
    return Step(
        name=name,
        title=title,
        buy=buy,
        open=open or partial(open_sale, name),
        buyers=make_buyers,
        rows=user_ids_of,
        clear=clear_sale,
        writer=writer,
    )


_OURS = Step(
    name="ours",
    title=_("this shop"),
    buy=ours.buy,
    open=ours.open,
    buyers=ours.make_buyers,
    rows=ours.user_ids_of,
    clear=ours.clear,
)

_IN_ORDER = (
    _of_the_lab("v1", _("straight to the database, no guard"), v1.buy),
    _of_the_lab("v1-as-read", _("the stock must be as it was read"), v1.buy_if_as_read),
    _of_the_lab("v1-any-left", _("the stock must be above zero"), v1.buy_if_any_left),
    _of_the_lab("v1-for-update", _("the sale's row is locked"), v1.buy_locked),
    _of_the_lab("v2", _("one order per buyer, counted first"), v2.buy),
    _of_the_lab("v3", _("a lock in the process"), v3.buy),
    _of_the_lab("v3-inside", _("a process lock, released too early"), v3.buy_locked_inside),
    _of_the_lab(
        "v4", _("a script in Redis decides first"), v4.buy, partial(v4.open_in_redis, "v4")
    ),
    _of_the_lab(
        "v5",
        _("a queue in memory writes later"),
        v5.buy,
        partial(v4.open_in_redis, "v5"),
        v5.QueueWriter,
    ),
    _of_the_lab(
        "v5-stream",
        _("a stream in Redis keeps the queue"),
        v5_stream.buy,
        v5_stream.open,
        v5_stream.Reader,
    ),
    _of_the_lab("v6-setnx", _("a lock in Redis that never expires"), v6.buy_setnx),
    _of_the_lab("v6-expiring", _("a lock in Redis that expires"), v6.buy_expiring),
    _of_the_lab("v6-owned", _("a lock in Redis that knows its owner"), v6.buy_owned),
    _of_the_lab("v6-watchdog", _("a lock in Redis that is renewed"), v6.buy_watchdog),
    _OURS,
)

STEPS: dict[str, Step] = {step.name: step for step in _IN_ORDER}
"""All of them, in the order in which the story is told."""
