"""Runs a benchmark of the whole shop: its tables, its web server, the load generator, progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.core.management import call_command
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.sale.course import Course
from bench.sale.generator import generators
from bench.sale.places import Place, web
from bench.sale.plan import Plan

Result = TypeVar("Result")


def run(plan: Plan, place: Place, work: Callable[[Course], Result]) -> Result:
    """Work with a running shop."""
    call_command("migrate", interactive=False, verbosity=0)
    with progress() as shown, web(place) as server, generators() as generator:
        return work(Course(plan, place, server, generator, shown))


def progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True))
