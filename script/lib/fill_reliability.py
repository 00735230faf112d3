"""Put the outcomes of a run of ``script/test --faults`` into the table of ``docs/reliability.md``.

::

    .venv/bin/python script/lib/fill_reliability.py [.run/faults.jsonl]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"


def main(arguments: list[str]) -> None:
    report = Path(arguments[0]) if arguments else ROOT / ".run" / "faults.jsonl"
    outcomes = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    outcomes.sort(key=lambda outcome: (outcome["fault"], outcome["what"]))
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    lines = [BEGIN, *table(outcomes), END]
    PAGE.write_text(before + "\n".join(lines) + after, encoding="utf-8")


def table(outcomes: list[dict[str, Any]]) -> list[str]:
    """Return the lines of a Markdown table, and its sums below."""
    names = list(outcomes[0])
    head = [name.replace("_", " ") for name in names]
    rows = [head, ["---"] * len(names)] + [[str(it[name]) for name in names] for it in outcomes]
    rows.append([summed(name, [outcome[name] for outcome in outcomes]) for name in names])
    return [f"| {' | '.join(row)} |" for row in rows]


def summed(name: str, values: list[Any]) -> str:
    if name in ("fault", "what"):
        return "**all**" if name == "fault" else f"{len(values)} faults"
    return f"**{max(values) if name.startswith('worst') else sum(values)}**"


if __name__ == "__main__":
    main(sys.argv[1:])
