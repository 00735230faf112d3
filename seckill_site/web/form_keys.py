"""Keys of forms that create something: a second press creates nothing (``docs/adr/0039``).

The key is stored in the transaction that creates. So a second press waits for the first at the
unique key, is rolled back, and leads to what the first made.
"""

import datetime as dt
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256

from django.db import transaction
from django.http import HttpRequest

from seckill_site.clocks.database import database_now
from seckill_site.models import SentForm

KEPT = dt.timedelta(days=1)


class SentBefore(Exception):
    """The form was sent before, and nothing was created now; the text is what it made then."""


def key_of(request: HttpRequest) -> str:
    """Return the key that a form was sent with, or the key of a new form."""
    return request.POST.get("form_key") or secrets.token_urlsafe(32)


@contextmanager
def sent_once(request: HttpRequest, name: str) -> Iterator[None]:
    """Run what creates something and stores its key, unless another press of the form has.

    :raises SentBefore: it has.
    """
    check_unsent(request, name)
    try:
        yield
    except Exception:
        check_unsent(request, name)  # whatever failed because the other press was faster
        raise


def store_key(request: HttpRequest, name: str, made: object) -> None:
    """Store the key of a form with what it made, in the same transaction."""
    SentForm.objects.create(digest=_digest(request, name), made=str(made))
    SentForm.objects.filter(sent_at__lt=database_now() - KEPT).delete()


def make_once(request: HttpRequest, name: str, make: Callable[[], object]) -> str:
    """Make something in a transaction; return what this or another press of the form has made."""
    try:
        with sent_once(request, name), transaction.atomic():
            made = make()
            store_key(request, name, made)
            return str(made)
    except SentBefore as sent:
        return str(sent)


def check_unsent(request: HttpRequest, name: str) -> None:
    """Raise ``SentBefore`` if another press of the request's form has created something."""
    sent = SentForm.objects.filter(digest=_digest(request, name))
    if "form_key" in request.POST and (form := sent.first()):
        raise SentBefore(form.made)


def _digest(request: HttpRequest, name: str) -> str:
    """Return what is stored: it is no key, and of no use to another account or form."""
    return sha256(f"{request.user.pk} {name} {key_of(request)}".encode()).hexdigest()
