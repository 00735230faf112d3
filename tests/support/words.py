"""The words of ``docs/glossary.md``, and what is wrong in a text by them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from django.conf import settings

CHINESE = "\u4e00-\u9fff"
NAMES = re.compile(
    r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?=\d)|"
    r"\d (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b|"
    "My orders|Reminders under Account|under Merchants|Redis|Excel|WeChat( Pay)?|Alipay|Stripe|"
    "Seckill|Select (Cashier|Operator|Read-only|Shop staff)|the Sales and vouchers application|"
    "Authorization|Idempotency-Key|"
    r"\(?(Simplified )?Chinese|English|JavaScript|Chrome|Android|Safari|Firefox|Windows|Edge"
)
"""English names that keep their capitals within a sentence."""

_MARKUP = re.compile(r"<[^>]*>|%\(\w+\)s|%[sd]|\{\w*\}")
_TITLE_CASE = re.compile(r"(?<=[^.!?:;·›(“\n-]) [A-Z][a-z]+\b")


@dataclass(frozen=True)
class Row:
    """An idea with its words, and patterns of those that lost."""

    idea: str
    english: str
    not_english: tuple[str, ...]
    chinese: str
    not_chinese: tuple[str, ...]


@cache
def rows_of_glossary() -> tuple[Row, ...]:
    """Return the table of the glossary."""
    text = (Path(settings.BASE_DIR) / "docs" / "glossary.md").read_text("utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| ")][2:]
    return tuple(_row([it.strip() for it in re.split(r"(?<!\\)\|", line)[1:-1]]) for line in lines)


def _row(cells: list[str]) -> Row:
    idea, english, not_english, chinese, not_chinese = (it.replace(r"\|", "|") for it in cells)
    return Row(idea, english, _patterns(not_english), chinese, _patterns(not_chinese))


def _patterns(cell: str) -> tuple[str, ...]:
    return () if cell == "–" else tuple(cell.split(", "))


def faults_in(text: str, language: str) -> list[str]:
    """Return what a text says in losing words, or does not write as the glossary says."""
    text, is_english = _MARKUP.sub("{}", text), language == "en"
    losers = [
        it
        for row in rows_of_glossary()
        for it in (row.not_english if is_english else row.not_chinese)
    ]
    found = [match[0] for it in losers if (match := re.search(it, text))]
    if match := re.search(r"[\d}s] %(?![\d(])", text):
        found.append(match[0])
    if is_english:
        found += title_case(text)
    elif match := re.search(
        rf"[{CHINESE}](?:[:,;!?](?!//)|\.(?=\s|$))|[:,;!?]\s?[{CHINESE}]", text
    ):
        found.append(match[0])
    return found


def title_case(text: str) -> list[str]:
    """Return words in the middle of an English sentence that begin with a capital."""
    return [it.strip() for it in _TITLE_CASE.findall(NAMES.sub("", text))]


# --- What a person reads --------------------------------------------------------------------------

KEPT = re.compile(
    "JavaScript|Cookie|SHA|UTC|PIN|IP|QR|[Hh][Tt][Tt][Pp][Ss]?|Seckill|English|Redis|"
    "CSV|csv|ICP|GBK|UTF|Excel|xlsx|API|Webhook|Ctrl|JPEG|PNG|WebP|GIF|PDF|MB|sandbox|beat|Asia|"
    "选择 (Cashier|Operator|Read-only|Shop staff)|"
    "WebAuthn|PUBLIC|VERSION|PRODID|GET|HEAD|POST|Chrome|Android|Firefox|Stripe"
)
"""Words in Latin letters that a Chinese page has, too."""

_NO_WORDS = re.compile(
    r"https?://\S+|(?:whsec|sk)_\S+|deleted:\d+|mailto:\S+|\S+@\S+|\b[A-Z2-7]{16,}\b|\b[0-9a-f]{32,}\b|(?:[A-Z0-9]{4}-)+[A-Z0-9]{4}|/\S+"
    r"|\{\w*\}|\b\w*(?:\d|_)\w*\b|&\w+;"
)
"""Addresses, codes and placeholders."""

_UNSPACED = re.compile(rf"[{CHINESE}][A-Za-z](?!\d)|(?<!QQ)(?<!UC)(?<=[A-Za-z])[{CHINESE}]")

_SPOKEN = ("aria-label", "title", "alt", "placeholder", "data-copied")


class _Reader(HTMLParser):
    """Collects what a page says, by eye and ear, and the sentences of its script."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._unread = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        its = {name: value or "" for name, value in attrs}
        if tag in ("script", "style"):
            self._unread = "sentences" if its.get("id") == "sentences" else "nothing"
        self.texts += [its[name] for name in _SPOKEN if name in its]
        if tag == "meta" and its.get("property", its.get("name", "")).endswith("description"):
            self.texts.append(its["content"])

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._unread = ""

    def handle_data(self, data: str) -> None:
        if self._unread == "sentences":
            self.texts += strings_in(json.loads(data))
        elif not self._unread:
            self.texts.append(data)


def strings_in(part: Any) -> Iterator[str]:
    """Yield the texts in a JSON value, without its keys."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, list | dict):
        for each in part.values() if isinstance(part, dict) else part:
            yield from strings_in(each)


def texts_of_page(html: str) -> list[str]:
    """Return what a page says, one text for each place."""
    reader = _Reader()
    reader.feed(html)
    return [text for it in reader.texts if (text := " ".join(it.split()))]


def wrong_in(texts: Iterable[str], language: str) -> dict[str, list[str]]:
    """Return the texts that have losing words, or words of the other language."""
    return {it: found for it in texts if (found := faults_in(it, language) + strange(it, language))}


def strange(text: str, language: str) -> list[str]:
    """Return words of the other language, or beside Chinese without a space.

    Names of the tests' data are Greek.
    """
    if language == "en":
        return re.findall(rf"[{CHINESE}]+", text.replace("中文", ""))
    plain = KEPT.sub(" ", _NO_WORDS.sub(" ", text))
    return re.findall(r"[A-Za-z]{2,}", plain) + _UNSPACED.findall(text)
