"""Reference numbers of errors: what a page shows to a buyer, staff finds in the log."""

from __future__ import annotations

import logging
import secrets

from django.http import HttpRequest


def new_reference(request: HttpRequest) -> str:
    """Return a number for what went wrong with this request; its log line will have it too."""
    digits = secrets.token_hex(4).upper()
    reference = f"{digits[:4]}-{digits[4:]}"
    request.reference = reference  # type: ignore[attr-defined]
    return reference


class WithReference(logging.Filter):
    """Adds the reference to the line, with its traceback, that Django logs of a failed request."""

    def filter(self, record: logging.LogRecord) -> bool:
        reference = getattr(getattr(record, "request", None), "reference", None)
        # Where Django is set up twice, as under manage.py runserver, this filter is there twice.
        if reference and reference not in record.msg:
            record.msg = f"{record.msg} (reference {reference})"
        return True
