"""What a race finds in keys and receipts when a sale is over."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from lab.keys import LabKeys
from lab.steps.step import Step
from orders.fulfilment.reconcile import reconcile
from orders.models import OrderStatus
from orders.placing.tokens import PurchaseToken, issue_tokens
from orders.receipts.service import NoReceipt, find_receipt
from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.models import SeckillVoucher

WORD_S = 30.0
"""So long a receipt may not be readable, because the ledger is being built anew."""

GLANCE_S = 0.05
FOR_EVER = -1
KEY_OF_BUYER = re.compile(r":lock:(\d+)$")


def held_buyers(sale_id: int) -> set[int]:
    """Return the user ids that keys of a lab's sale keep from buying for ever.

    These are whoever Redis takes for a buyer, and whose lock has no end.
    """
    client, keys = ledger_connection(), LabKeys(sale_id)
    found = {it: KEY_OF_BUYER.search(it) for it in client.scan_iter(keys.all_of_them, count=1_000)}
    endless = [it for name, it in found.items() if it and client.ttl(name) == FOR_EVER]
    return {*map(int, client.smembers(keys.buyers)), *(int(it[1]) for it in endless)}


# --- Ours -----------------------------------------------------------------------------------------


def is_ours(step: Step) -> bool:
    """Say whether a step is the shop itself, with its ledger, its tokens and its receipts."""
    return step.name == "ours"


def tokens_for(sale_id: int, user_ids: Iterable[int]) -> list[PurchaseToken]:
    """Return a new token for each of them, as the page has when it is opened."""
    sale = SeckillVoucher.objects.get(pk=sale_id)
    return issue_tokens(sale=sale, user_ids=list(user_ids))


def is_settled(sale_id: int) -> bool:
    """Say whether no promise is open and ledger and database agree."""
    try:
        found = reconcile(sale_id=sale_id)
    except LedgerUnavailable:
        return False
    return found.remaining is not None and not found.pending and not found.difference


def refused_with_word(tokens: Iterable[PurchaseToken]) -> set[int]:
    """Return the user ids of those whose receipt says that their order is refused, and why."""
    until = time.monotonic() + WORD_S
    return {token.user_id for token in tokens if _says_why(token, until)}


def _says_why(token: PurchaseToken, until: float) -> bool:
    while True:
        try:
            receipt = find_receipt(
                sale_id=token.sale_id,
                order_id=token.order_id,
                user_id=token.user_id,
                has_token=True,
            )
        except NoReceipt:
            return False
        except LedgerUnavailable:
            if time.monotonic() > until:
                return False
            time.sleep(GLANCE_S)
        else:
            return receipt.status == OrderStatus.REFUSED and bool(receipt.reason)
