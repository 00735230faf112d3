"""What the oldest browsers lack: Chrome and Edge 80, Safari 13.1, Firefox 78.

From MDN's browser-compat-data: what at least one of these browsers does not have yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

LATER_APIS = Path(__file__).with_name("later_apis.txt").read_text(encoding="utf-8").split()
"""What a page may find missing. The pages use one only where they do without it as well."""

FINE_WITHOUT = {
    "AbortSignal.timeout": "wire.js has a controller and a timer",
    "BroadcastChannel": "tabs.js then tells other tabs nothing",
    "Navigator.prototype.wakeLock": "code.js then leaves the screen as it is",
}
"""The later APIs that buyers' pages use; ``tests/browser`` removes each in turn."""

OPTIONS = ("dateStyle", "timeStyle", "fractionalSecondDigits", "dayPeriod", "notation")
"""Options of Intl that some of them ignore or refuse."""

LATER_SYNTAX = {
    r"(?<![\w$&])#[A-Za-z_]": "private member",
    r"\?\?=|\|\|=|&&=": "logical assignment",
    r"\b\d[\d_]*n\b": "BigInt",
    r"\bexport\s*\*\s*as\b": "export * as",
    r"\bimport\b[^;]*\b(?:with|assert)\s*\{": "import attributes",
    r"\bstatic\s*\{": "static block",
}

PIECES = re.compile(
    r"""(?P<comment>/\*.*?\*/|//[^\n]*)
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<template>`(?:\\.|[^`\\])*`)
    |(?<=[(=,:?!&|;{}\n])\s*(?P<regex>/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+/[a-z]*)""",
    re.VERBOSE | re.DOTALL,
)


def code_of(script: str) -> str:
    """Return a script without comments and texts; of templates, only what they compute."""

    def kept(piece: re.Match[str]) -> str:
        lines = "\n" * piece[0].count("\n")
        if piece["template"]:
            return "(" + ";".join(re.findall(r"\$\{([^`]*?)\}", piece[0])) + ")" + lines
        return (" /x/ " if piece["regex"] else "''" if piece["text"] else " ") + lines

    return PIECES.sub(kept, script)


def later_in_script(script: str) -> Iterator[str]:
    """Yield what a script has that one of the oldest browsers cannot read, or may not have."""
    code = code_of(script)
    for pattern, name in LATER_SYNTAX.items():
        if re.search(pattern, code):
            yield name
    if any(re.search(r"\(\?<[=!]", it["regex"] or "") for it in PIECES.finditer(script)):
        yield "lookbehind"
    yield from _by_depth(code)
    yield from _apis(code)
    for option in OPTIONS:
        if re.search(rf"\b{option}\s*:", code):
            yield option


def _apis(code: str) -> Iterator[str]:
    for path in LATER_APIS:
        owner, _, name = path.replace("Navigator.prototype", "navigator").rpartition(".")
        pattern = rf"\.{name}\b" if owner.endswith(".prototype") else rf"\b{owner}\.{name}\b"
        if not owner:
            pattern = rf"(?<![\w.$]){name}(?![\w$]*\s*[:=](?!=))"
        if re.search(pattern, code):
            yield path


def _by_depth(code: str) -> Iterator[str]:
    """Yield a class's fields, and what is awaited outside functions."""
    braces: list[str] = []
    start = 0
    for place in re.finditer(
        r"[{}]|\bawait\b|^\s*(?:static\s+)?[\w$]+\s*(?:=(?![=>])|;)", code, re.M
    ):
        match place[0]:
            case "{":
                before = re.split(r"[;{}]", code[start : place.start()])[-1]
                braces.append("class" if re.search(r"\bclass\b[^=()]*$", before) else "")
                start = place.end()
            case "}":
                braces.pop()
                start = place.end()
            case "await":
                statement = re.split(r"[;}]", code[: place.start()])[-1]
                if not braces and "async" not in statement:
                    yield "await outside a function"
            case _:
                if braces and braces[-1] == "class":
                    yield "class field"


LATER_SELECTORS = (
    ":is(",
    ":where(",
    ":has(",
    "::part(",
    ":user-valid",
    ":user-invalid",
    ":popover",
)
"""A rule with one of these is ignored as a whole."""

LATER_PROPERTIES = (
    "inset",
    "aspect-ratio",
    "translate",
    "rotate",
    "scale",
    "container",
)
LATER_VALUES = ("color-mix(", "oklch(", "light-dark(", "lab(", "lch(", "round(", "mod(")
LATER_AT_RULES = ("@layer", "@container", "@scope", "@starting-style", "@property")


def later_in_styles(styles: str) -> Iterator[str]:
    """Yield what a style sheet has that one of the oldest browsers cannot read."""
    styles = re.sub(r"/\*.*?\*/", "", styles, flags=re.DOTALL)
    # They skip what is only for browsers that know a selector.
    styles = re.sub(r"@supports selector[^{]*\{([^{}]*\{[^{}]*\})*[^{}]*\}", "", styles)
    styles = re.sub(r"@supports[^{]*", "@supports ", styles)
    for found in (*LATER_SELECTORS, *LATER_VALUES, *LATER_AT_RULES):
        if found in styles:
            yield found
    if re.search(r":not\([^()]*,", styles):
        yield ":not() with a list"
    if re.search(r"[;{]\s*&", styles):
        yield "nesting"
    for name, value in re.findall(r"[;{]\s*([\w-]+)\s*:\s*([^;{}]+)(?=[;}])", styles):
        if name in LATER_PROPERTIES or re.match(
            r"(?:padding|margin|inset)-(?:inline|block)$", name
        ):
            yield name
        if re.search(r"\d(?:[dsl]v[hw])\b", value) and f"{name}: 100vh" not in styles:
            yield value


def buyers_files(root: Path, *, ending: str) -> dict[str, str]:
    """Return the scripts or style sheets of buyers' pages, with what they import."""
    templates = root / "templates"
    pages = [it for it in templates.rglob("*.html") if not _is_for_staff(it, templates)]
    named = {
        name
        for page in pages
        for name in re.findall(rf"seckill/([\w-]+\.{ending})", page.read_text(encoding="utf-8"))
    }
    found: dict[str, str] = {}
    while named:
        name = named.pop()
        found[name] = (root / "static/seckill" / name).read_text(encoding="utf-8")
        named |= set(re.findall(r"""["']\./([\w-]+\.js)["']""", found[name])) - set(found)
    return found


def _is_for_staff(page: Path, templates: Path) -> bool:
    its = page.relative_to(templates)
    return its.parts[0] in ("admin", "lab") or its.name in ("redeem.html", "redemptions.html")
