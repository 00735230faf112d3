"""Write every Lua script as Redis gets it, with its includes, for a linter to read.

Usage: assemble_lua.py DIRECTORY
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from locks.lua_script import LuaScript  # noqa: E402


def main(target: Path) -> None:
    for path in ROOT.glob("[a-z]*/**/lua/[a-z]*.lua"):
        assembled = target / path.relative_to(ROOT)
        assembled.parent.mkdir(parents=True, exist_ok=True)
        assembled.write_text(LuaScript(path).source, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
