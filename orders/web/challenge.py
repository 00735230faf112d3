"""The picture that a buyer without JavaScript answers, in the place of a browser's work.

Who cannot see it asks for a code instead. An answer holds for one session and sale, for a while:
the page may be loaded again.
"""

from string import digits
from unicodedata import normalize

from allauth.account.adapter import get_adapter
from allauth.core import ratelimit
from captcha.fields import CaptchaField
from django import forms
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.crypto import constant_time_compare, get_random_string
from django.utils.translation import gettext_lazy as _

from accounts.contacts import confirmed_contact
from orders.receipts.purchase_page import PurchaseOffer

ANSWERED_MS = 15 * 60_000
"""How long an answer holds."""

SENT, SENT_FOR_MS, MOST_TRIES = "challenge_code", 10 * 60_000, 5
"""A code that was sent, how long it can be typed, and how often."""


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


class SentCodeForm(forms.Form):
    """The code that was sent to a buyer."""

    use_required_attribute = False
    sent_code = forms.CharField(
        label=_("Six-digit code"),
        widget=forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "one-time-code"}),
    )
    sent = ""

    def clean_sent_code(self) -> None:
        typed = normalize("NFKC", self.cleaned_data["sent_code"])
        if not constant_time_compare(typed, self.sent):
            raise ValidationError(_("This code is not right."))


def send_code(request: HttpRequest, *, now_ms: int) -> None:
    """Send a code in the place of the picture, if the account has a confirmed contact.

    :raises RateLimited: this is one too many.
    """
    assert isinstance(request.user, User)
    contact, adapter = confirmed_contact(request.user), get_adapter(request)
    code = get_random_string(6, digits)
    if contact.email:
        ratelimit.consume(request, action="code_of_client", key=contact.email, raise_exception=True)
        adapter.send_mail("account/email/challenge_code", contact.email, {"code": code})
    elif contact.phone:
        adapter.send_verification_code_sms(request.user, contact.phone, code)
    else:
        return
    request.session[SENT] = (code, now_ms + SENT_FOR_MS, MOST_TRIES)


def challenge_form(
    request: HttpRequest, offer: PurchaseOffer, *, now_ms: int
) -> ChallengeForm | SentCodeForm | None:
    """Return the question for a buyer who must answer one before they can buy, else None."""
    buyer = offer.buyer
    if (
        not offer.must_answer
        or buyer is None
        or not buyer.may_buy
        or offer.is_over
        or offer.is_refused
    ):
        return None
    data = request.POST if request.method == "POST" else None
    code, until_ms, tries = request.session.get(SENT, ("", 0, 0))
    if now_ms >= until_ms or tries == 0:
        return ChallengeForm(data)
    if data:
        request.session[SENT] = (code, until_ms, tries - 1)
    form = SentCodeForm(data)
    form.sent = code
    return form


def has_answered(request: HttpRequest, *, sale_id: int, now_ms: int) -> bool:
    """Return whether this session has answered the question of a sale a short while ago."""
    until_ms = request.session.get(_key(sale_id))
    return isinstance(until_ms, int) and now_ms < until_ms


def note_answer(request: HttpRequest, *, sale_id: int, now_ms: int) -> None:
    """Note in the session that the question of a sale was answered."""
    request.session[_key(sale_id)] = now_ms + ANSWERED_MS
    request.session.pop(SENT, None)


def _key(sale_id: int) -> str:
    return f"answered-{sale_id}"
