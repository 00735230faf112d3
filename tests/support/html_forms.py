"""A browser without JavaScript: find a form on a page, fill it in, send it."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
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


class Filled(HTMLParser):
    """What a browser would send of a page's forms as they are."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: dict[str, Any] = {}
        self._select = self._textarea = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        its = dict(attrs)
        name, kind = its.get("name", ""), its.get("type", "text")
        if tag == "select":
            self._select = name
        elif tag == "textarea":
            self._textarea, self.fields[name] = name, ""
        elif tag == "option" and "selected" in its:
            self.fields.setdefault(self._select, []).append(its["value"])
        elif tag != "input" or not name or kind in ("submit", "button", "file"):
            return
        elif kind == "checkbox" and "checked" in its:
            self.fields.setdefault(name, []).append(its.get("value", "on"))
        elif kind not in ("checkbox", "radio") or "checked" in its:
            self.fields[name] = its.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self.fields[self._textarea] = self.fields[self._textarea].removeprefix("\n")
            self._textarea = ""

    def handle_data(self, data: str) -> None:
        if self._textarea:
            self.fields[self._textarea] += data


def filled(page: Any) -> dict[str, Any]:
    """Return what a browser would send of a response's forms as they are."""
    return {} if page.streaming or page.status_code != 200 else Filled(page.text).fields


def save(client: Client, url: str, opened: dict[str, Any], /, **changes: Any) -> Any:
    """Send a form that was ``opened`` before with these changes; None unticks a box."""
    sent = {name: it for name, it in {**opened, **changes}.items() if it is not None}
    return client.post(url, sent, headers=HTML)


def edit(client: Client, url: str, sent: dict[str, Any], **options: Any) -> Any:
    """Open the page of a stored object, and send nothing but this and what it was made from."""
    carried = {"made_from": filled(client.get(url))["made_from"]}
    return client.post(url, {**carried, **sent}, **options)
