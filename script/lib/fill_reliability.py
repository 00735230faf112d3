"""Put the outcomes of a run of ``script/test --faults`` into the table of ``docs/reliability.md``.

::

    .venv/bin/python script/lib/fill_reliability.py [.run/faults.jsonl]
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench.tables import write_part  # noqa: E402
from tests.faults.table import table  # noqa: E402

if __name__ == "__main__":
    report = Path(sys.argv[1]) if sys.argv[1:] else ROOT / ".run" / "faults.jsonl"
    outcomes = [json.loads(line) for line in report.read_text().splitlines()]
    write_part(ROOT / "docs" / "reliability.md", "faults", "\n".join(table(outcomes)))
