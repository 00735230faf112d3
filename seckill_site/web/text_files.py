"""Files of texts: the sentences of a page or command, in English, beside its module."""

import tomllib
from pathlib import Path
from typing import Any

from django.utils.translation import gettext_lazy, ngettext_lazy

from seckill_site.formatting import grouped


def read_texts(path: Path) -> Any:
    """Return the tables of a file, with their texts in the reader's language.

    An empty text stays empty. A table of ``one`` and ``other`` is a text whose form follows the
    ``number`` that is filled in.
    """
    return _translated(tomllib.loads(path.read_text("utf-8")))


def counted(number: int | None) -> dict[str, Any]:
    """Return a count for a text of ``one`` and ``other``; one that is unknown is shown as such."""
    return {"number": number or 0, "count": grouped(number)}


def _translated(part: Any) -> Any:
    if isinstance(part, list):
        return [_translated(it) for it in part]
    if not isinstance(part, dict):
        return part and gettext_lazy(part)
    if set(part) == {"one", "other"}:
        return ngettext_lazy(part["one"], part["other"], "number")
    return {key: _translated(it) for key, it in part.items()}
