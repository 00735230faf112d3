"""Start-up checks of the shop's face: what buyers read in header, footer and mails."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, register
from django.core.exceptions import ValidationError
from django.utils.translation import override

from seckill_site.checks.configuration import SETTINGS
from seckill_site.checks.findings import finding
from seckill_site.face.icons import MOST_LOGO_BYTES, UnusableLogo, open_logo
from seckill_site.face.values import (
    IS_ADDRESS,
    MOST_TERMS_BYTES,
    validate_setting,
    variable_of,
)

_NUMBERS = {
    **dict.fromkeys(("name", "name_en", "imprint", "imprint_en"), "E040"),
    **{"colour": "E041", "contact": "E043"},
}
"""The id of what is wrong with a text."""


@register(SETTINGS)
def check_texts(**_: Any) -> Iterator[CheckMessage]:
    """Find a text that header, footer and mails could not show."""
    for field, number in _NUMBERS.items():
        variable = variable_of(field)
        text = getattr(settings, variable)
        try:
            with override("en"):
                if text:
                    validate_setting(field, text)
        except ValidationError as error:
            why = error.messages[0]
            yield finding(number, variable=variable, value=text[:60], why=why)


@register(SETTINGS)
def check_logo(**_: Any) -> Iterator[CheckMessage]:
    """Find a logo that cannot be shown."""
    path = settings.SECKILL_SHOP_LOGO
    try:
        if path:
            with Path(path).open("rb") as file:
                open_logo(file.read(MOST_LOGO_BYTES + 1))
    except (OSError, UnusableLogo) as error:
        yield finding("E042", path=path, why=_why(error))


@register(SETTINGS)
def check_map(**_: Any) -> Iterator[CheckMessage]:
    """Find a map that no place can be searched on."""
    url = settings.SECKILL_MAP_URL
    if url and not (IS_ADDRESS.fullmatch(url) and "{place}" in url):
        yield finding("E045", url=url)


@register(SETTINGS)
def check_terms(**_: Any) -> Iterator[CheckMessage]:
    """Find terms that buyers could not read."""
    for variable in ("SECKILL_SHOP_TERMS", "SECKILL_SHOP_TERMS_EN"):
        terms = getattr(settings, variable)
        if not terms or IS_ADDRESS.fullmatch(terms):
            continue
        try:
            with Path(terms).open("rb") as file:
                text = file.read(MOST_TERMS_BYTES + 1).decode("utf-8")
            problem = "it is empty" if not text.strip() else ""
            problem = "it is larger than 256 kB" if len(text) > MOST_TERMS_BYTES else problem
        except (OSError, UnicodeDecodeError) as error:
            problem = _why(error)
        if problem:
            yield finding("E044", variable=variable, path=terms, why=problem)


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is no text in UTF-8"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
