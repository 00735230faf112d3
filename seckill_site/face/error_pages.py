"""nginx's own error pages with the shop's face: nobody is there to render them when they show."""

import re
from pathlib import Path

from django.conf import settings
from django.utils.html import format_html
from django.utils.translation import override

from seckill_site.face.colours import hex_of, palettes
from seckill_site.face.site_face import site_face

PAGES = Path(__file__).resolve().parents[2] / "deploy" / "errors"
"""The pages as they come, with the usual face."""

_GENERATED = "\n/* The shop's colour, written by manage.py error_pages. */\n"


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
    if kind == ".css":
        return text.partition(_GENERATED)[0] + _GENERATED + _colours()
    if kind != ".html":
        return text
    for name, content in (("shop", _names()), ("contact", _contact())):
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        pattern = re.compile(f"{start}.*?{end}", re.DOTALL)
        text = pattern.sub(lambda _, it=start + content + end: it, text)  # type: ignore[misc]
    return text


def _names() -> str:
    names = dict.fromkeys((settings.SECKILL_SHOP_NAME, settings.SECKILL_SHOP_NAME_EN))
    return format_html("{}", " · ".join(names))


def _contact() -> str:
    with override("zh-hans"):
        face = site_face()
    if not face.contact:
        return ""
    return format_html('<a href="{}">{}</a>', face.contact_url, face.contact)


def _colours() -> str:
    light, dark = (hex_of(it.accent_ink) for it in palettes(site_face().rgb))
    return (
        f":root {{\n  --accent: {light};\n}}\n\n"
        f"@media (prefers-color-scheme: dark) {{\n  :root {{\n    --accent: {dark};\n  }}\n}}\n"
    )
