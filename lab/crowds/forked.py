"""Where a selling process begins: Django is set up once, in the server that all are forked from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import django
from django.apps import apps

if not apps.ready:
    django.setup()

from lab.crowds.seller import sell

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from lab.crowds.seller import Shift


def begin(shift: Shift, errors: Connection) -> None:
    """Be one selling process, to its end."""
    sell(shift, errors)
