"""Buyers' scripts and style sheets fit the oldest browsers that the README names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.old_browsers import (
    FINE_WITHOUT,
    buyers_files,
    later_in_script,
    later_in_styles,
)

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
SCRIPTS, STYLES = (buyers_files(ROOT, ending=it) for it in ("js", "css"))


def test_buyers_pages_have_scripts_and_styles() -> None:
    assert {"purchase.js", "wire.js", "work.js", "receipt.js", "list.js"} <= set(SCRIPTS)
    assert "board.js" not in SCRIPTS
    assert {"site.css", "room.css", "code.css"} <= set(STYLES)


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_script_fits_the_oldest_browsers(name: str) -> None:
    assert set(later_in_script(SCRIPTS[name])) - set(FINE_WITHOUT) == set()


def test_what_is_missing_is_used() -> None:
    used = {it for script in SCRIPTS.values() for it in later_in_script(script)}
    assert used == set(FINE_WITHOUT)


@pytest.mark.parametrize("name", sorted(STYLES))
def test_style_sheet_fits_the_oldest_browsers(name: str) -> None:
    assert list(later_in_styles(STYLES[name])) == []


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("class A {\n  #timer;\n}", "private member"),
        ("class A {\n  timer = 1;\n}", "class field"),
        ("class A {\n  f() { if (a) { b(); } }\n  timer;\n}", "class field"),
        ("class A extends B {\n  static {\n    a();\n  }\n}", "static block"),
        ("const a = 1;\nawait ask();", "await outside a function"),
        ("a ??= 1;", "logical assignment"),
        ("const a = 10n;", "BigInt"),
        ("export * as a from './a.js';", "export * as"),
        ("const a = /(?<=b)c/;", "lookbehind"),
        ("const a = list.at(-1);", "Array.prototype.at"),
        ("const a = `${list.toSorted()} of`;", "Array.prototype.toSorted"),
        ("element.replaceChildren();", "Element.prototype.replaceChildren"),
        ("const signal = AbortSignal.timeout(1);", "AbortSignal.timeout"),
        ("const a = structuredClone(b);", "structuredClone"),
        ("const a = { fractionalSecondDigits: 3 };", "fractionalSecondDigits"),
    ],
)
def test_check_finds_what_is_later(script: str, found: str) -> None:
    assert found in set(later_in_script(script))


@pytest.mark.parametrize(
    "script",
    [
        "class A {\n  constructor() {\n    this.timer = 1;\n  }\n}",
        "async function f() {\n  const a = await ask();\n  return a?.b ?? 10_000;\n}",
        "const f = async () => Boolean(await ask());",
        "// list.at(-1), #timer\nconst a = 'a ??= 1';",
        "const a = /#b/.test(c);\nlist.timeout = 1;",
        "try {\n  a();\n} catch {\n  import('./work.js');\n}",
    ],
)
def test_check_passes_what_is_old_enough(script: str) -> None:
    assert list(later_in_script(script)) == []


@pytest.mark.parametrize(
    "styles",
    [
        ".a:is(.b, .c) { top: 0; }",
        ".a:not(.b, .c) { top: 0; }",
        ".a:has(> .b) { top: 0; }",
        ".a { inset: 0; }",
        ".a { top: 0; aspect-ratio: 1; }",
        ".a { padding-inline: 1px; }",
        ".a { height: 50dvh; }",
        ".a { &:hover { top: 0; } }",
        "@layer a { .b { top: 0; } }",
    ],
)
def test_check_finds_styles_that_are_later(styles: str) -> None:
    assert list(later_in_styles(styles))


def test_check_passes_styles_that_they_skip() -> None:
    styles = "@supports selector(:has(*)) {\n  .a:has(.b) { top: 0; }\n}\n.c { right: 0; }"
    assert list(later_in_styles(styles)) == []
