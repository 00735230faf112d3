#!/usr/bin/env python3
"""Write the diagrams of ``docs/diagrams.md``, and the lines of ``docs/the-asked-for-design.md``."""

import ast
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import django  # noqa: E402
from django.apps import apps  # noqa: E402

if not apps.ready:  # no server is asked
    urls = {name: f"redis://localhost:1/{n}" for n, name in enumerate(("REDIS_URL", "CACHE_URL"))}
    urls |= {"DATABASE_URL": "sqlite://:memory:", "CELERY_BROKER_URL": "redis://localhost:1/2"}
    os.environ |= {"SECRET_KEY": "-", "DEBUG": "true", **urls}
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill_site.settings")
    django.setup()

from bench.tables import write_part  # noqa: E402
from vouchers.inventory.keys import CONTENTS, LedgerKeys  # noqa: E402

DOCUMENT = ROOT / "docs" / "diagrams.md"
ASKED_FOR = ROOT / "docs" / "the-asked-for-design.md"
FUNCTION = re.compile(r"`([\w/]+\.py)(?::\d+)?` `(\w+)`")
DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
APPS = ("vouchers", "orders", "accounts", "api")

CALLS = (ROOT / "script" / "lib" / "order_calls.txt").read_text(encoding="utf-8")
"""A call a line: sender, receiver, the file that calls, what it calls, and why it does."""

SCRIPTS = ("reserve", "record_batch", "confirm", "release", "cache_row")
"""The scripts of an order's way, whose keys are shown."""


def entities(app: str) -> Iterator[str]:
    """Yield the diagram of an app's models; those of other apps are boxes without columns."""
    yield from ("```mermaid", "erDiagram")
    relations = []
    for model in apps.get_app_config(app).get_models():
        yield f"  {model.__name__} {{"
        for field in model._meta.concrete_fields:
            kind = field.get_internal_type().removesuffix("Field").removeprefix("Positive")
            marks = ["FK"] * bool(field.related_model) + ["UK"] * field.unique
            shown = " PK" if field.primary_key else f" {', '.join(marks)}" if marks else ""
            yield f"    {kind} {field.column}{shown}" + (' "or null"' if field.null else "")
            if field.related_model:
                one, many = "|o" if field.null else "||", "o|" if field.one_to_one else "o{"
                other = field.related_model.__name__
                relations.append(f"  {other} {one}--{many} {model.__name__} : {field.name}")
        yield "  }"
    yield from (*relations, "```")


def way() -> Iterator[str]:
    """Yield the calls of an order's way; raise LookupError if one is gone."""
    yield from ("```mermaid", "sequenceDiagram")
    for line in CALLS.splitlines():
        sender, receiver, file, name, why = line.split(maxsplit=4)
        nodes = ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        if name not in {getattr(it, "id", getattr(it, "attr", None)) for it in nodes}:
            raise LookupError(f"{file} no longer names {name}")
        yield f"  {sender}->>{receiver}: {name}: {why}"
    yield "```"


def ledger() -> Iterator[str]:
    """Yield a sale's keys by group, and scripts that use them; KeyError: one is undocumented."""
    keys = LedgerKeys(0)
    own = [it for it, at in vars(LedgerKeys).items() if type(at).__name__ == "_Key"]
    names = {str(getattr(keys, it)): it for it in own}
    document = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `seckill:\{<id>\}:(\w+)[^|]* \| (\w+) \|", document, re.M)
    types = dict(reversed(rows))
    locks = [it for key, it in names.items() if key.startswith("lock:")]
    movable = [names[key] for key in keys.movable if key in names]
    groups = {
        "contents": ("the ledger itself", list(CONTENTS)),
        "kept": ("moves with it", [it for it in movable if it not in CONTENTS] + ["copies"]),
        "brief": ("work and marks", [it for it in names.values() if it not in movable + locks]),
        "locks": ("locks", [*locks, "user_lock"]),
    }
    yield from ("```mermaid", "flowchart LR")
    for group, (title, members) in groups.items():
        yield f'  subgraph {group}["{title}"]'
        for name in members:
            yield f'    {name}["{name}{"" if group == "locks" else f"<br/>{types[name]}"}"]'
        yield "  end"
    for script in SCRIPTS:
        source = (ROOT / f"vouchers/inventory/lua/{script}.lua").read_text(encoding="utf-8")
        used = re.findall(r"KEYS\[[\d…]+\]\s+(?:the )?(\w+)", source.partition("\n\n")[0])
        known = (it for it in dict.fromkeys(used) if it in types or it == "contents")
        yield from (f"  {script}.lua --> {it}" for it in known)
    yield "```"


def parts() -> dict[str, str]:
    """Return each diagram, by the name of its marks in the document."""
    diagrams = {app: entities(app) for app in APPS} | {"way": way(), "ledger": ledger()}
    return {name: "\n".join(lines) for name, lines in diagrams.items()}


def with_lines(text: str) -> str:
    """Return a text with the line of each function it names; raise LookupError if one is gone."""

    def with_line(match: re.Match[str]) -> str:
        file, name = match.groups()
        for it in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
            if isinstance(it, DEFINITION) and it.name == name:
                return f"`{file}:{it.lineno}` `{name}`"
        raise LookupError(f"{file} no longer defines {name}")

    return FUNCTION.sub(with_line, text)


if __name__ == "__main__":
    ASKED_FOR.write_text(with_lines(ASKED_FOR.read_text(encoding="utf-8")), encoding="utf-8")
    for part, text in parts().items():
        write_part(DOCUMENT, part, text)
