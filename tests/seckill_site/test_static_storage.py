"""Static files: each under the hash of its content, also where one module imports another."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from seckill_site.static_storage import without_comments

pytestmark = pytest.mark.quick


@pytest.fixture
def collected(settings):
    """The collected files by the names they are asked for."""
    root = Path(settings.STATIC_ROOT)
    manifest = json.loads((root / "staticfiles.json").read_text(encoding="utf-8"))
    return {name: root / hashed for name, hashed in manifest["paths"].items()}


def test_every_collected_file_exists(collected):
    assert "seckill/site.css" in collected
    assert [name for name, path in collected.items() if not path.exists()] == []


def test_hashed_modules_import_existing_hashed_modules(collected):
    modules = [path for name, path in collected.items() if re.fullmatch(r"seckill/.*\.js", name)]
    imports = [
        (path, found)
        for path in modules
        for found in re.findall(r'(?:from|import)\s*\(?\s*"(\./[^"]+)"', path.read_text())
    ]

    assert imports
    for path, found in imports:
        assert re.search(r"\.[0-9a-f]{12}\.js$", found), f"{path.name} imports {found}"
        assert (path.parent / found).exists()


def test_comment_lines_and_indentation_are_left_out():
    source = (
        "// A page.\n\n/**\n * Two\n * lines. */\nexport const a = () => {\n"
        '  const url = "https://b"; // kept\n  /* one */\n  return url;\n};\n'
    )
    assert without_comments(source) == (
        'export const a = () => {\nconst url = "https://b"; // kept\nreturn url;\n};\n'
    )


@pytest.mark.parametrize("folder", ["seckill", "vendor/jsqr"])
def test_only_our_own_files_are_shortened(settings, folder):
    stored = Path(settings.STATIC_ROOT) / folder
    sources = Path(settings.BASE_DIR) / "static" / folder
    for source in sources.glob("*.js"):
        text = source.read_text(encoding="utf-8")
        kept = (stored / source.name).read_text(encoding="utf-8")
        assert kept == (without_comments(text) if folder == "seckill" else text)
