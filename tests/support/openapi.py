"""``docs/openapi.yaml`` against real answers.

The file lets programs expect more fields than it names. Here every object is closed, so an answer
with a field that nobody has written down fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import yaml

FILE = Path(__file__).resolve().parents[2] / "docs" / "openapi.yaml"

ANY_TIME = {400, 405, 408, 413, 415, 429, 500, 503}
"""The statuses that the file leaves to its default responses."""

_CLOSED = "unevaluatedProperties"


@cache
def spec() -> dict[str, Any]:
    """Return the file's content."""
    return dict(yaml.safe_load(FILE.read_text(encoding="utf-8")))


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Return a pattern for each path; names of a path are matched by one segment."""
    return [
        (re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))), path)
        for path in spec()["paths"]
    ]


def path_of(address: str) -> str | None:
    """Return the path of the file that an address is an example of."""
    address = address.partition("?")[0]
    return next((path for pattern, path in _patterns() if pattern.fullmatch(address)), None)


def check(
    method: str, address: str, *, status: int, headers: Mapping[str, str], body: bytes
) -> None:
    """Check an answer against the file; addresses that it does not have are pages.

    ``headers`` have names in small letters.
    """
    path = path_of(address)
    kind = headers.get("content-type", "").partition(";")[0]
    if path is None or kind == "text/html" or method == "HEAD":
        return
    where = f"{method} {address}: {status}"
    response = _response(method.lower(), path, status)
    assert response is not None, f"{where} is not in {FILE.name}"
    for name, header in response.get("headers", {}).items():
        assert not header.get("required") or name.lower() in headers, f"{where} lacks {name}"
    assert status not in (429, 503) or "retry-after" in headers, f"{where} lacks Retry-After"
    media = response.get("content", {})
    if not body and not media:
        return
    assert kind in media, f"{where}: {kind} is not in {FILE.name}"
    if kind == "application/json":
        _validator(method.lower(), path, status).validate(json.loads(body))


def _response(method: str, path: str, status: int) -> dict[str, Any] | None:
    operation = spec()["paths"][path].get(method)
    if operation is None:  # a method that the file does not have
        is_refused = status in ANY_TIME | {404}
        found = {"$ref": "#/components/responses/Refused"} if is_refused else None
    else:
        default = operation["responses"]["default"] if status in ANY_TIME else None
        found = operation["responses"].get(str(status), default)
    return None if found is None else _resolved(found)


def _resolved(found: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in found:
        return found
    part: Any = spec()
    for name in found["$ref"].removeprefix("#/").split("/"):
        part = part[name]
    resolved: dict[str, Any] = part
    return resolved


@cache
def _validator(method: str, path: str, status: int) -> jsonschema_rs.Draft202012Validator:
    response = _response(method, path, status)
    assert response is not None
    schema = response["content"]["application/json"]["schema"]
    return jsonschema_rs.Draft202012Validator(_closed(_inlined(schema)))


def _inlined(part: Any) -> Any:
    """Return a part of the file with the schemas that it names in their place."""
    if isinstance(part, list):
        return [_inlined(it) for it in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inlined(_resolved(part))
    return {name: _inlined(it) for name, it in part.items()}


def _closed(schema: Any, *, inside: bool = False) -> Any:
    """Return a schema in which every object has the named properties alone.

    ``inside`` an ``allOf``, the others may name more.
    """
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    if "properties" in found:
        found["properties"] = {name: _closed(it) for name, it in found["properties"].items()}
    if "items" in found:
        found["items"] = _closed(found["items"])
    if "anyOf" in found:
        found["anyOf"] = [_closed(it) for it in found["anyOf"]]
    if "allOf" in found:
        found["allOf"] = [_closed(it, inside=True) for it in found["allOf"]]
    has_names = "properties" in found or "allOf" in found
    if has_names and not inside and "additionalProperties" not in found:
        found[_CLOSED] = False
    return found
