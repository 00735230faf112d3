"""Put the outcomes of a run of ``script/test --faults`` into the table of ``docs/reliability.md``.

::

    .venv/bin/python script/lib/fill_reliability.py [.run/faults.jsonl]
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.faults.table import table  # noqa: E402

PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"


def main(report: Path) -> None:
    outcomes = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    lines = [BEGIN, *table(outcomes), END]
    PAGE.write_text(before + "\n".join(lines) + after, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / ".run" / "faults.jsonl")
