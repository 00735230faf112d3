"""Refuse what a module of the shop's apps remembers by itself: global, collection, class attribute.

``seckill_site/process_memory.py`` is the home of that: bounded, forgotten by a fork and by tests.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
APPS = ("seckill_site", "accounts", "vouchers", "orders", "api", "backoffice")
MAKERS = {"list", "dict", "set", "deque", "defaultdict", "OrderedDict", "Counter"}
DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
CHANGES = {
    *("add", "append", "appendleft", "clear", "difference_update", "discard", "extend"),
    *("extendleft", "insert", "intersection_update", "move_to_end", "pop", "popitem", "popleft"),
    *("remove", "reverse", "rotate", "setdefault", "sort", "subtract", "update"),
}
ARMED_BY_TESTS = {ROOT / "seckill_site/failpoints.py"}  # before or after a fork
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def main() -> int:
    files = {path for app in APPS for path in (ROOT / app).rglob("*.py")} - ARMED_BY_TESTS
    findings = [
        f"{path.relative_to(ROOT)}:{line}: {what} (see seckill_site/process_memory.py)"
        for path in sorted(files)
        for line, what in remembered(path.read_text(encoding="utf-8"))
    ]
    sys.stdout.writelines(f"{it}\n" for it in findings)
    return 1 if findings else 0


def remembered(source: str) -> list[tuple[int, str]]:
    """Return the lines by which a module remembers something, and what."""
    module = ast.parse(source)
    names = {name for statement in module.body for name in _collections(statement)}
    called = {it.func for it in ast.walk(module) if isinstance(it, ast.Call)}
    # What is changed outside of functions is still being built, like Django's urlpatterns; a name
    # for a method that changes it is not.
    changes = {it for it in _changes(module, names) - called if not isinstance(it, ast.Subscript)}
    for node in ast.walk(module):
        if isinstance(node, FUNCTIONS):
            changes |= _changes(node, names - _own_names(node))
    classes = {it.name for it in module.body if isinstance(it, ast.ClassDef)} | {"cls"}
    changes |= {
        it
        for it in ast.walk(module)
        if isinstance(it, ast.Attribute) and not isinstance(it.ctx, ast.Load)
        if isinstance(it.value, ast.Name) and it.value.id in classes
    }
    lines = {(it.lineno, f"{_root(it)} changes") for it in changes}
    lines |= {
        (it.lineno, f"global {', '.join(it.names)}")
        for it in ast.walk(module)
        if isinstance(it, ast.Global)
    }
    return sorted(lines)


def _collections(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement gives to a new list, dict, set or deque."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    else:
        return
    value = statement.value
    if isinstance(value, ast.Call):
        maker = value.func.value if isinstance(value.func, ast.Subscript) else value.func
        if ast.unparse(maker).rpartition(".")[2] not in MAKERS:
            return
    elif not isinstance(value, DISPLAYS):
        return
    yield from (it.id for it in targets if isinstance(it, ast.Name))


def _own_names(function: ast.AST) -> set[str]:
    """Return the names of a function's own, which hide those of its module."""
    nodes = list(ast.walk(function))
    stored = {it.id for it in nodes if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Store)}
    return stored | {it.arg for it in nodes if isinstance(it, ast.arg)}


def _changes(tree: ast.AST, names: set[str]) -> set[ast.expr]:
    """Return what changes an item of one of these collections, or is a method that does."""
    return {
        node
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in CHANGES)
        or (isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load))
        if _root(node) in names
    }


def _root(node: ast.AST) -> str:
    """Return the name in front of any items and methods."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


if __name__ == "__main__":
    sys.exit(main())
