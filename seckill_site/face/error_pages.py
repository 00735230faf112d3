"""nginx's own error pages with the shop's face: nobody is there to render them when they show."""

import re
from pathlib import Path

from django.utils.html import escape, format_html

from seckill_site.face.colours import hex_of, palettes
from seckill_site.face.site_face import both_faces

PAGES = Path(__file__).resolve().parents[2] / "deploy" / "errors"
"""The pages as they come, with the usual face."""

_MARKED = re.compile("(<!-- (shop|contact) -->).*?(<!-- /\\2 -->)", re.DOTALL)
_GENERATED = "\n/* The shop's colour, written by manage.py error_pages. */\n"
_COLOURS = (
    ":root { --accent: %s; }\n@media (prefers-color-scheme: dark) { :root { --accent: %s; } }\n"
)


def write_error_pages(*, into: Path) -> list[Path]:
    """Write the pages with the shop's face; return their files. Writing them again is harmless.

    :raises OSError: the directory cannot be written to.
    """
    into.mkdir(parents=True, exist_ok=True)
    written = []
    for page in sorted(PAGES.iterdir()):
        text = page.read_text(encoding="utf-8")
        target = into / page.name
        target.write_text(_with_face(page.suffix, text), encoding="utf-8")
        written.append(target)
    return written


def _with_face(kind: str, text: str) -> str:
    face, english = both_faces()
    if kind == ".css":
        light, dark = (hex_of(it.accent_ink) for it in palettes(face.rgb))
        return text.partition(_GENERATED)[0] + _GENERATED + _COLOURS % (light, dark)
    contact = format_html('<a href="{}">{}</a>', face.contact_url, face.contact)
    marked = {
        "shop": escape(" · ".join(dict.fromkeys((face.name, english.name)))),
        "contact": contact if face.contact else "",
    }
    return _MARKED.sub(lambda it: f"{it[1]}{marked[it[2]]}{it[3]}", text)
