"""The end of an account: its rows stay for the orders, and nothing in them names anybody."""

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.db.models import Q

from accounts.invitations import invitations_of
from accounts.models import Invitation, Phone, Reader
from accounts.sessions import end_all_sessions


def anonymise(user: User) -> None:
    """Remove all that names the owner of an account, close it, and end its sessions."""
    with transaction.atomic():
        forget_in_log(user)
        invitations_of(user).delete()
        for model in (EmailAddress, Phone, Reader, Authenticator):
            model.objects.filter(user=user).delete()
        user.username = _nameless(user)
        user.first_name = user.last_name = user.email = ""
        user.is_active = user.is_staff = user.is_superuser = False
        user.last_login = None
        user.set_unusable_password()
        user.save()
        user.groups.clear()
        user.user_permissions.clear()
    end_all_sessions(user)


def forget_in_log(user: User) -> None:
    """Take the names and addresses of an account out of the back office's log."""
    emails = EmailAddress.objects.filter(user=user).values_list("email", flat=True)
    invitations = list(invitations_of(user).values_list("pk", "email"))
    about = {
        User: Q(object_id=str(user.pk)),
        # Those of deleted invitations, too, of which nothing but the address is left.
        Invitation: Q(object_id__in=[str(pk) for pk, _ in invitations]),
    }
    for email in {user.email, *emails, *(it for _, it in invitations)} - {""}:
        about[Invitation] |= Q(object_repr__iexact=email)
    for model, condition in about.items():
        kind = ContentType.objects.get_for_model(model)
        LogEntry.objects.filter(condition, content_type=kind).update(object_repr=_nameless(user))


def _nameless(user: User) -> str:
    """Return what an account is called without its name: nobody can sign up with a colon."""
    return f"deleted:{user.pk}"
