"""Static files: each under the hash of its content, also where one module imports another."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from seckill_site.static_storage import StaticStorage, without_comments

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


def test_without_collected_files_a_page_names_the_plain_ones(settings, tmp_path):
    assert StaticStorage(location=tmp_path, base_url="/static/").url("no.css") == "/static/no.css"
    with pytest.raises(ValueError, match="Missing staticfiles manifest entry"):
        StaticStorage(location=settings.STATIC_ROOT, base_url="/static/").url("no.css")


def test_comment_lines_and_indentation_are_left_out():
    source = (
        "// A page.\n\n/**\n * Two\n * lines. */\nexport const a = () => {\n"
        '  const url = "https://b"; // kept\n  /* one */\n  return url;\n};\n'
    )
    assert without_comments(source) == (
        'export const a = () => {\nconst url = "https://b"; // kept\nreturn url;\n};\n'
    )


@pytest.mark.parametrize(
    ("name", "is_ours"), [("seckill/purchase.js", True), ("vendor/jsqr/jsQR.js", False)]
)
def test_only_our_own_files_are_shortened(collected, settings, name, is_ours):
    source = (Path(settings.BASE_DIR) / "static" / name).read_text(encoding="utf-8")
    kept = collected[name].read_text(encoding="utf-8")
    assert len(kept) > 10_000
    assert (kept == source) is not is_ours
    assert ("// The purchase page" in kept) is False
