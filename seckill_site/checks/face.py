"""Start-up checks of the shop's face: what buyers read in header, footer and mails."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from seckill_site.checks.configuration import SETTINGS
from seckill_site.face.colours import read_colour
from seckill_site.face.icons import MOST_LOGO_BYTES, UnusableLogo, open_logo
from seckill_site.face.site_face import IS_ADDRESS, IS_MAIL, IS_PHONE

LONGEST_NAME, LONGEST_LINE = 40, 300
MOST_TERMS_BYTES = 256 * 1024


@register(SETTINGS)
def check_names(**_: Any) -> Iterator[CheckMessage]:
    """Find a name or an imprint that is missing, too long or of several lines."""
    for setting, longest, required in (
        ("SECKILL_SHOP_NAME", LONGEST_NAME, True),
        ("SECKILL_SHOP_NAME_EN", LONGEST_NAME, True),
        ("SECKILL_SHOP_IMPRINT", LONGEST_LINE, False),
        ("SECKILL_SHOP_IMPRINT_EN", LONGEST_LINE, False),
    ):
        text = getattr(settings, setting)
        if (required and not text.strip()) or len(text) > longest or not text.isprintable():
            least = 1 if required else 0
            address = " It may also be a web address." if "IMPRINT" in setting else ""
            yield Error(
                f"{setting} is {text[:60]!r}. It has to be one line of {least} to {longest} "
                "characters.",
                hint="The header, the footer and the mails show it." + address,
                id="seckill.E040",
            )


@register(SETTINGS)
def check_colour(**_: Any) -> Iterator[CheckMessage]:
    """Find a colour that cannot be read."""
    try:
        read_colour(settings.SECKILL_SHOP_COLOUR)
    except ValueError as error:
        yield Error(
            f"SECKILL_SHOP_COLOUR: {error}.",
            hint="Write it as six hexadecimal digits. Any colour will do: the shop derives those "
            "of its texts, so that they can be read in light and in dark.",
            id="seckill.E041",
        )


@register(SETTINGS)
def check_logo(**_: Any) -> Iterator[CheckMessage]:
    """Find a logo that cannot be shown."""
    path = settings.SECKILL_SHOP_LOGO
    try:
        if path:
            with Path(path).open("rb") as file:
                open_logo(file.read(MOST_LOGO_BYTES + 1))
    except (OSError, UnusableLogo) as error:
        yield Error(
            f"SECKILL_SHOP_LOGO is {path}, which cannot be shown: {_why(error)}.",
            hint="Name a square PNG, WebP or JPEG, best of 512 pixels, at most 1 MB.",
            id="seckill.E042",
        )


@register(SETTINGS)
def check_contact(**_: Any) -> Iterator[CheckMessage]:
    """Find a contact that buyers could not use."""
    contact = settings.SECKILL_SHOP_CONTACT
    if contact and not any(it.fullmatch(contact) for it in (IS_MAIL, IS_PHONE, IS_ADDRESS)):
        yield Error(
            f"SECKILL_SHOP_CONTACT is {contact!r}: no e-mail address, phone number or web address.",
            hint="Such as help@shop.example, +86 21 5555 0100 or https://shop.example/contact",
            id="seckill.E043",
        )


@register(SETTINGS)
def check_map(**_: Any) -> Iterator[CheckMessage]:
    """Find a map that no place can be searched on."""
    url = settings.SECKILL_MAP_URL
    if url and not (IS_ADDRESS.fullmatch(url) and "{place}" in url):
        yield Error(
            f"SECKILL_MAP_URL is {url!r}: no web address with {{place}} in it.",
            hint="Such as https://uri.amap.com/search?keyword={place}",
            id="seckill.E045",
        )


@register(SETTINGS)
def check_terms(**_: Any) -> Iterator[CheckMessage]:
    """Find terms that buyers could not read."""
    for setting in ("SECKILL_SHOP_TERMS", "SECKILL_SHOP_TERMS_EN"):
        terms = getattr(settings, setting)
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
            yield Error(
                f"{setting} is {terms}, which cannot be read: {problem}.",
                hint="Name a web address (https://…) or a text file in UTF-8.",
                id="seckill.E044",
            )


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is no text in UTF-8"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
