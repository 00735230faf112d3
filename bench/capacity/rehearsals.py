"""Rehearsals of several sizes on this machine, beside what the plan predicts for them."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from backoffice.capacity.figures import Figures
from backoffice.capacity.prediction import Prediction, predict_rehearsal
from bench.processes import cpu_spent
from bench.sale.data import open_sale
from bench.sale.run import ROOT, Run, WrongAnswers
from bench.tables import Report, shown, spread

TOLERANCE = 0.3
"""By how much a rehearsal may differ from the plan."""

HEADINGS = (
    "buyers", "units", "figure", "plan", "rehearsal", "min–max", "plan / rehearsal", "verdict",
)  # fmt: skip


@dataclass(frozen=True)
class Size:
    """The size of a rehearsal."""

    buyers: int
    units: int


SIZES = (Size(3_000, 1_000), Size(8_000, 2_000), Size(20_000, 5_000))
TINY_SIZES = (Size(40, 4), Size(60, 6))
Verdicts = Mapping[Size, Sequence[Mapping[str, Any]]]

SHOWN: dict[str, tuple[str, Callable[[Prediction], float]]] = {
    "requests_per_s": ("requests a second", lambda it: it.requests_per_s),
    "drain_s": ("seconds to the last order", lambda it: it.drain_s),
    "web_s": ("processor seconds of the web server", lambda it: it.web_s),
}


def rehearse(run: Run, size: Size) -> dict[str, Any]:
    """Run ``manage.py rehearse``; return its verdict, and the processor time of the web server.

    :raises WrongAnswers: it could not run, or the sale was not right.
    """
    command = [sys.executable, "manage.py", "rehearse", str(open_sale().pk), "--json"]
    command += ["--buyers", str(size.buyers), "--stock", str(size.units)]
    command += ["--url", f"http://127.0.0.1:{run.web.port}"]
    with cpu_spent(run.web.pids) as spent_s:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WrongAnswers(f"a rehearsal ended with {done.returncode}: {done.stdout}{done.stderr}")
    return {**json.loads(done.stdout), "web_s": spent_s[0]}


def report_on_rehearsals(figures: Figures, verdicts: Verdicts) -> Report:
    """Return the plan beside the rehearsals, and their greatest difference."""
    rows, worst = [], 0.0
    for size, of in verdicts.items():
        plan = predict_rehearsal(figures=figures, buyers=size.buyers, units=size.units)
        for name, (label, planned) in SHOWN.items():
            measured = [float(verdict[name]) for verdict in of]
            ratio = planned(plan) / median(measured)
            worst = max(worst, abs(ratio - 1))
            cells = [f"{size.buyers:,}", f"{size.units:,}", label, shown(planned(plan))]
            cells += [shown(median(measured)), spread(measured), f"{ratio:.2f}"]
            rows.append([*cells, "pass" if abs(ratio - 1) <= TOLERANCE else "MISS"])
    count = len(next(iter(verdicts.values())))
    text = f"""\
- Machine: {figures.machine}, {figures.measured_on}
- The median of {count} rehearsals of each size, in turn with the figures
- The greatest difference is {worst:.0%}; at most {TOLERANCE:.0%} is right"""
    values = {
        "figures": figures.as_json(),
        "rehearsals": [{**asdict(size), "verdicts": list(of)} for size, of in verdicts.items()],
    }
    return Report("rehearsals", HEADINGS, rows, text, values)
