"""Parsing of order requests: any body that may arrive, in the contract's three encodings.

Everything a client can send ends as a value or as :class:`InvalidRequest`, never as a server error.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from django.core.exceptions import BadRequest, RequestDataTooBig, SuspiciousOperation
from django.http import HttpRequest, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.utils.translation import gettext_noop as _

from seckill_site.front_door.requests import declared_bytes
from seckill_site.strict_json import read_strict_json, without_repeats
from vouchers.models import MAX_LIMIT

LARGEST_BODY_BYTES = 8 * 1024
"""An order request is a token and a number; a longer one is a mistake or worse."""

LONGEST_CODE = 80
"""The longest text that may be an invitation code, with blanks and dashes."""

LONGEST_PROVIDER = 32

_FEW = 20


class InvalidRequest(Exception):
    """The request breaks the contract; ``text`` says how, before translation."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class OrderRequest(NamedTuple):
    """An order request: the purchase token, and the number of the attempt if it is given.

    Of a ``quantity`` the buyer takes what is left, or with ``all_or_none`` all of it or nothing.
    """

    token: object
    attempt: int | None
    quantity: int = 1
    all_or_none: bool = False


def read_order_request(request: HttpRequest) -> OrderRequest:
    """Return the fields of an order request.

    :raises InvalidRequest: with 400, 413 or 415.
    """
    return _order_request(_read_fields(request))


def read_code_request(request: HttpRequest) -> str:
    """Return the invitation code of a form, or of a JSON object.

    :raises InvalidRequest: with 400, 413 or 415.
    """
    code = _read_fields(request).get("code")
    if not isinstance(code, str) or not 0 < len(code.strip()) <= LONGEST_CODE:
        raise InvalidRequest(400, _("Enter an invitation code."))
    return code


def read_pay_request(request: HttpRequest) -> str:
    """Return the name of the chosen payment provider; empty if none is named.

    :raises InvalidRequest: with 400, 413 or 415.
    """
    if request.content_type == "application/json":
        body = _body(request)
        name = _json_object(body).get("provider", "") if body else ""
    else:
        name = request.POST.get("provider", "")  # the CSRF token was read from there
    if not isinstance(name, str) or len(name) > LONGEST_PROVIDER:
        raise InvalidRequest(400, _("There is no such payment provider."))
    return name


def read_json_fields(request: HttpRequest) -> Mapping[str, Any]:
    """Return the fields of a request whose body must be a JSON object.

    :raises InvalidRequest: with 400, 413 or 415.
    """
    if request.content_type != "application/json":
        raise InvalidRequest(415, _("Send a JSON object, as application/json."))
    return _json_object(_body(request))


def read_json_order(body: bytes) -> OrderRequest:
    """Return the fields of an order request whose body is JSON.

    :raises InvalidRequest: with 400.
    """
    return _order_request(_json_object(body))


def _order_request(fields: Mapping[str, Any]) -> OrderRequest:
    token, text = fields.get("token"), _("The attempt must be a number from 1 to 9999.")
    attempt = _number(fields.get("attempt"), most=9999, refusal=text)
    if "quantity" not in fields and "all_or_none" not in fields:
        return OrderRequest(token, attempt)
    all_or_none = _CHOICES.get(str(fields.get("all_or_none", "")).lower())
    if all_or_none is None:
        raise InvalidRequest(400, _("all_or_none must be true or false."))
    text = _("The quantity must be a number from 1 to 20.")
    quantity = _number(fields.get("quantity"), most=MAX_LIMIT, refusal=text)
    return OrderRequest(token, attempt, quantity or 1, all_or_none)


def _read_fields(request: HttpRequest) -> Mapping[str, Any]:
    if request.content_type == "application/json":
        return _json_object(_body(request))
    if request.content_type in ("application/x-www-form-urlencoded", ""):
        return _form(_body(request))
    if request.content_type == "multipart/form-data":
        return _multipart(request)
    raise InvalidRequest(415, _("Send the token as a form field or as JSON."))


def _body(request: HttpRequest) -> bytes:
    try:
        body = request.read(LARGEST_BODY_BYTES + 1)
    except (OSError, UnreadablePostError) as error:
        raise InvalidRequest(400, _("The request was cut off.")) from error
    if len(body) > LARGEST_BODY_BYTES or declared_bytes(request.META) > LARGEST_BODY_BYTES:
        raise InvalidRequest(413, _("The request is too large."))
    return body


def _json_object(body: bytes) -> Mapping[str, Any]:
    try:
        value = read_strict_json(body)
    except ValueError as error:
        raise InvalidRequest(400, _("The body is not valid JSON in UTF-8.")) from error
    if not isinstance(value, dict):
        raise InvalidRequest(400, _("The body must be a JSON object."))
    return value


def _form(body: bytes) -> Mapping[str, Any]:
    try:
        pairs = parse_qsl(
            body.decode("utf-8"), keep_blank_values=True, max_num_fields=_FEW, errors="strict"
        )
        return without_repeats(pairs)
    except ValueError as error:
        raise InvalidRequest(400, _("The form could not be read.")) from error


def _multipart(request: HttpRequest) -> Mapping[str, Any]:
    if declared_bytes(request.META) > LARGEST_BODY_BYTES:
        raise InvalidRequest(413, _("The request is too large."))
    try:
        return request.POST.dict()
    except RequestDataTooBig as error:
        raise InvalidRequest(413, _("The request is too large.")) from error
    except (
        MultiPartParserError,
        BadRequest,
        SuspiciousOperation,
        UnreadablePostError,
        ValueError,
        LookupError,
    ) as error:
        raise InvalidRequest(400, _("The form could not be read.")) from error


def _number(value: object, *, most: int, refusal: str) -> int | None:
    """Return a number from 1 to ``most``, or None if nothing was sent.

    A form sends text, JSON a number.
    """
    if value is None or value == "":
        return None
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not re.fullmatch("[0-9]{1,4}", text) or not 0 < int(text) <= most:
        raise InvalidRequest(400, refusal)
    return int(text)


_CHOICES = {"": False, "0": False, "false": False, "1": True, "true": True}
"""What a form and JSON may send for yes and no, as text."""
