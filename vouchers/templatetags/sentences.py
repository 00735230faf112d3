"""Every sentence that a page's script may show; the server sends codes only.

The same dictionaries render the first view of a page and go into it as JSON, so that the texts of
server and script cannot differ.
"""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _

STOCK = _("{remaining} of {total} left")
STOCK_UNKNOWN = _("{total} units in all")
DAYS = _("{days} d {clock}")

QUEUE = {
    "place": _("In the queue: number {place}"),
    "place_about": _("In the queue: number {place}, {about}"),
    "number": _("number {place}"),
    "number_about": _("number {place}, {about}"),
    "seconds": _("about {count} s"),
    "minutes": _("about {count} min"),
}
"""The queue position, and the remaining wait once the speed of the queue is known."""

WHY = {
    "arrived": _("Your request arrived at {arrived}. No unit was left by then."),
    "earlier": _(
        "Your request arrived at {arrived}. The last unit had gone at {gone} ({earlier} earlier)."
    ),
    "same": _("Your request arrived at {arrived}. The last unit went in the same millisecond."),
    "ms": _("{count} ms"),
    "s": _("{count} s"),
    "min": _("{count} min"),
    "h": _("{count} h"),
    "d": _("{count} d"),
}
"""The reason of a "sold out", by the times of request and last unit."""

PAY_END = {
    "300": _("5 minutes left to pay."),
    "60": _("1 minute left to pay."),
    "10": _("10 seconds left to pay."),
}

BADGES = {
    "open": _("On sale"),
    "scheduled": _("Coming soon"),
    "sold_out": _("Sold out"),
    "paused": _("Paused"),
    "ended": _("Ended"),
}

PURCHASE = {
    "button": {
        "sign_in": _("Sign in to buy"),
        "sign_in_open": _("Sign in to buy"),
        "scheduled": _("Not started yet"),
        "countdown": _("Starts in"),
        "open": _("Buy now"),
        "sending": _("Sending…"),
        "busy": _("Busy, trying again…"),
        "queued": _("In the queue"),
        "yours": _("It's yours!"),
        "sold_out": _("Sold out"),
        "already_ordered": _("You already have one"),
        "paused": _("Sale paused"),
        "ended": _("Sale ended"),
        "again": _("Try again"),
    },
    "status": {
        "sign_in": _("Sign in now, and you are ready at the start."),
        "sign_in_open": _("The sale is on: sign in to take part."),
        "scheduled": _("The button opens by itself at the start."),
        "open": _("The sale is on: one press is enough."),
        "sending": _("Your request is on its way."),
        "busy": _("Many people are here right now. Keep this page open, it goes on trying."),
        "queued": _("Your place is kept. This page says when your order is written."),
        "yours": _("A unit is reserved for you. It goes back if it is not paid in time."),
        "sold_out": _("All units are taken. One that comes back goes to the waiting list first."),
        "already_ordered": _("You have reached the limit for one buyer."),
        "paused": _("The sale is paused. The button opens by itself when it goes on."),
        "ended": _("This sale is over."),
        "again": _("Your request did not get through. Press again: it never orders twice."),
    },
    "order": {
        "pay": _("It's yours! Pay within"),
        "pay_any_time": _("It's yours! Pay now"),
        "pay_too": _("Pay for yours within"),
        "see": _("See your order"),
    },
    "holds": _("You have {holds} of the {limit} units that one buyer may have."),
    "barred": {
        "button": _("You have had one"),
        "status": _("You have had an order of this sale, which allows no second one."),
    },
    "note": {
        "not_started": _("A moment too early: the sale has not begun yet."),
        "bad_token": _("This page is out of date. Please reload it."),
        "asking": _("No answer yet. Finding out whether your request has arrived."),
        "unreachable": _("The shop cannot be reached. Press again: it never orders twice."),
        "overdue": _("The time to pay is over. The order ends, or a payment is on its way."),
        "over": _("Your order has ended. Its page says why."),
        "signed_out": _("You have been signed out. Sign in to see your order or to buy."),
        "failed": _("That did not work. Please reload the page and try again."),
    },
    "begin": {
        "300": _("5 minutes to the start."),
        "60": _("1 minute to the start."),
        "10": _("10 seconds to the start."),
    },
    "end": {
        "300": _("5 minutes to the end."),
        "60": _("1 minute to the end."),
        "10": _("10 seconds to the end."),
    },
    "pay_end": PAY_END,
    "clock": {"begin": _("Starts in"), "end": _("Ends in"), "days": DAYS},
    "stock": STOCK,
    "stock_unknown": STOCK_UNKNOWN,
    "queue": QUEUE,
    "why": WHY,
}

LIST = {
    "badge": BADGES,
    "clock": {"begin": _("Starts in"), "end": _("Ends in"), "days": DAYS},
}

RECEIPT = {
    "heading": {
        "queued": _("You are in the queue"),
        "unpaid": _("It's yours!"),
        "overdue": _("The time to pay is over"),
        "paid": _("Paid"),
        "used": _("Used"),
        "cancelled": _("Cancelled"),
        "expired": _("Expired"),
        "refunding": _("Refund on its way"),
        "refunded": _("Refunded"),
        "refused": _("No luck this time"),
    },
    "text": {
        "queued": _("Your place is kept and your order is being written. This takes a moment."),
        "unpaid": _("A unit is reserved for you. Once it is paid, your voucher code is here."),
        "overdue": _("The shop makes sure that no payment is on its way. Then the order ends."),
        "paid": _("The voucher is yours. Show this code when you use it."),
        "used": _("The voucher has been used. It cannot be used again."),
        "cancelled": _("This order was cancelled: nothing is to be paid, and its unit went back."),
        "expired": _("The time to pay ran out, and the unit went back."),
        "refunding": _(
            "The price is on its way back to you. The voucher code is not valid any more."
        ),
        "refunded": _("The price went back to you, and the unit went back."),
        "refused": _("The order could not be placed. You were not charged."),
    },
    "reason": {
        "already_ordered": _(
            "You had an order of this sale already, so this one was not written. "
            "You were not charged for it."
        ),
        "sold_out": _("The last unit went to somebody before you. You were not charged."),
        "inactive_buyer": _(
            "Your account is closed, so the order could not be placed. You were not charged."
        ),
        "failed": _("The order could not be written and was set aside. You were not charged."),
        "lost": _("The order was lost before it was written. You were not charged."),
        "paused": _("The sale is paused. You were not charged."),
        "ended": _("The sale ended before your order was written. You were not charged."),
    },
    "note": {
        "slow": _(
            "It takes longer than usual. Your place is kept: you may close this page and find "
            "the order later under My orders."
        ),
        "busy": _("The shop is busy. Your place is kept, and this page goes on asking."),
        "again": _("Asking for your order once more…"),
        "missing": _("The shop does not know this order. Please start again from the sale's page."),
        "away": _("The shop cannot be reached just now. This page goes on asking."),
    },
    "late": {
        "refunding": _("Your payment came too late for this order. The money goes back to you."),
        "refunded": _("Your payment came too late for this order. The money is back with you."),
    },
    "further": {
        "refunding": _("A payment too many came for this order. That money goes back to you."),
        "refunded": _("A payment too many came for this order. That money is back with you."),
    },
    "end": PAY_END,
    "clock": {"days": DAYS},
    "queue": QUEUE,
}

WAITING = {
    "heading": {
        "first": _("You are next in line"),
        "place": _("You are number {place} in line"),
        "over": _("The waiting is over"),
    },
    "text": {
        "first": _("All units are taken. The next one that comes back is yours."),
        "place": _("All units are taken. One that comes back goes to the first in line."),
        "over": _("You do not wait in this sale any more, and no unit came to you."),
    },
    "note": {"away": _("The shop cannot be reached just now. Your place is kept.")},
}

MAIL = {
    "unpaid": _("A unit is reserved for you. Pay for it on the page of your order."),
    "paid": _("Your payment has arrived. Show the code when you use the voucher."),
    "used": _("Your voucher has just been used. It cannot be used again."),
    "cancelled": _("Your order was cancelled: nothing is to be paid."),
    "expired": _("Your order was not paid in time, and its unit went back."),
    "refunding": _("The price of your order is on its way back to you. Its code is not valid now."),
    "refunded": _("The price of your order went back to you."),
    "refused": _("Your order could not be placed. You were not charged."),
}
"""The text of a mail for each status of an order."""

PAGES: dict[str, dict[str, Any]] = {
    "purchase": PURCHASE,
    "list": LIST,
    "receipt": RECEIPT,
    "waiting": WAITING,
    "mail": MAIL,
}
