"""A browser without JavaScript: find a form on a page, fill it in, send it."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from django.test import Client

HTML = {"Accept": "text/html"}


def get_page(client: Client, url: str) -> Any:
    return client.get(url, headers=HTML)


def fields_of(page: str, action: str) -> dict[str, str] | None:
    """Return the hidden fields of the page's form for this address, or None without one."""
    form = re.search(rf'<form [^>]*action="{re.escape(action)}"[^>]*>(.*?)</form>', page, re.DOTALL)
    if form is None:
        return None
    found = {}
    for field in re.findall(r"<input[^>]*>", form[1]):
        parts = dict(re.findall(r'(\w+)="([^"]*)"', field))
        found[parts["name"]] = unescape(parts["value"])
    return found


def send(client: Client, page: str, action: str, **fields: str) -> Any:
    """Submit the page's form for this address."""
    hidden = fields_of(page, action)
    assert hidden is not None, f"no form to {action}"
    return client.post(action, {**hidden, **fields}, headers=HTML)
