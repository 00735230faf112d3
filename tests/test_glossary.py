"""The catalogues and templates keep to ``docs/glossary.md``.

This reaches sentences of states that no test shows; ``test_words.py`` renders the pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import allauth
import polib
import pytest
from django.conf import settings
from django.template.base import Lexer, TokenType

from tests.support.words import faults_in, rows_of_glossary

pytestmark = pytest.mark.quick

ROOT = Path(settings.BASE_DIR)
LAB = ("lab/", "bench/", "templates/lab/")
"""About the making of the shop, in its own words."""

HTML_TEXTS = re.compile(r'(?:aria-label|title|alt|placeholder)="([^"{]*)"|>([^<]*)')


def catalogue(language: str) -> polib.POFile:
    return polib.pofile(str(ROOT / "locale" / language / "LC_MESSAGES" / "django.po"))


def is_in(entry: polib.POEntry, places: tuple[str, ...]) -> bool:
    return any(place.startswith(places) for place, _ in entry.occurrences)


def texts_of(entry: polib.POEntry) -> Iterator[str]:
    yield from entry.msgstr_plural.values() or [entry.msgstr]


def test_chinese_texts_have_no_losing_word() -> None:
    wrong = {
        text: found
        for entry in catalogue("zh_Hans")
        if not is_in(entry, LAB)
        for text in texts_of(entry)
        if (found := faults_in(text, "zh-hans"))
    }
    assert wrong == {}


def test_english_texts_have_no_losing_word() -> None:
    ours = {it.msgid: it for it in catalogue("en")}
    texts = [text for entry in ours.values() for text in texts_of(entry)]
    for entry in catalogue("zh_Hans"):
        if not is_in(entry, LAB) and entry.msgid not in ours:
            texts += [it for it in (entry.msgid, entry.msgid_plural) if it]
    assert {it: found for it in texts if (found := faults_in(it, "en"))} == {}


def test_every_text_of_allauth_is_ours() -> None:
    path = Path(allauth.__file__).parent / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.po"
    shown = re.compile(
        r"(templates/)?(account|mfa|usersessions|allauth)/(?!admin|apps|models|.*/models)"
    )
    theirs = {
        (it.msgctxt, it.msgid)
        for it in polib.pofile(str(path))
        if any(shown.match(place) for place, _ in it.occurrences)
    }
    assert theirs - {(it.msgctxt, it.msgid) for it in catalogue("zh_Hans")} == set()


def test_templates_have_no_text_of_their_own() -> None:
    wrong = {}
    for path in sorted((ROOT / "templates").rglob("*")):
        if path.suffix in (".html", ".txt") and "lab" not in path.parts:
            plain = outside_of_tags(path.read_text())
            if found := own_texts(plain if path.suffix == ".html" else f">{plain}"):
                wrong[str(path.relative_to(ROOT))] = found
    assert wrong == {}


def test_scripts_have_no_sentence_of_their_own() -> None:
    sentence = re.compile(r"""["'`][A-Z][a-z]+ [a-z]+[^"'`]*["'`]|[\u4e00-\u9fff]""")
    lines = [
        line.split("// ")[0]
        for path in (ROOT / "static" / "seckill").glob("*.js")
        for line in path.read_text().splitlines()
        if not line.lstrip().startswith(("//", "*", "/*"))
    ]
    assert [line for line in lines if sentence.search(line)] == []


def outside_of_tags(template: str) -> str:
    """Return what a template says itself; its tags may contain ``<``, and are dropped first.

    Data for scripts is read by nobody else.
    """
    plain, skips_to = "", ""
    for token in Lexer(template).tokenize():
        name = token.contents.split(" ")[0]
        if token.token_type == TokenType.BLOCK and name in ("blocktranslate", "comment"):
            skips_to = f"end{name}"
        elif token.contents in ("block body_class", "block bodyclass", "block coltype"):
            skips_to = "endblock"
        elif token.token_type == TokenType.BLOCK and name == skips_to:
            skips_to = ""
        elif token.token_type == TokenType.TEXT and not skips_to:
            plain += token.contents
    return re.sub(r"<script\b.*?</script>", "", plain, flags=re.DOTALL)


def own_texts(plain: str) -> list[str]:
    found = [first or second for first, second in HTML_TEXTS.findall(plain)]
    words = [it.strip() for it in found if re.search(r"[^\W\d_]{2,}", it)]
    return [it for it in words if it not in ("中文", "English", "CSV", "(id )")]


def test_glossary_has_one_row_for_each_word() -> None:
    rows = rows_of_glossary()
    assert len({row.idea for row in rows}) == len(rows) > 30
    for row in rows:
        assert not re.search("|".join(row.not_english) or "(?!)", row.english), row
        assert not re.search("|".join(row.not_chinese) or "(?!)", row.chinese), row
