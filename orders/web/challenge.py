"""The picture that a buyer without JavaScript answers, in the place of a browser's work.

Who cannot see it asks for a code instead. An answer holds for one session and sale, for a while:
the page may be loaded again.
"""

from captcha.fields import CaptchaField
from django import forms
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from accounts.codes import sent_code
from accounts.forms import ConfirmCodeForm
from orders.receipts.purchase_page import PurchaseOffer

ANSWERED_MS = 15 * 60_000
"""How long an answer holds."""

PURPOSE = "challenge"
"""What the code is for that is sent in the place of the picture."""


class ChallengeForm(forms.Form):
    """The letters of a picture."""

    use_required_attribute = False
    # The library's own translations would win over Django's.
    answer = CaptchaField(
        label=_("Letters in the picture"),
        error_messages={
            "required": _("This field is required."),
            "invalid": _("Those letters are not right. Try this new picture."),
        },
    )


def challenge_form(
    request: HttpRequest, offer: PurchaseOffer
) -> ChallengeForm | ConfirmCodeForm | None:
    """Return the question for a buyer who must answer one before they can buy, else None."""
    could_buy = offer.buyer is not None and offer.buyer.may_buy and not offer.is_over
    if not (offer.must_answer and could_buy) or offer.is_refused:
        return None
    data = request.POST if request.method == "POST" else None
    if code := sent_code(request, purpose=PURPOSE):
        return ConfirmCodeForm(data, code=code, account=request.user.pk, prefix="sent")
    return ChallengeForm(data)


def has_answered(request: HttpRequest, *, sale_id: int, now_ms: int) -> bool:
    """Return whether this session has answered the question of a sale a short while ago."""
    until_ms = request.session.get(_key(sale_id))
    return isinstance(until_ms, int) and now_ms < until_ms


def note_answer(request: HttpRequest, *, sale_id: int, now_ms: int) -> None:
    """Note in the session that the question of a sale was answered."""
    request.session[_key(sale_id)] = now_ms + ANSWERED_MS
    request.session.pop(f"{PURPOSE}_code", None)


def _key(sale_id: int) -> str:
    return f"answered-{sale_id}"
