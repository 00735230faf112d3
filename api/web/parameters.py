"""The query of a list: only known names, each once, each with a value that makes sense."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection
from typing import NamedTuple

from django.http import QueryDict
from django.utils.translation import gettext_noop as _

from orders.web.request_parsing import InvalidRequest
from seckill_site.clocks.machine import from_epoch_ms
from seckill_site.web.url_converters import LARGEST_ID

PAGE, LARGEST_PAGE = 50, 200
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_LATEST_MS = 253_402_300_799_000  # the year 9999


class Query(NamedTuple):
    """The parameters of a request."""

    values: dict[str, str]

    @classmethod
    def read(cls, query: QueryDict, *, known: Collection[str]) -> Query:
        """Return the parameters of a query.

        :raises InvalidRequest: a name is unknown or repeated.
        """
        for name, values in query.lists():
            if name not in known or len(values) > 1:
                raise InvalidRequest(400, _("A parameter of the address is unknown or repeated."))
        return cls({name: value for name, value in query.items() if isinstance(value, str)})

    def number(self, name: str, *, most: int = LARGEST_ID, least: int = 1) -> int | None:
        """Return a whole number, if there is one.

        :raises InvalidRequest: it is not a whole number, or out of range.
        """
        text = self.values.get(name)
        if text is None:
            return None
        if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
            raise InvalidRequest(400, _("A number in the address is not valid."))
        return int(text)

    def moment(self, name: str) -> dt.datetime | None:
        """Return a time given in milliseconds since 1970, if there is one.

        :raises InvalidRequest: it is not such a time.
        """
        number = self.number(name, most=_LATEST_MS, least=0)
        return None if number is None else from_epoch_ms(number)

    def choice(self, name: str, *, of: Collection[str]) -> str | None:
        """Return one of these values, if there is one.

        :raises InvalidRequest: it is another.
        """
        text = self.values.get(name)
        if text is not None and text not in of:
            raise InvalidRequest(400, _("A parameter of the address has an unknown value."))
        return text

    @property
    def limit(self) -> int:
        """How many rows a page has."""
        return self.number("limit", most=LARGEST_PAGE) or PAGE
