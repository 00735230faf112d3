"""Small races for tests: real processes and threads on the test's own database."""

from __future__ import annotations

import tempfile
from pathlib import Path

from lab.crowds.crowd import Crowd
from lab.crowds.faults import Fault
from lab.crowds.selling import Progress, Sale
from lab.steps import STEPS
from lab.verdict import Verdict

SMALL = Crowd(buyers=60, stock=20, processes=2, threads=4)


def race(step: str, *, fault: Fault = Fault.NONE, crowd: Crowd = SMALL) -> Verdict:
    """Let a crowd buy from a step."""
    with tempfile.TemporaryDirectory() as directory:
        sale = Sale(STEPS[step], crowd=crowd, fault=fault, directory=Path(directory))
        return sale.run(ignore)


def ignore(progress: Progress) -> None:
    """Nobody looks on."""
