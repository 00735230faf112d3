"""Packed requests for the load generator, made before anything is measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_ALWAYS = "Host: localhost\r\nAccept: application/json\r\nAccept-Language: en\r\n"

EMPTY = f"GET /bench/empty/ HTTP/1.1\r\n{_ALWAYS}\r\n".encode()


def get(path: str, headers: Mapping[str, str] | None = None) -> bytes:
    """Return a GET request."""
    return f"GET {path} HTTP/1.1\r\n{_ALWAYS}{_lines(headers)}\r\n".encode()


def post(path: str, fields: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> bytes:
    """Return a POST request with a JSON body."""
    body = json.dumps(fields)
    described = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    lines = _lines({**described, **(headers or {})})
    return f"POST {path} HTTP/1.1\r\n{_ALWAYS}{lines}\r\n{body}".encode()


def order(sale_id: int, token: str, *, attempt: int | None = None) -> bytes:
    """Return a buyer's order request, with the number of the attempt if given."""
    fields = {"token": token} if attempt is None else {"token": token, "attempt": attempt}
    return post(f"/vouchers/{sale_id}/orders/", fields)


def receipt(sale_id: int, order_id: int, token: str) -> bytes:
    """Return a request for the receipt of an order."""
    return get(f"/vouchers/{sale_id}/orders/{order_id}/", {"Purchase-Token": token})


def classic_order(sale_id: int, token: str) -> bytes:
    """Return an order request of the classic design."""
    return post(f"/bench/classic/{sale_id}/orders/", {}, {"Authorization": token})


def _lines(headers: Mapping[str, str] | None) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
