"""The face of the shop, in the reader's language."""

import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from django.conf import settings
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import lazy
from django.utils.translation import get_language

from seckill_site.face.colours import RGB, palettes, read_colour
from seckill_site.face.icons import UnusableLogo, open_logo
from seckill_site.face.owners_settings import OwnersSettings, owners_settings
from seckill_site.face.values import IS_ADDRESS, IS_MAIL, IS_PHONE, variable_of
from seckill_site.kept_settings import kept

T = TypeVar("T")

USUAL_NAME = "Seckill"

USUAL_COLOUR = "#cf2318"
"""The colour that the style sheet has by itself."""


def contact_url(contact: str) -> str:
    """Return the link of a contact, to write, call or read; empty for any other text."""
    if IS_MAIL.fullmatch(contact):
        return f"mailto:{contact}"
    if IS_PHONE.fullmatch(contact):
        return "tel:" + re.sub(r"[^0-9+]", "", contact)
    return contact if IS_ADDRESS.fullmatch(contact) else ""


def map_url(place: str) -> str:
    """Return the link that searches a place on a map; empty if the shop has named no map."""
    return str(settings.SECKILL_MAP_URL).replace("{place}", quote(place, safe=""))


@dataclass(frozen=True)
class Face:
    """What tells buyers whose shop this is; texts that the shop has not given are empty."""

    name: str
    imprint: str
    terms: str | Path
    invitation: str
    contact: str
    colour: str
    mail_from: str
    has_logo: bool

    @property
    def contact_url(self) -> str:
        """The link of the contact."""
        return contact_url(self.contact)

    @property
    def imprint_url(self) -> str:
        """The link of the imprint, if it is a page and no text."""
        return self.imprint if IS_ADDRESS.fullmatch(self.imprint) else ""

    @property
    def terms_url(self) -> str:
        """The link of the terms: a page elsewhere, or ours with their text."""
        if isinstance(self.terms, Path) or (self.terms and not IS_ADDRESS.fullmatch(self.terms)):
            return reverse("terms")
        return self.terms

    @property
    def terms_text(self) -> bytes:
        """The text of the terms that our own page shows."""
        return self.terms.read_bytes() if isinstance(self.terms, Path) else self.terms.encode()

    @property
    def rgb(self) -> RGB:
        """The colour; the usual one if the check of the settings was not heeded."""
        try:
            return read_colour(self.colour)
        except ValueError:
            return read_colour(USUAL_COLOUR)

    @property
    def is_usual(self) -> bool:
        """Whether neither logo nor colour differ from those that the static files have."""
        return not self.has_logo and self.colour.lower() == USUAL_COLOUR


def site_face() -> Face:
    """Return the face of the shop in the reader's language."""
    return both_faces()[(get_language() or "").startswith("en")]


def terms_version() -> str:
    """Return what identifies the terms that the reader sees: a digest, or an address and a day."""
    face = site_face()
    if face.terms_url == face.terms:
        return f"{face.terms} {timezone.localdate()}"
    return f"sha256:{hashlib.sha256(face.terms_text).hexdigest()}"


shop_name = lazy(lambda: site_face().name, str)()
"""The name of the shop in the language in which it is read."""


def _of_settings(work_out: Callable[[OwnersSettings], T]) -> Callable[[], T]:
    """Keep what a function derives from the environment and from the settings of owners."""
    latest = kept(lambda: lru_cache(maxsize=1)(work_out))
    return lambda: latest()(owners_settings())


@_of_settings
def both_faces(owners: OwnersSettings) -> tuple[Face, Face]:
    """Return the face for readers of Chinese and of English."""
    stored = dict(owners.values)

    def value(field: str, default: Any = "") -> Any:
        given = getattr(settings, variable_of(field))
        if given and field.startswith("terms") and not IS_ADDRESS.fullmatch(given):
            return Path(given)
        return given or stored.get(field) or default

    shared = {
        "contact": value("contact"),
        "colour": value("colour", USUAL_COLOUR),
        "mail_from": value("mail_from", settings.DEFAULT_FROM_EMAIL),
        "has_logo": bool(settings.SECKILL_SHOP_LOGO or owners.logo),
    }
    usual = {"name": USUAL_NAME, "imprint": "", "terms": "", "invitation": ""}
    chinese = {it: value(it, default) for it, default in usual.items()}
    english = {it: value(f"{it}_en", default) for it, default in chinese.items()}
    return Face(**chinese, **shared), Face(**english, **shared)


@_of_settings
def logo_bytes(owners: OwnersSettings) -> bytes:
    """Return the file of the logo; empty without one that can be shown."""
    path = settings.SECKILL_SHOP_LOGO
    with suppress(OSError, UnusableLogo):
        content = Path(path).read_bytes() if path else owners.logo
        return content if content and open_logo(content) else b""
    return b""


@_of_settings
def face_digest(_: OwnersSettings) -> str:
    """Return the digest of everything that the generated files show."""
    face, english = both_faces()
    logo = hashlib.sha256(logo_bytes()).hexdigest()
    shown = repr((face.name, english.name, theme_css(), logo))
    return hashlib.sha256(shown.encode()).hexdigest()[:16]


@_of_settings
def theme_css(_: OwnersSettings) -> str:
    """Return the style sheet that replaces the usual accent; a few hundred bytes."""
    light, dark = palettes(both_faces()[0].rgb)
    return (
        f":root,html[data-theme=light]{{{light.css()}}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{dark.css()}}}}}\n"
        f"html[data-theme=dark]{{{dark.css()}}}\n"  # chosen in the back office
    )
