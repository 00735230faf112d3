"""What the form for a sale asks while somebody types: what is wrong, what will come of it."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone

from vouchers.catalogue.form_hints import Hint


def check_page(request: HttpRequest, *, model_admin: Any) -> HttpResponse:
    """Validate the entries of a new sale, or of the one named by ``sale``; nothing is saved."""
    sale_id, sale = request.GET.get("sale"), None
    if sale_id and not (sale := model_admin.get_object(request, sale_id)):
        raise Http404
    may_change = sale and model_admin.has_change_permission(request, sale)
    if not (may_change if sale else model_admin.has_add_permission(request)):
        raise PermissionDenied
    entries = request.POST if request.method == "POST" else request.GET
    form = model_admin.get_form(request, sale, change=bool(sale))(entries, instance=sale)
    errors = {field: list(found) for field, found in form.errors.items()}
    hints = {name: _as_json(found) for name, found in form.hints(now=timezone.now()).items()}
    return JsonResponse({"errors": errors, "hints": hints})


def _as_json(hints: list[Hint]) -> list[dict[str, str]]:
    return [{"level": hint.level.value, "text": hint.text} for hint in hints]
