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
from bench.sale.data import open_sale
from bench.sale.run import ROOT, Run, WrongAnswers
from bench.tables import Report, shown, spread

TOLERANCE = 0.3
"""By how much a rehearsal may differ from the plan."""

HEADINGS = ("buyers", "units", "figure", "plan", "rehearsals", "min–max", "plan / rehearsals")


@dataclass(frozen=True)
class Size:
    """The size of a rehearsal."""

    buyers: int
    units: int


SIZES = (Size(2_000, 200), Size(10_000, 1_000), Size(30_000, 5_000))
TINY_SIZES = (Size(40, 4), Size(60, 6))
Verdicts = Mapping[Size, Sequence[Mapping[str, Any]]]

SHOWN: dict[str, tuple[str, str, Callable[[Prediction], float]]] = {
    "requests_per_s": ("requests", "/s", lambda it: it.requests_per_s),
    "drain_s": ("first request to last order", "s", lambda it: it.drain_s),
    "p50_ms": ("median response time", "ms", lambda it: it.p50_ms),
}


def rehearse(run: Run, size: Size) -> dict[str, Any]:
    """Run ``manage.py rehearse`` and return its verdict.

    :raises WrongAnswers: it could not run, or the sale was not right.
    """
    command = [sys.executable, "manage.py", "rehearse", str(open_sale().pk), "--json"]
    command += ["--buyers", str(size.buyers), "--stock", str(size.units)]
    command += ["--url", f"http://127.0.0.1:{run.web.port}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WrongAnswers(f"a rehearsal ended with {done.returncode}: {done.stdout}{done.stderr}")
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict


def report_on(figures: Figures, verdicts: Verdicts) -> Report:
    """Return the plan beside the rehearsals, and their greatest difference."""
    rows, worst = [], 1.0
    for size, of in verdicts.items():
        plan = predict_rehearsal(figures=figures, buyers=size.buyers, units=size.units)
        for name, (label, unit, planned) in SHOWN.items():
            measured = [float(verdict[name]) for verdict in of]
            ratio = planned(plan) / median(measured)
            worst = max(worst, ratio, 1 / ratio)
            cells = [f"{shown(it)} {unit}" for it in (planned(plan), median(measured))]
            sizes = [f"{size.buyers:,}", f"{size.units:,}"]
            rows.append([*sizes, label, *cells, spread(measured), f"{ratio:.2f}"])
    text = f"""\
- Machine: {figures.machine}; figures of {figures.measured_on}
- {len(next(iter(verdicts.values())))} rehearsals of each size, in turn with the figures
- The greatest difference is {worst - 1:.0%}"""
    values = {
        "figures": figures.as_json(),
        "rehearsals": [{**asdict(size), "verdicts": list(of)} for size, of in verdicts.items()],
    }
    return Report("rehearsals", HEADINGS, rows, text, values)
