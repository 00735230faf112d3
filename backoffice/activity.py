"""What staff did and saw: entries by signals, and by the names of pages (``activity_pages.toml``).

An entry is written before an answer leaves: if it cannot be written, the page fails, and with it
whatever secret it would have shown. Changes of rows are in Django's own history.
"""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_login_failed
from django.http import HttpRequest, HttpResponseBase

from accounts.backends import find_account
from seckill_site.models import Activity
from seckill_site.web.clients import client_ip

_TABLE = tomllib.loads(Path(__file__).with_name("activity_pages.toml").read_text("utf-8"))
MODELS: dict[str, str] = _TABLE.pop("models")
PAGES: dict[str, str] = {page: kind for kind, pages in _TABLE.items() for page in pages}

_DONE = {"export": 200, "customer": 200, "code": 0}
"""The status of an answer that has shown something; others redirect once something is changed."""

_ID = re.compile(r"\d{1,19}", re.ASCII)
_NOUNS = {"user_id": "user", "sale_id": "sale"}


def record(request: HttpRequest | None, kind: str, *, user_id: int, about: str = "") -> None:
    """Add an entry, with the address of the client."""
    address = client_ip(request.META) if request else ""
    Activity.objects.create(kind=kind, user_id=user_id, address=address, about=about)


def activity_middleware(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Add the entry of a page of staff before its answer is sent.

    A view that shows a secret in an answer of any status says so by ``request.looked_at``, and an
    API by ``request.acting_id`` for whom.
    """

    def answer(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        if kind := _kind_of(request):
            about = getattr(request, "looked_at", None)
            if about is None and response.status_code == _DONE.get(kind, 302):
                about = _about(request)
            user_id = getattr(request, "acting_id", request.user.is_staff and request.user.pk)
            if about is not None and user_id:
                record(request, kind, user_id=user_id, about=about)
        return response

    return answer


def _kind_of(request: HttpRequest) -> str | None:
    name = request.resolver_match.view_name if request.resolver_match else ""
    names = [name]
    if request.method == "POST":  # of several actions, a list carries out whichever is wanted
        actions = request.POST.getlist("action") if name.endswith("_changelist") else ()
        names = [*(f"POST {name} {it}" for it in actions), f"POST {name}", name]
    return next((PAGES[it] for it in names if it in PAGES), None)


def _about(request: HttpRequest) -> str:
    match: Any = request.resolver_match
    of_model = next((it for it, model in MODELS.items() if f":{model}_" in match.view_name), "")
    found = [(_NOUNS.get(name, of_model), str(it)) for name, it in match.kwargs.items()]
    return next((f"{noun}:{it}" for noun, it in found if noun and _ID.fullmatch(it)), "")


def _on_sign_in(*, request: HttpRequest, user: User, **_: Any) -> None:
    if user.is_staff:
        record(request, "sign_in", user_id=user.pk)


def _on_refusal(*, credentials: Any, request: HttpRequest | None = None, **_: Any) -> None:
    user = find_account(**credentials)
    if user and user.is_staff:
        record(request, "refused", user_id=user.pk)


user_logged_in.connect(_on_sign_in)
user_login_failed.connect(_on_refusal)
