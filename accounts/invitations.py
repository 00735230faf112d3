"""Invitations of staff: sent by mail, accepted once by whoever the mail reached."""

import datetime as dt
from collections.abc import Callable

from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.core import signing
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Lower
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.translation import gettext

from accounts.mails import MailNotSent, send_mail
from accounts.models import Invitation
from seckill_site.clocks.database import database_now
from seckill_site.clocks.steps import earlier_of_both
from seckill_site.web.responses import absolute_url

VALID_FOR = dt.timedelta(days=3)
_SALT = "staff invitation"


class InvitationInvalid(Exception):
    """The invitation has expired, was withdrawn or was accepted already, or there never was one."""


def send_invitation(
    invitation: Invitation, *, invited_by: User, on_failure: Callable[[], None]
) -> None:
    """Save an invitation, and mail its link after the commit; if that fails, say so."""
    invitation.invited_by = invited_by
    invitation.save()

    def mail() -> None:
        try:
            _mail_link(invitation)
        except MailNotSent:
            on_failure()

    transaction.on_commit(mail)


def _mail_link(invitation: Invitation) -> None:
    token = signing.dumps(invitation.pk, salt=_SALT)
    url = absolute_url(reverse("staff-invitation", args=[token]))

    def render() -> EmailMessage:
        role = gettext(invitation.role.name)
        context = {"role": role, "url": url, "days": VALID_FOR.days}
        body = render_to_string("account/email/staff_invitation.txt", context)
        return EmailMessage(gettext("You are invited to the staff"), body, to=[invitation.email])

    send_mail(invitation.email, render)


def invitations_of(user: User) -> QuerySet[Invitation]:
    """Return the invitations that an account accepted, or that were sent to its addresses."""
    emails = EmailAddress.objects.filter(user=user, verified=True).values_list("email", flat=True)
    of_user = Q(accepted_by=user) | Q(lower_email__in=list(emails))
    return Invitation.objects.annotate(lower_email=Lower("email")).filter(of_user)


def open_invitations() -> QuerySet[Invitation]:
    """Return the invitations that can still be accepted, the latest first."""
    since = earlier_of_both(database_now()) - VALID_FOR
    pending = Invitation.objects.filter(accepted_at=None, invited_at__gt=since)
    return pending.select_related("role", "invited_by").order_by("-pk")


def find_invitation(token: str) -> Invitation:
    """Return the invitation of a link.

    :raises InvitationInvalid: the link is of no use.
    """
    try:
        pk = signing.loads(token, salt=_SALT)
    except signing.BadSignature as error:
        raise InvitationInvalid from error
    invitation = open_invitations().filter(pk=pk).first()
    if invitation is None:
        raise InvitationInvalid
    return invitation


def accept_invitation(*, token: str, user: User) -> None:
    """Make this account one of staff, with the role; the address counts as confirmed.

    :raises InvitationInvalid: the link is of no use.
    """
    invitation = find_invitation(token)
    now = database_now()
    with transaction.atomic():
        taken = Invitation.objects.filter(pk=invitation.pk, accepted_at=None)
        if not taken.update(accepted_at=now, accepted_by=user):
            raise InvitationInvalid
        user.is_staff = True
        user.first_name = user.first_name or invitation.name
        user.save(update_fields=["is_staff", "first_name"])
        user.groups.add(invitation.role)
        _confirm(user, invitation.email.lower())


def _confirm(user: User, email: str) -> None:
    if not EmailAddress.objects.filter(email=email, verified=True).exists():
        address, _ = EmailAddress.objects.get_or_create(user=user, email=email)
        address.set_verified()
        address.set_as_primary(conditional=True)
