"""Every list of the admin, with queries and selections that nobody clicks together."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.db import models
from django.test import Client
from django.urls import reverse

from locks.django.models import Lock

pytestmark = pytest.mark.django_db

LISTS = [model for model in admin.site._registry if model is not Lock]  # it has no rows
ODD = [
    ("__year", "99999999999"),
    ("__year__gte", "0"),
    ("__range", "a,b"),
    ("__in", "9" * 40),
    ("__date", "9999999-1-1"),
    ("", "\0"),
]


def list_url(model: type[models.Model]) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


@pytest.mark.slow
@pytest.mark.parametrize("model", LISTS, ids=lambda it: it.__name__)
def test_odd_query_is_no_server_error(shop: Client, model: Any) -> None:
    shop.raise_request_exception = False
    queries = [
        {f"{field.name}{lookup}": value} for field in model._meta.fields for lookup, value in ODD
    ]
    answers = {str(query): shop.get(list_url(model), query).status_code for query in queries}
    assert {query: it for query, it in answers.items() if it >= 500} == {}


@pytest.mark.parametrize("selected", ["abc", "9" * 40, "\0", "-1", ""])
@pytest.mark.parametrize("model", LISTS, ids=lambda it: it.__name__)
def test_odd_selection_is_no_server_error(shop: Client, model: Any, selected: str) -> None:
    shop.raise_request_exception = False
    page = shop.get(list_url(model))
    form = page.context["cl"].model_admin.get_action_choices(page.wsgi_request)
    for action, _ in form:
        sent = {"action": action, "_selected_action": selected, "index": 0}
        assert shop.post(list_url(model), sent).status_code < 500
