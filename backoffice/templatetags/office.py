"""Tags and filters of the back office's templates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from django import template
from django.db.models.options import Options
from django.template.defaultfilters import stringfilter
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst
from django.utils.translation import gettext

from backoffice.navigation import entry_of_model
from seckill_site.formatting import money_in
from seckill_site.web.admin_lists import moment

register = template.Library()
register.filter("money_in", money_in)

_UNSPACED = re.compile("(?<=[\u4e00-\u9fff])(?=[A-Za-z])|(?<=[A-Za-z])(?=[\u4e00-\u9fff])")
_COLON = re.compile("(?<=[\u4e00-\u9fff]): ?")
_ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
_CELL = re.compile(r"<t[dh]\b")


@register.simple_block_tag(end_name="endofficetable")
def officetable(
    content: str, *heads: str, label: str, columns: Iterable[str] = (), numbers: bool = False
) -> SafeString:
    """Show the rows of the block as a table, which becomes cards on a phone.

    ``columns`` are further heads, and ``label`` names the table.
    """
    names = [*heads, *columns]
    context = {
        "heads": names,
        "rows": mark_safe(_ROW.sub(lambda row: _named(row[0], names), content)),
        "label": label,
        "numbers": numbers,
    }
    return render_to_string("admin/table.html", context)


def _named(row: str, names: Iterable[str]) -> str:
    """Return a row whose cells have the names of their columns, if any, for the cards."""
    labels = iter([format_html(' data-label="{}"', name) if name else "" for name in names])
    return _CELL.sub(lambda cell: cell[0] + next(labels, ""), row)


@register.filter
def with_labels(cells: Iterable[str], headers: Iterable[Mapping[str, Any]]) -> list[SafeString]:
    """Return the cells of a row, each with the name of its column for the cards of a phone."""
    pairs = [(cell, capfirst(str(it["text"]))) for cell, it in zip(cells, headers, strict=False)]
    return [
        mark_safe(_named(cell, [] if "action-checkbox" in cell[:40] else [name]))
        for cell, name in pairs
    ]


register.filter(moment)


@register.filter(is_safe=True)
@stringfilter
def spaced(text: str) -> str:
    """Return what was put together as Chinese is written, with spaces beside Latin letters."""
    return _UNSPACED.sub(" ", _COLON.sub("：", text))


@register.filter(is_safe=True)
@stringfilter
def translated_icons(fields: str) -> str:
    """Return read-only fields whose icons of yes and no say so in the reader's language."""
    yes, no = gettext("Yes"), gettext("No")
    return fields.replace('alt="True"', f'alt="{yes}"').replace('alt="False"', f'alt="{no}"')


@register.filter
def list_title(opts: Options[Any]) -> str:
    """Return the name of a list: that of its job, if it is where the job starts."""
    entry = entry_of_model(opts.app_label, str(opts.model_name))
    is_start = entry.page.endswith(f":{opts.app_label}_{opts.model_name}_changelist")
    return str(entry.label) if is_start else capfirst(str(opts.verbose_name_plural))
