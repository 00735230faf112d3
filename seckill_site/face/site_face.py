"""The face of the shop, in the reader's language."""

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from django.conf import settings
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import lazy
from django.utils.translation import get_language

from seckill_site.face.colours import RGB, palettes, read_colour
from seckill_site.face.icons import UnusableLogo, open_logo
from seckill_site.kept_settings import kept

USUAL_COLOUR = "#cf2318"
"""The colour that the style sheet has by itself."""

IS_ADDRESS = re.compile(r"https?://[^\s/?#]+[^\s]*")
IS_MAIL = re.compile(r"[^\s@<>\"]+@[^\s@<>\"]+\.[^\s@<>\"]+")
IS_PHONE = re.compile(r"\+?[0-9(][0-9 ()./-]{2,30}[0-9]")


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
    contact: str
    imprint: str
    terms: str
    logo: str
    colour: str

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
        """The link of the terms: a page elsewhere, or ours with the text of a file."""
        if not self.terms or IS_ADDRESS.fullmatch(self.terms):
            return self.terms
        return reverse("terms")

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
        return not self.logo and self.colour.lower() == USUAL_COLOUR


def site_face() -> Face:
    """Return the face of the shop in the reader's language."""
    return _faces()[(get_language() or "").startswith("en")]


def terms_version() -> str:
    """Return what identifies the terms that the reader sees: a digest, or an address and a day."""
    terms = site_face().terms
    if IS_ADDRESS.fullmatch(terms):
        return f"{terms} {timezone.localdate()}"
    return f"sha256:{hashlib.sha256(Path(terms).read_bytes()).hexdigest()}"


shop_name = lazy(lambda: site_face().name, str)()
"""The name of the shop in the language in which it is read."""


@kept
def _faces() -> tuple[Face, Face]:
    """Return the face for readers of Chinese and of English."""
    shared = {
        "contact": settings.SECKILL_SHOP_CONTACT,
        "logo": settings.SECKILL_SHOP_LOGO,
        "colour": settings.SECKILL_SHOP_COLOUR,
    }
    chinese, english = (
        {
            "name": getattr(settings, f"SECKILL_SHOP_NAME{suffix}"),
            "imprint": getattr(settings, f"SECKILL_SHOP_IMPRINT{suffix}"),
            "terms": getattr(settings, f"SECKILL_SHOP_TERMS{suffix}"),
        }
        for suffix in ("", "_EN")
    )
    return Face(**chinese, **shared), Face(**english, **shared)


@kept
def logo_bytes() -> bytes:
    """Return the file of the logo; empty without one that can be shown."""
    logo = settings.SECKILL_SHOP_LOGO
    with suppress(OSError, UnusableLogo):
        content = Path(logo).read_bytes() if logo else b""
        return content if content and open_logo(content) else b""
    return b""


@kept
def face_digest() -> str:
    """Return the digest of everything that the generated files show."""
    face, english = _faces()
    logo = hashlib.sha256(logo_bytes()).hexdigest()
    shown = repr((face.name, english.name, theme_css(), logo))
    return hashlib.sha256(shown.encode()).hexdigest()[:16]


@kept
def theme_css() -> str:
    """Return the style sheet that replaces the usual accent; a few hundred bytes."""
    light, dark = palettes(_faces()[0].rgb)
    return (
        f":root,html[data-theme=light]{{{light.css()}}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{dark.css()}}}}}\n"
        f"html[data-theme=dark]{{{dark.css()}}}\n"  # chosen in the back office
    )
