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

from accounts.mails import MailNotSent, has_mail_server, send_mail
from accounts.models import Invitation
from seckill_site.clocks.database import database_now
from seckill_site.clocks.steps import earlier_of_both
from seckill_site.face.site_face import site_face
from seckill_site.web.responses import absolute_url

VALID_FOR = dt.timedelta(days=3)
_SALT = "staff invitation"


class InvitationInvalid(Exception):
    """The invitation has expired, was withdrawn or was accepted already, or there never was one."""


Tell = Callable[[Invitation, bool], None]
"""Told after the commit whether the mail of an invitation went out."""


def send_invitation(invitation: Invitation, *, invited_by: User, tell: Tell) -> None:
    """Save a new invitation, and mail its link after the commit."""
    invitation.invited_by = invited_by
    invitation.save()
    transaction.on_commit(lambda: tell(invitation, _mail_link(invitation)))


def send_again(*, invitation_id: int, invited_by: User, tell: Tell) -> Invitation:
    """Let an invitation be valid from now on, expired or not, and mail its link once more.

    :raises InvitationInvalid: it was accepted or withdrawn.
    """
    pending = Invitation.objects.filter(pk=invitation_id, accepted_at=None)
    if not pending.update(invited_by=invited_by, invited_at=database_now()):
        raise InvitationInvalid
    invitation = pending.select_related("role").get()
    transaction.on_commit(lambda: tell(invitation, _mail_link(invitation)))
    return invitation


def invitation_url(invitation: Invitation) -> str:
    """Return the link of an invitation: whoever has it gets the role."""
    token = signing.dumps(invitation.pk, salt=_SALT)
    return absolute_url(reverse("staff-invitation", args=[token]))


def _mail_link(invitation: Invitation) -> bool:
    """Mail the link; return whether it went out."""

    def render() -> EmailMessage:
        face, role = site_face(), gettext(invitation.role.name)
        context = {"text": face.invitation, "role": role, "days": VALID_FOR.days}
        context["url"] = invitation_url(invitation)
        body = render_to_string("account/email/staff_invitation.txt", context)
        subject = gettext("You are invited to the staff")
        return EmailMessage(subject, body, face.mail_from, to=[invitation.email])

    if not has_mail_server():  # nobody else reads the link in a log
        return False
    try:
        send_mail(invitation.email, render)
    except MailNotSent:
        return False
    Invitation.objects.filter(pk=invitation.pk).update(mailed_at=database_now())
    return True


def invitations_of(user: User) -> QuerySet[Invitation]:
    """Return the invitations that an account accepted, or that were sent to its addresses."""
    emails = EmailAddress.objects.filter(user=user, verified=True).values_list("email", flat=True)
    of_user = Q(accepted_by=user) | Q(lower_email__in=list(emails))
    return Invitation.objects.annotate(lower_email=Lower("email")).filter(of_user)


def pending_invitations() -> QuerySet[Invitation]:
    """Return the invitations that nobody has accepted, expired or not, the latest first."""
    pending = Invitation.objects.filter(accepted_at=None)
    return pending.select_related("role", "invited_by").order_by("-pk")


def valid_since() -> dt.datetime:
    """Return the time before which an invitation has expired."""
    return earlier_of_both(database_now()) - VALID_FOR


def find_invitation(token: str) -> Invitation:
    """Return the invitation of a link.

    :raises InvitationInvalid: the link is of no use.
    """
    try:
        pk = signing.loads(token, salt=_SALT)
    except signing.BadSignature as error:
        raise InvitationInvalid from error
    invitation = pending_invitations().filter(pk=pk, invited_at__gt=valid_since()).first()
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
