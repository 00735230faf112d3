"""``docs/settings.md`` lists each environment variable that the code reads, with its default."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = ROOT / "seckill_site" / "settings.py"
APPS = ("seckill_site", "vouchers", "orders", "api", "backoffice", "locks", "lab")

SET_BY_DJANGO = {"DJANGO_SETTINGS_MODULE"}

ROW = re.compile(r"^\| `([A-Z0-9_]+)` \| (.+?) \| (.+) \|$", re.MULTILINE)


def documented() -> dict[str, str]:
    """Return the defaults in the table, by variable."""
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    return {name: default for name, default, _ in ROW.findall(page)}


# --- What settings.py reads ----------------------------------------------------------------------


def settings_read() -> dict[str, str]:
    """Return the defaults in ``settings.py`` as the table writes them, by variable."""
    tree = ast.parse(SETTINGS.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _reads_env(node)]
    return {_text(call.args[0]): _default_of(call) for call in calls}


def _reads_env(call: ast.Call) -> bool:
    """Say whether a call is ``env.xxx("NAME", …)``."""
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    return isinstance(of, ast.Name) and of.id == "env" and bool(call.args)


def _default_of(call: ast.Call) -> str:
    given = [keyword.value for keyword in call.keywords if keyword.arg == "default"]
    if given and isinstance(given[0], ast.IfExp):
        assert ast.unparse(given[0].test) == "DEBUG"
        return f"{_written(given[0].body)} with `DEBUG`, else required"
    return _written(given[0]) if given else "required"


def _written(default: ast.expr) -> str:
    """Return a default as the table writes it."""
    match default:
        case ast.Constant(value=bool(value)):
            return f"`{str(value).lower()}`"
        case ast.Constant(value=int(value)):
            return str(value)
        case ast.Constant(value="") | ast.List(elts=[]) | ast.Dict(keys=[]):
            return "none"
        case ast.Constant(value=str(value)):
            return f"`{value}`"
        case ast.List(elts=items):
            return f"`{','.join(map(_text, items))}`"
        case ast.Name(id=name):  # another setting
            return f"`{name}`"
        case ast.Call(args=[ast.BinOp(right=ast.Constant(value=str(folder)))]):  # of BASE_DIR
            return f"`{folder}/`"
    raise AssertionError(f"no rule for the default {ast.unparse(default)}")


def _text(node: ast.expr) -> str:
    assert isinstance(node, ast.Constant), ast.unparse(node)
    assert isinstance(node.value, str), ast.unparse(node)
    return node.value


# --- What the rest of the code reads -------------------------------------------------------------


def read_elsewhere() -> set[str]:
    """Return the variables that the apps read from ``os.environ``."""
    paths = [path for app in APPS for path in (ROOT / app).rglob("*.py")]
    return {name for path in paths for name in _environ_names(path)} - SET_BY_DJANGO


def _environ_names(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if "environ" not in text:  # to parse all modules takes a second
        return
    tree = ast.parse(text)
    constants = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        match node:
            case (
                ast.Subscript(value=ast.Attribute(attr="environ"), slice=key, ctx=ast.Load())
                | ast.Call(
                    func=ast.Attribute(attr="get", value=ast.Attribute(attr="environ")),
                    args=[key, *_],
                )
                | ast.Compare(left=key, comparators=[ast.Attribute(attr="environ")])
            ):
                name = constants.get(key.id) if isinstance(key, ast.Name) else _text(key)
                assert isinstance(name, str), f"{path}: {ast.unparse(node)}"
                yield name


def test_every_setting_is_documented_with_its_default() -> None:
    code = settings_read()

    assert {name: documented().get(name) for name in code} == code


def test_documented_variables_are_those_that_are_read() -> None:
    assert documented().keys() == settings_read().keys() | read_elsewhere()


def test_optional_variables_outside_the_settings_have_no_default() -> None:
    outside = documented().keys() - settings_read().keys()

    assert {documented()[name] for name in outside} == {"none"}


def test_every_row_of_the_table_is_read_by_this_test() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")

    assert len(documented()) == page.count("\n| `")
