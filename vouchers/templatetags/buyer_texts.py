"""Texts of the buyer pages, by the codes of the server (messages for programs: web/refusals.py).

The same dictionaries render the first view of a page and go into it as JSON, so that the texts of
server and script cannot differ.
"""

from typing import Any

from django.utils.translation import gettext_lazy as _

from vouchers.catalogue.audience import RULES

STOCK = _("{remaining} of {total} left")
STOCK_GONE = _("{gone} % gone · {remaining} of {total} left")
STOCK_UNKNOWN = _("{total} vouchers in total")
DAYS = _("{days} d {clock}")

TERMS = {
    "at": _("at {place}"),
    "until": _("valid until {day}"),
    "no_end": _("no expiry date"),
    "refundable": _("refundable until used"),
    "not_refundable": _("not refundable"),
    "about": _("{price} instead of {face_value}. Starts {start} ({zone})."),
}
"""The terms of a voucher, in one line."""

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
    "arrived": _("Your request arrived at {arrived}. No vouchers were left by then."),
    "earlier": _(
        "Your request arrived at {arrived}. The last voucher went at {gone}, {earlier} earlier."
    ),
    "same": _("Your request arrived at {arrived}. The last voucher went in the same millisecond."),
    "ms": _("{count} ms"),
    "s": _("{count} s"),
    "min": _("{count} min"),
    "h": _("{count} h"),
    "d": _("{count} d"),
}
"""The reason of a "sold out", by the times of request and last unit."""

STOCK_TEXTS = {"stock": STOCK, "stock_gone": STOCK_GONE, "stock_unknown": STOCK_UNKNOWN}

CONNECTION = {
    "connection": {
        "offline": _("You are offline. This page continues as soon as you are connected again."),
        "busy": _("The shop is very busy and did not answer. This page keeps asking."),
        "unreachable": _("The shop cannot be reached right now. This page keeps trying."),
        "age": _("Last updated {age} ago."),
    },
    "age": {"s": WHY["s"], "min": WHY["min"], "h": WHY["h"]},
}
"""Why the shop does not answer, and how old the figures of the page are."""

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

VISITOR_STATES = {"scheduled": "sign_in", "open": "sign_in_open"}
"""The button's state for a visitor, by the sale's state; any other is shown as it is."""

PURCHASE: dict[str, Any] = {
    "visitor_states": VISITOR_STATES,
    "button": {
        "sign_in": _("Sign in to buy"),
        "sign_in_open": _("Sign in to buy"),
        "scheduled": _("Not started yet"),
        "countdown": _("Starts in"),
        "open": _("Buy now"),
        "sending": _("Sending…"),
        "busy": _("Busy, trying again…"),
        "offline": _("Offline, waiting…"),
        "unreachable": _("No answer, retrying…"),
        "queued": _("In the queue"),
        "entered": _("You are in the draw"),
        "yours": _("It's yours!"),
        "sold_out": _("Sold out"),
        "already_ordered": _("You already have one"),
        "barred": _("You already had one"),
        "paused": _("Sale paused"),
        "ended": _("Sale ended"),
        "not_eligible": _("Not open to you yet"),
    },
    "rule_button": {it.name: it.button for it in RULES.values() if it.button},
    "rule": {it.name: it.told for it in RULES.values() if it.told},
    "status": {
        "sign_in": _("Sign in now to be ready when the sale starts."),
        "sign_in_open": _("The sale is on. Sign in to take part."),
        "scheduled": _("The button becomes active when the sale starts."),
        "open": _("It's live! Tap once."),
        "sending": _("Your request is on its way."),
        "busy": _("The shop is very busy right now. Keep this page open; it keeps trying."),
        "offline": _(
            "You are offline. Keep this page open; it sends your request once you are connected."
        ),
        "unreachable": _(
            "The shop cannot be reached. Keep this page open; it keeps trying, and never orders "
            "twice."
        ),
        "queued": _("Your place is reserved. This page shows your order as soon as it is ready."),
        "entered": _("Your receipt shows the result once it is drawn."),
        "yours": _("We're holding one for you. Pay before the timer ends to get your code."),
        "sold_out": _("Sold out. If one frees up, the waiting list gets it first."),
        "already_ordered": _("You have reached the limit for one buyer."),
        "barred": _("You already had an order in this sale, which allows only one."),
        "paused": _("The sale is paused. The button becomes active again when it resumes."),
        "paused_sold_out": _(
            "The sale is paused, and sold out for now. If one frees up, the waiting list gets it "
            "first."
        ),
        "ended": _("This sale has ended."),
        "not_eligible": _("A rule of this sale keeps you from buying. Tap to check again."),
    },
    "order": {
        "pay": _("It's yours! Pay within"),
        "pay_any_time": _("It's yours! Pay now"),
        "pay_too": _("Pay for yours within"),
        "see": _("See your order"),
    },
    "holds": _("You have {holds} of the {limit} vouchers allowed per buyer."),
    "note": {
        "not_started": _("A moment too early: the sale has not started yet."),
        "bad_token": _("This page is out of date. Reload it and try again."),
        "rate_limited": _(
            "Too many orders came from your network or account. Try again in a few minutes."
        ),
        "overdue": _(
            "The time to pay has run out. The order will close unless a payment is on its way."
        ),
        "over": _("Your order is closed. Its page says why."),
        "signed_out": _("You have been signed out. Sign in to see your order or to buy."),
        "failed": _("That did not work. Reload the page and try again."),
    },
    "begin": {
        "300": _("The sale starts in 5 minutes."),
        "60": _("The sale starts in 1 minute."),
        "10": _("The sale starts in 10 seconds."),
    },
    "end": {
        "300": _("The sale ends in 5 minutes."),
        "60": _("The sale ends in 1 minute."),
        "10": _("The sale ends in 10 seconds."),
    },
    "pay_end": PAY_END,
    "clock": {"begin": _("Starts in"), "end": _("Ends in"), "days": DAYS},
    **STOCK_TEXTS,
    **CONNECTION,
    "queue": QUEUE,
    "why": WHY,
}

PURCHASE_DRAW = {
    **PURCHASE,
    "button": {
        **PURCHASE["button"],
        "sign_in": _("Sign in to enter the draw"),
        "sign_in_open": _("Sign in to enter the draw"),
        "open": _("Enter the draw"),
        "already_ordered": _("You are in the draw"),
        "ended": _("Entries closed"),
    },
    "status": {
        **PURCHASE["status"],
        "sign_in": _("Sign in now to be ready when entries open."),
        "sign_in_open": _("The draw is open. Sign in to enter."),
        "scheduled": _("The button becomes active when entries open."),
        "open": _(
            "One entry per account. It does not matter when you enter: winners are drawn at random."
        ),
        "already_ordered": _("You have entered already. One entry per account."),
        "paused": _("Entries are paused. The button becomes active again when they resume."),
        "ended": _("This draw takes no more entries."),
    },
    "order": {**PURCHASE["order"], "see": _("See your entry")},
    "begin": {
        "300": _("Entries open in 5 minutes."),
        "60": _("Entries open in 1 minute."),
        "10": _("Entries open in 10 seconds."),
    },
    "end": {
        "300": _("Entries close in 5 minutes."),
        "60": _("Entries close in 1 minute."),
        "10": _("Entries close in 10 seconds."),
    },
    "clock": {"begin": _("Entries open in"), "end": _("Entries close in"), "days": DAYS},
    **dict.fromkeys(STOCK_TEXTS, _("{total} vouchers to win")),
}
"""The sentences of the purchase page of a draw."""

WITHOUT_SCRIPT: dict[str, Any] = {
    "status": {
        "scheduled": _("Reload this page when the sale has started; then you can buy."),
        "starts_soon": _("This page reloads by itself when the sale starts; then you can buy."),
        "closed": _("You cannot buy right now. Reload this page in a moment."),
        "challenge": _("Type the letters first; then you can buy."),
        "queued": _("Your place is reserved. Your order's page shows it as soon as it is ready."),
        "yours": _("We're holding one for you. Pay in time to get your code."),
        "overdue": PURCHASE["note"]["overdue"],
        "paused": _("The sale is paused. Reload this page to see if it has resumed."),
        "waits": _("Sold out. You are on the waiting list."),
    },
    "rule": {it.name: it.without_script for it in RULES.values() if it.without_script},
}
"""What a page without JavaScript says instead: nothing on it changes by itself."""


def _without_script(page: dict[str, Any]) -> dict[str, Any]:
    return page | {key: page[key] | WITHOUT_SCRIPT[key] for key in WITHOUT_SCRIPT}


DRAW = {
    "state": {"closed": _("The list is closed. It will be drawn in a moment.")},
    "checking": _("Checking: {count} of {total}"),
    "result": {
        "right": _("Correct: the seed is the promised one, and the order follows from it."),
        "no_seed": _("The list has this digest. The seed is not published yet."),
        "list": _("Wrong: the list does not have this digest."),
        "seed": _("Wrong: the seed is not the promised one."),
        "order": _("Wrong: the order does not follow from seed and list."),
        "other": _("The record does not belong to this page. Reload the page and try again."),
        "failed": _("The record could not be loaded or read. Try again."),
        "no_crypto": _(
            "This browser cannot compute SHA-256 here. Download the record to check it yourself."
        ),
    },
    "found": {
        "absent": _("This number is not in the list."),
        "listed": _("This entry is in the list."),
        "won": _("This entry was drawn as number {place} and won."),
        "not_won": _("This entry was drawn as number {place} and did not win."),
    },
    "how": {
        "seed": _(
            "A random seed was fixed when the sale was created. Its SHA-256, the promise, is shown "
            "from the start. The seed is published after the draw."
        ),
        "list": _(
            "When entries close, the list of entry numbers is fixed. Its SHA-256 is that of the "
            "numbers in rising order, one a line."
        ),
        "order": _(
            "Each entry has a ticket: the SHA-256 of seed, digest of the list and entry number, "
            "joined by colons. The smallest tickets win."
        ),
        "check": _(
            "So anyone can compute the result: in this browser, or from the record with sha256sum "
            "or any other tool."
        ),
    },
    "trust": {
        "seed": _("That the shop showed the seed to no one before entries closed."),
        "accounts": _(
            "That entries are those of different people. An account has one entry; a draw cannot "
            "tell who owns an account."
        ),
    },
}

LIST = {
    "badge": BADGES,
    "clock": {"begin": _("Starts in"), "end": _("Ends in"), "days": DAYS},
    **STOCK_TEXTS,
    **CONNECTION,
}

ORDER_STATUS = {
    "unpaid": _("Waiting for your payment"),
    "paid": _("Ready to use"),
    "used": _("Used"),
    "cancelled": _("Cancelled"),
    "expired": _("Not paid in time"),
    "refunding": _("Refund on its way"),
    "refunded": _("Refunded"),
    "refused": _("No luck this time"),
}
"""The state of an order in a buyer's words, for a list."""

RECEIPT = {
    "heading": {
        "entered": _("You are in the draw"),
        "waiting": _("You are on the waiting list"),
        "queued": _("You are in the queue"),
        "unpaid": _("It's yours!"),
        "confirming": _("Paid, confirming…"),
        "silent": _("Paid, confirming…"),
        "unconfirmed": _("Payment not confirmed yet"),
        "not_paid": _("Not paid yet"),
        "overdue": _("The time to pay has run out"),
        "paid": _("Paid"),
        "used": _("Used"),
        "cancelled": _("Cancelled"),
        "expired": _("Expired"),
        "refunding": _("Refund on its way"),
        "refunded": _("Refunded"),
        "refused": _("No luck this time"),
    },
    "text": {
        "entered": _(
            "Your entry counts. This page shows the result when entries have closed and are drawn."
        ),
        "waiting": _(
            "Your entry did not win. Vouchers that come back go to those who wait, "
            "in the order drawn."
        ),
        "queued": _("Your place is reserved. We are creating your order, which takes a moment."),
        "unpaid": _("We're holding one for you. Pay before the timer ends to get your code."),
        "confirming": _("We are asking the payment provider. Your code appears here in a moment."),
        "silent": _(
            "The payment provider is not answering. We keep asking. If you paid, your code "
            "appears here."
        ),
        "unconfirmed": _(
            "The payment provider has not answered, and we keep asking. If you paid, your code "
            "appears here. If you pay again, the extra payment is refunded automatically."
        ),
        "not_paid": _("We received no payment. Pay before the timer ends to get your code."),
        "overdue": _(
            "We are checking that no payment is on its way. Then the order will be closed."
        ),
        "paid": _("The voucher is yours. Show this code when you use it."),
        "used": _("The voucher has been used. It cannot be used again."),
        "cancelled": _(
            "This order was cancelled. There is nothing to pay, and the voucher was released."
        ),
        "expired": _("The time to pay ran out, and the voucher was released."),
        "refunding": _("Your refund is on its way. The voucher code is no longer valid."),
        "refunded": _("You have been refunded, and the voucher was released."),
        "refused": _("The order could not be placed. You were not charged."),
    },
    "reason": {
        "already_ordered": _(
            "You already had an order in this sale, so this one was not placed. You "
            "were not charged for it."
        ),
        "sold_out": _("The last voucher went to someone ahead of you. You were not charged."),
        "inactive_buyer": _(
            "Your account is closed, so the order could not be placed. You were not charged."
        ),
        "code_used": _(
            "Your invitation code was used for another order of yours. You were not charged."
        ),
        "not_first_order": _(
            "This sale is only for a first order, and you have another. You were not charged."
        ),
        "failed": _("A technical problem kept us from placing your order. You were not charged."),
        "lost": _("Your order was lost before it could be placed. You were not charged."),
        "paused": _("The sale is paused. You were not charged."),
        "ended": _("The sale ended before your order was placed. You were not charged."),
        "withdrawn": _("You have withdrawn your entry. You were not charged."),
        "not_drawn": _("Your entry was not drawn. You were not charged."),
    },
    "note": {
        "slow": _(
            "This is taking longer than usual. Your place is reserved. You can close "
            "this page and find your order later under My orders."
        ),
        "busy": _("The shop is busy. Your place is reserved, and this page keeps checking."),
        "again": _("Sending your order again…"),
        "missing": _("We couldn't find that order. Start again from the sale page."),
        "away": _("The shop cannot be reached right now. This page keeps trying."),
    },
    "late": {
        "refunding": _("Your payment arrived too late for this order. It is being refunded."),
        "refunded": _("Your payment arrived too late for this order. It has been refunded."),
    },
    "ended_payment": {
        "open": _("Do not pay for this order any more. If you do, your money is refunded."),
        "confirming": _("We are asking the payment provider. If you paid, you get a refund."),
        "silent": _(
            "The payment provider is not answering. We keep asking. If you paid, you get a refund."
        ),
        "unconfirmed": _(
            "The payment provider is not answering. We keep asking. If you paid, you get a refund."
        ),
    },
    "further": {
        "refunding": _(
            "You paid more than once for this order. The extra payment is being refunded."
        ),
        "refunded": _(
            "You paid more than once for this order. The extra payment has been refunded."
        ),
    },
    "end": PAY_END,
    "clock": {"days": DAYS},
    "queue": QUEUE,
}

WAITING = {
    "heading": {
        "first": _("You are next in line"),
        "place": _("You are number {place} in line"),
        "over": _("The waiting list is closed"),
    },
    "text": {
        "first": _("Sold out. If one frees up, it is yours."),
        "place": _("Sold out. If one frees up, the first in line gets it."),
        "over": _(
            "You are no longer on the waiting list for this sale, and no voucher became "
            "available for you."
        ),
    },
    "note": {
        "offline": _("You are offline. You keep your place."),
        "busy": _("The shop is very busy right now. You keep your place."),
        "unreachable": _("The shop cannot be reached right now. You keep your place."),
    },
}

ROOM = {
    "heading": {
        "waiting": _("You are number {position} in line"),
        "drawn_later": _("You are in the waiting room"),
        "in": _("It is your turn"),
        "expired": _("Your turn has passed"),
        "sign_in": _("Sign in to join the line"),
        "asking": _("Finding your place in line…"),
    },
    "text": {
        "waiting": _("This page takes you to the sale when it is your turn."),
        "drawn_later": _(
            "When the sale starts, everyone here gets a place at random. Coming early is no "
            "advantage."
        ),
        "in": _("You can buy now, at any time until the sale ends."),
        "expired": _(
            "You did not come within five minutes of your turn. "
            "You can join again at the end of the line."
        ),
        "sign_in": _("Your place in line is tied to your account."),
        "asking": "",
    },
    "wait": {
        "soon": _("Only a few seconds to go"),
        "seconds": _("About {count} s to go"),
        "minutes": _("About {count} min to go"),
        "hours": _("More than {count} h to go"),
    },
    "sale": {
        "scheduled": _("The sale has not started yet."),
        "paused": _("The sale is paused, so nobody is let in. You keep your place."),
        "sold_out": _("Sold out for now. When it is your turn, you can join the waiting list."),
        "ended": _("The sale has ended."),
    },
    "people": _("People in line: {count}"),
    "note": {
        "offline": _(
            "You are offline. You keep your place. This page continues once you are back."
        ),
        "busy": _(
            "The shop is very busy right now. You keep your place, and this page keeps trying."
        ),
        "unreachable": _(
            "The shop cannot be reached right now. You keep your place, and this page keeps trying."
        ),
    },
}

MAIL = {
    "unpaid": _("We're holding one for you. Pay for it on your order page."),
    "paid": _("We have received your payment. Show the code when you use the voucher."),
    "used": _("Your voucher has just been used. It cannot be used again."),
    "cancelled": _("Your order was cancelled. There is nothing to pay."),
    "expired": _("Your order was not paid in time, so the voucher was released."),
    "refunding": _("Your refund is on its way. The voucher code is no longer valid."),
    "refunded": _("Your order has been refunded."),
    "refused": _("Your order could not be placed. You were not charged."),
}
"""The text of a mail for each status of an order."""

REDEEM = {
    "scan": _("Scan with the camera"),
    "stop": _("Stop the camera"),
    "note": {
        "asking": _("Allow the camera if your browser asks."),
        "looking": _("Hold the voucher's QR code in front of the camera."),
        "foreign": _("This QR code is not a voucher's. Hold the voucher's code in front of it."),
        "found": _("Code read. Checking…"),
        "nothing": _("No code was read. Scan again, or type the code."),
        "no_camera": _("This device has no camera that the browser can use. Type the code."),
        "denied": _(
            "The browser does not allow the camera here. Allow it for this site in the browser's "
            "settings, or type the code."
        ),
        "in_use": _(
            "The camera does not respond. Another program may be using it. Close that one and "
            "scan again, or type the code."
        ),
        "insecure": _("Browsers only open the camera over https. Type the code."),
        "failed": _("The camera could not be started. Scan again, or type the code."),
    },
}
"""The camera at the counter, for staff."""

PAGES: dict[str, dict[str, Any]] = {
    "purchase": PURCHASE,
    "purchase_draw": PURCHASE_DRAW,
    "purchase_form": _without_script(PURCHASE),
    "purchase_form_draw": _without_script(PURCHASE_DRAW),
    "draw": DRAW,
    "list": LIST,
    "order_status": ORDER_STATUS,
    "receipt": RECEIPT,
    "waiting": WAITING,
    "room": ROOM,
    "redeem": REDEEM,
    "mail": MAIL,
}
