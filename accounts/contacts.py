"""How to reach an account: only at what its owner confirmed, and in their language."""

from collections.abc import Iterable
from dataclasses import dataclass

from allauth.account.models import EmailAddress
from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Exists, OuterRef
from django.http import HttpRequest

from accounts.models import Phone, Reader


@dataclass(frozen=True)
class Contact:
    """Where an account may be written to; an address or number that is not confirmed is empty."""

    email: str = ""
    phone: str = ""
    language: str = settings.LANGUAGE_CODE


def confirmed_contact(user: User) -> Contact:
    """Return how to reach this account."""
    return confirmed_contacts([user.pk])[user.pk]


def confirmed_contacts(user_ids: Iterable[int]) -> dict[int, Contact]:
    """Return how to reach each of these accounts, in three statements."""
    ids = set(user_ids)
    addresses = EmailAddress.objects.filter(user_id__in=ids, verified=True).order_by("primary")
    emails = dict(addresses.values_list("user_id", "email"))  # the primary one comes last
    phones = dict(Phone.objects.filter(pk__in=ids).values_list("user_id", "number"))
    languages = dict(Reader.objects.filter(pk__in=ids).values_list("user_id", "language"))
    return {
        it: Contact(
            emails.get(it, ""), phones.get(it, ""), languages.get(it) or settings.LANGUAGE_CODE
        )
        for it in ids
    }


def has_confirmed_email(user_field: str) -> Exists:
    """Return a condition: the user in this field of a row has confirmed an address."""
    return Exists(EmailAddress.objects.filter(user=OuterRef(user_field), verified=True))


def remember_language(user: User | AnonymousUser, language: str) -> None:
    """Write to this account in this language from now on."""
    if user.pk is not None and language in dict(settings.LANGUAGES):
        Reader.objects.update_or_create(user=user, defaults={"language": language})


def on_language_chosen(*, request: HttpRequest, language: str, **kwargs: object) -> None:
    """Remember the language that a signed-in reader chose (a receiver of a signal)."""
    remember_language(request.user, language)
