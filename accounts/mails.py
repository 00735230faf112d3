"""Mails about accounts: in their reader's language, and to confirmed addresses only."""

import logging
import smtplib
from collections.abc import Callable

from allauth.account.models import EmailAddress
from django.conf import settings
from django.core.mail import EmailMessage
from django.utils import translation

from accounts.contacts import confirmed_contact
from seckill_site.metrics import counted
from seckill_site.redis.breaker import Breaker

logger = logging.getLogger(__name__)

CONFIRMATIONS = frozenset(
    {"account/email/email_confirmation", "account/email/email_confirmation_signup"}
)
SIGN_UP_CODE = "account/email/login_code"


class MailNotSent(Exception):
    """The mail server rejects this mail, or accepts no mail at the moment."""


PAUSE_S = 10
"""How long nobody waits for a mail server that was away."""

breaker = Breaker(
    MailNotSent, server="mail", pause_s=PAUSE_S, longest_attempt_s=2 * settings.EMAIL_TIMEOUT
)

REFUSALS = (
    smtplib.SMTPRecipientsRefused,
    smtplib.SMTPDataError,
    smtplib.SMTPNotSupportedError,
    ValueError,  # an address that no header can hold
)
"""Errors of one mail, which say nothing of the server: whoever enters an address can cause them."""


def may_be_sent(template: str, email: str) -> bool:
    """Return whether this address may get this mail; an unconfirmed one gets its confirmation.

    The code of a new account without a password confirms its address, so it is one.
    """
    if (
        template in CONFIRMATIONS
        or EmailAddress.objects.filter(email=email, verified=True).exists()
    ):
        return True
    owners = EmailAddress.objects.filter(email=email, user__last_login=None).select_related("user")
    return template == SIGN_UP_CODE and any(not it.user.has_usable_password() for it in owners)


def has_mail_server() -> bool:
    """Return whether mails leave this machine, instead of being printed."""
    kind = settings.EMAIL_BACKEND.removeprefix("django.core.mail.backends.")
    return not kind.startswith(("console.", "dummy.", "filebased."))


def send_mail(email: str, render: Callable[[], EmailMessage]) -> None:
    """Send what is rendered in the language of this address's owner.

    :raises MailNotSent: the server does not accept it.
    """
    refusal: Exception | None = None
    owner = EmailAddress.objects.filter(email=email, verified=True).select_related("user").first()
    language = confirmed_contact(owner.user).language if owner else translation.get_language()
    with translation.override(language or settings.LANGUAGE_CODE):
        mail = render()
    try:
        with breaker.attempt():
            try:
                with counted("messages", "mail"):
                    mail.send()
            except REFUSALS as error:
                refusal = error
    except (OSError, MailNotSent) as error:
        refusal = error
    if refusal:
        logger.warning("a mail about an account was not sent: %r", refusal)
        raise MailNotSent from refusal
