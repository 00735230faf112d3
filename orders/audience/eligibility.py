"""Whether a buyer may have a purchase token: the rules of a sale, and the caps on every account.

The same for ``me/``, ``token/`` and the page without JavaScript, at the front door and in Django.
The buyer of a sale without rules costs no SQL. A verdict on another is kept for a moment; a changed
rule makes it void at once. Tokens issued before a rule count: what two of them could both pass is
decided again in ``rule_uses.py``.
"""

from time import monotonic

from orders.audience.caps import capped_accounts, refresh_capped_accounts, unpaid_verdict
from orders.audience.checks import CHECKS, old_from_ms
from orders.audience.refusal_log import Refused, note_refusal
from orders.audience.verdicts import ELIGIBLE, Verdict
from seckill_site.process_memory import Memory
from vouchers.catalogue.audience import ACCOUNT_AGE, CODE, EVERYBODY, SALE_RULES, Audience

KNOWN_S = {True: 10.0, False: 1.0}
"""How long a process caches a verdict, in seconds. Short for a refused buyer, who may do something
about it, and for one who may enter another code."""

_known = Memory[tuple[int, int], tuple[Audience, Verdict]](most=50_000)


def recall_verdict(*, sale_id: int, user_id: int, audience: Audience) -> Verdict | None:
    """Return the verdict on a buyer as this process knows it; None if it has to ask."""
    if unpaid := capped_accounts.value.get(user_id):
        return _noted(unpaid_verdict(unpaid), sale_id, user_id)
    if audience == EVERYBODY:
        return ELIGIBLE
    judged_by, verdict = _known.recall((sale_id, user_id)) or (None, None)
    return _noted(verdict, sale_id, user_id) if verdict and judged_by == audience else None


def judge_buyer(*, sale_id: int, user_id: int, audience: Audience) -> Verdict:
    """Return the verdict on a buyer, with SQL where this process does not know."""
    if capped_accounts.claim():
        refresh_capped_accounts()
    verdict = recall_verdict(sale_id=sale_id, user_id=user_id, audience=audience)
    return verdict or _noted(_learn(sale_id, user_id, audience), sale_id, user_id)


def forget_verdict(*, sale_id: int, user_id: int) -> None:
    """Ask again: the buyer has done something about it."""
    _known.drop((sale_id, user_id))


def _noted(verdict: Verdict, sale_id: int, user_id: int) -> Verdict:
    if verdict.rule:
        note_refusal(Refused(sale_id, verdict.rule, user_id))
    return verdict


def _learn(sale_id: int, user_id: int, audience: Audience) -> Verdict:
    started = monotonic()
    verdict = _verdict(sale_id, user_id, audience)
    until = started + KNOWN_S[verdict == ELIGIBLE]
    _known.keep((sale_id, user_id), (audience, verdict), until=until)
    return verdict


def _verdict(sale_id: int, user_id: int, audience: Audience) -> Verdict:
    """Return the first rule that refuses a buyer."""
    codes = 0
    for rule in SALE_RULES:
        if not (value := rule.value(audience)):
            continue
        passes = CHECKS[rule.name](sale_id, user_id, value)
        if not passes:
            from_ms = old_from_ms(user_id, value) if rule is ACCOUNT_AGE else None
            return Verdict(rule.name, value if rule.bounds else 0, from_ms)
        if rule is CODE:
            codes = passes
    return Verdict(codes=codes)
