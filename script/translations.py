#!/usr/bin/env python3
"""Keep the translations complete, without the programs of gettext.

check    every sentence of the sources is in every catalogue, translated, with its
         placeholders, and the compiled catalogues are up to date; otherwise exit with 1
update   add the sentences that a catalogue lacks, still to be translated; write their places
compile  write the .mo files from the .po files

The sentences in the sources are English. The English catalogue and those of the admin's
scripts only say sentences of Django and its packages in other words. DIRECTORY is the
repository, unless another is given.
"""

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polib
from django.conf import settings
from django.utils.translation.template import templatize

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (
    "seckill_site",
    "accounts",
    "vouchers",
    "orders",
    "api",
    "backoffice",
    "locks",
    "lab",
    "bench/around",
    "bench/stopped",
    "templates",
)
CALLS = re.compile(
    r"""\b(?:_|n?p?gettext)\((?:u?'(?:[^'\\]|\\.)*'|u?"(?:[^"\\]|\\.)*"|[\s,]|count)*\)"""
)
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|%[sd]|\{\w*\}")
FUNCTIONS = {
    "_": ("text",),
    "gettext": ("text",),
    "ngettext": ("text", "plural"),
    "pgettext": ("context", "text"),
    "npgettext": ("context", "text", "plural"),
}


class Sentence(NamedTuple):
    """A message, with its context and plural, if any."""

    text: str
    context: str | None = None
    plural: str | None = None


def main() -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("action", choices=["check", "update", "compile"])
    parser.add_argument("directory", nargs="?", type=Path, default=ROOT)
    arguments = parser.parse_args()
    settings.configure()  # reading templates needs some settings
    catalogues = sorted(arguments.directory.glob("locale/*/LC_MESSAGES/*.po"))
    if arguments.action == "compile":
        compile_all(catalogues)
    elif arguments.action == "update":
        update_all(catalogues, sentences_of(arguments.directory))
    else:
        return report(check_all(catalogues, sentences_of(arguments.directory)))
    return 0


# --- The sources ----------------------------------------------------------------------------------


def sentences_of(directory: Path) -> dict[Sentence, str]:
    """Return every sentence of the sources, with the first file that contains it."""
    sentences: dict[Sentence, str] = {}
    for source in SOURCES:
        for path in sorted((directory / source).rglob("*")):
            for sentence in sentences_in(path):
                sentences.setdefault(sentence, str(path.relative_to(directory)))
    return sentences


def sentences_in(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of a module, template or file of texts; other files have none."""
    if path.name.endswith("texts.toml"):
        yield from texts_of(tomllib.loads(path.read_text()))
    python = path.read_text() if path.suffix == ".py" else ""
    if path.suffix in (".html", ".txt"):
        python = "\n".join(CALLS.findall(templatize(path.read_text(), origin=str(path))))
    for node in ast.walk(ast.parse(python)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        parts = FUNCTIONS.get(name.removesuffix("_lazy").removesuffix("_noop"))
        texts = [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
        if parts and len(texts) >= len(parts):
            yield Sentence(**dict(zip(parts, texts, strict=False)))


def texts_of(part: Any) -> Iterator[Sentence]:
    """Yield the sentences in a part of a file of texts (text_files.py), leaving out empty ones."""
    if isinstance(part, str):
        yield from [Sentence(part)] if part else []
    elif isinstance(part, dict) and set(part) == {"one", "other"}:
        yield Sentence(part["one"], plural=part["other"])
    else:
        for each in part.values() if isinstance(part, dict) else part:
            yield from texts_of(each)


# --- The catalogues -------------------------------------------------------------------------------


def update_all(catalogues: list[Path], sentences: dict[Sentence, str]) -> None:
    places = {(sentence.text, sentence.context): path for sentence, path in sentences.items()}
    for path in catalogues:
        catalogue = polib.pofile(str(path))
        for sentence in missing_in(path, catalogue, sentences):
            entry = polib.POEntry(msgid=sentence.text, msgctxt=sentence.context)
            if sentence.plural:
                entry.msgid_plural = sentence.plural
                entry.msgstr_plural = {0: ""}
            catalogue.append(entry)
        for entry in catalogue:
            if (entry.msgid, entry.msgctxt) in places:
                entry.occurrences = [(places[entry.msgid, entry.msgctxt], "")]
        catalogue.save()


def compile_all(catalogues: list[Path]) -> None:
    for path in catalogues:
        polib.pofile(str(path)).save_as_mofile(str(path.with_suffix(".mo")))


def check_all(catalogues: list[Path], sentences: dict[Sentence, str]) -> Iterator[str]:
    """Yield a line for each fault."""
    if not catalogues:
        yield "there is no catalogue: locale/*/LC_MESSAGES/*.po"
    for path in catalogues:
        catalogue = polib.pofile(str(path))
        for sentence in missing_in(path, catalogue, sentences):
            yield f"{path}: lacks {sentence.text!r} of {sentences[sentence]}"
        keys = Counter((entry.msgid, entry.msgctxt) for entry in catalogue if not entry.obsolete)
        yield from (f"{path}: has {key[0]!r} more than once" for key in keys if keys[key] > 1)
        for entry in catalogue:
            if not entry.obsolete:
                yield from (f"{path}:{entry.linenum}: {fault}" for fault in faults_of(entry))
        compiled = path.with_suffix(".mo")
        if not compiled.exists() or compiled.read_bytes() != catalogue.to_binary():
            yield f"{compiled}: is not what the .po says: compile it"


def missing_in(
    path: Path, catalogue: polib.POFile, sentences: dict[Sentence, str]
) -> list[Sentence]:
    """Return the sentences to translate that the catalogue lacks."""
    if path.stem != "django" or path.parent.parent.name == "en":
        return []  # only overrides
    known = {(entry.msgid, entry.msgctxt) for entry in catalogue if not entry.obsolete}
    return [sentence for sentence in sentences if (sentence.text, sentence.context) not in known]


def faults_of(entry: polib.POEntry) -> Iterator[str]:
    if entry.fuzzy:
        yield f"{entry.msgid!r} is fuzzy"
    elif not entry.translated():
        yield f"{entry.msgid!r} is not translated"
    else:
        known = placeholders(entry.msgid) | placeholders(entry.msgid_plural)
        used = [placeholders(text) for text in entry.msgstr_plural.values() or [entry.msgstr]]
        # A plural form may leave out the number: "a unit".
        if any(not it <= known if entry.msgid_plural else it != known for it in used):
            yield f"{entry.msgid!r} has other placeholders than its translation"


def placeholders(text: str) -> set[str]:
    return set(PLACEHOLDER.findall(text))


def report(faults: Iterable[str]) -> int:
    """Print the faults and return the exit status."""
    lines = [f"{fault}\n" for fault in faults]
    sys.stdout.writelines(lines)
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
