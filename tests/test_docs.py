"""Documents name files that exist, list every decision record, and map every package."""

from __future__ import annotations

import ast
import os
import re
from fnmatch import fnmatch
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "docs" / "adr"

CODE = r"py|lua|sh"
OTHER = r"md|html|css|conf|service|svg|png|json|toml|txt|yml"
PATH = re.compile(rf"(?<![\w./*<>{{}}-])[\w*-][\w./*-]*/[\w.*-]+\.(?:{CODE}|{OTHER})\b(?!/)")
"""A relative path with a folder."""
MODULE = re.compile(rf"`([\w*]+\.(?:{CODE}))`")
"""A file that is named without its folder, because the text around it names that."""
FOLDER = re.compile(r"`((?:[\w-]+/)+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
URL = re.compile(r"https?://\S+")

STATUS = re.compile(r"(accepted|superseded by \d{4}|superseded in part by \d{4})")


GENERATED = {"__pycache__", "staticfiles", "test-results"}


@cache
def files() -> frozenset[str]:
    """Return the repository's files, relative to the root, without hidden and generated folders."""
    found = set()
    for place, inside, names in os.walk(ROOT):
        inside[:] = [it for it in inside if not it.startswith(".") and it not in GENERATED]
        found |= {(Path(place) / name).relative_to(ROOT).as_posix() for name in names}
    return frozenset(found)


@cache
def folders() -> frozenset[str]:
    return frozenset(str(parent) for name in files() for parent in PurePosixPath(name).parents)


def documents() -> list[str]:
    return sorted(name for name in files() if name.endswith(".md"))


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def exists(name: str, document: str) -> bool:
    """Say whether a path, perhaps with ``*``, leads from the root or the document to a file."""
    beside = str(PurePosixPath(document).parent / name)
    return any(_matches(each) for each in (name, beside))


def _matches(pattern: str) -> bool:
    if "*" not in pattern:
        return pattern.strip("/") in files() | folders()
    return any(fnmatch(name, pattern) for name in files())


def in_repository(name: str) -> bool:
    """Say whether a path starts in a top-level folder; others are the reader's own files."""
    return name.partition("/")[0] in folders()


@pytest.mark.parametrize("document", documents())
def test_relative_links_lead_to_files(document: str) -> None:
    targets = [target.partition("#")[0] for target in LINK.findall(text_of(document))]
    missing = [
        target
        for target in targets
        if target
        and not target.startswith(("http://", "https://", "mailto:"))
        and not (ROOT / document).parent.joinpath(target).exists()
    ]

    assert not missing


@pytest.mark.parametrize("document", documents())
def test_named_paths_exist(document: str) -> None:
    text = URL.sub("", text_of(document))
    paths = [path for path in PATH.findall(text) if is_code(path) or in_repository(path)]
    paths += [folder for folder in FOLDER.findall(text) if in_repository(folder)]

    assert not [path for path in paths if not exists(path, document)]


@pytest.mark.parametrize("document", documents())
def test_named_modules_exist(document: str) -> None:
    modules = {PurePosixPath(name).name for name in files()}
    named = MODULE.findall(text_of(document))

    assert not [name for name in named if not any(fnmatch(module, name) for module in modules)]


@cache
def defined_tests() -> frozenset[str]:
    texts = (text_of(name) for name in files() if name.endswith(".py"))
    return frozenset(
        it for text in texts for it in re.findall(r"^ *(?:async )?def (test_\w+)", text, re.M)
    )


def test_named_tests_exist() -> None:
    named = {
        it for name in documents() for it in re.findall(r"`(test_\w+[a-z0-9])`", text_of(name))
    }
    modules = {PurePosixPath(name).stem for name in files()}

    assert named - defined_tests() - modules == set()


def is_code(path: str) -> bool:
    return bool(re.search(rf"\.(?:{CODE})$", path))


# --- Decision records ----------------------------------------------------------------------------


class Record(NamedTuple):
    """A decision record, as its file or the table of all records has it."""

    number: str
    title: str
    file: str
    status: str


def records_in_folder() -> list[Record]:
    paths = sorted(path for path in RECORDS.glob("*.md") if path.name != "README.md")
    return [_read_record(path) for path in paths]


def _read_record(path: Path) -> Record:
    heading, _, status, *_ = path.read_text(encoding="utf-8").splitlines()
    number, _, title = heading.removeprefix("# ").partition(" ")
    return Record(number, title, path.name, status.removeprefix("Status: "))


def records_in_table() -> list[Record]:
    row = re.compile(r"^\| (\d{4}) \| \[(.+)\]\((.+?)\) \| (.+?) \| .+ \|$", re.MULTILINE)
    return [Record(*cells) for cells in row.findall(text_of("docs/adr/README.md"))]


def test_table_lists_every_decision_record() -> None:
    def key(record: Record) -> tuple[str, str, str]:
        return record.number, record.title, record.file

    assert [key(it) for it in records_in_table()] == [key(it) for it in records_in_folder()]


def test_decision_numbers_have_no_gaps() -> None:
    numbers = [int(record.number) for record in records_in_folder()]

    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("record", records_in_folder(), ids=lambda record: record.number)
def test_decision_file_is_named_after_its_title(record: Record) -> None:
    words = re.findall(r"[a-z0-9]+", record.title.lower().replace("'", ""))

    assert record.file == f"{record.number}-{'-'.join(words)}.md"


@pytest.mark.parametrize("record", records_in_folder(), ids=lambda record: record.number)
def test_decision_records_share_one_format(record: Record) -> None:
    headings = re.findall(r"^#+ .+$", text_of(f"docs/adr/{record.file}"), re.MULTILINE)

    assert headings[1:] == ["## Context", "## Decision", "## Consequences"]


def test_table_gives_the_status_of_each_record() -> None:
    of_file = {record.number: _status(record.file) for record in records_in_folder()}

    assert {record.number: record.status for record in records_in_table()} == of_file


def _status(file: str) -> str:
    """Return the status of a record as the table words it, without links and dates."""
    after = text_of(f"docs/adr/{file}").partition("Status: ")[2].partition("\n\n")[0]
    plain = re.sub(r"\[(\d{4})\]\([^)]+\)", r"\1", " ".join(after.split()))
    found = STATUS.findall(plain)
    return str(found[-1])


# --- Length --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("document", "words"), [("ARCHITECTURE.md", 1650), ("README.md", 1050)])
def test_first_documents_take_five_minutes(document: str, words: int) -> None:
    assert len(text_of(document).split()) <= words


# --- The ways -------------------------------------------------------------------------------------

PRODUCT = ("accounts", "api", "backoffice", "locks", "orders", "seckill_site", "vouchers")


def functions_of_the_ways() -> list[str]:
    """Return the functions that ARCHITECTURE names on the way of a page and of an order."""
    sections = text_of("ARCHITECTURE.md").split("\n## ")
    ways = "".join(it for it in sections if it.startswith("The way of "))
    return sorted(set(re.findall(r"`([a-z]\w+)`", ways)))


@pytest.mark.parametrize("name", functions_of_the_ways())
def test_function_of_a_way_is_reached_by_the_product(name: str) -> None:
    defined, used = set(), set()
    for file in sorted(it for it in files() if it.endswith(".py") and it.startswith(PRODUCT)):
        if name not in (text := text_of(file)):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                defined.add(file)
            elif name in (getattr(node, "id", None), getattr(node, "attr", None)):
                used.add(file)

    assert defined
    assert used - defined, "only its own module or tests call it"


# --- Codemap -------------------------------------------------------------------------------------

APPS = ("seckill_site", "vouchers", "orders", "api", "backoffice", "locks", "lab", "bench")
UNMAPPED = {"management", "migrations"}
"""Packages that Django names."""


def packages() -> list[str]:
    """Return the apps, and the packages in those of the shop."""
    inside = {
        str(PurePosixPath(name).parent)
        for name in files()
        if re.fullmatch(rf"(?:{'|'.join(APPS[:5])})/\w+/__init__\.py", name)
    }
    return sorted({*APPS, *(it for it in inside if PurePosixPath(it).name not in UNMAPPED)})


@pytest.mark.parametrize("package", packages())
def test_codemap_names_package(package: str) -> None:
    codemap = text_of("ARCHITECTURE.md").partition("## Codemap")[2].partition("\n## ")[0]

    assert f"`{package}/" in codemap


# --- The ASVS -------------------------------------------------------------------------------------


def test_every_asvs_item_of_level_2_has_one_row() -> None:
    rows = re.findall(r"^\| (V[\d. V]+) \| (.+?) \|", text_of("docs/asvs.md"), re.MULTILINE)
    items = [item for items, _ in rows for item in items.split()]
    assert len(items) == len(set(items)) == 253
    assert {state for _, state in rows} == {"met", "partly", "not met", "n. a."}


@pytest.mark.parametrize("document", ["docs/asvs.md", "docs/security.md"])
def test_every_test_file_a_security_page_names_has_tests(document: str) -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", text_of(document)))
    assert named
    assert all("def test_" in (ROOT / path).read_text(encoding="utf-8") for path in named)
