"""A plan in words, for the terminal."""

from dataclasses import dataclass

from backoffice.capacity.figures import Work
from backoffice.capacity.planning import Moment, Plan
from backoffice.capacity.prediction import predict_rehearsal


@dataclass(frozen=True)
class Table:
    """A part of the plan: rows of a name and a value."""

    title: str
    rows: list[tuple[str, str]]


def tables(plan: Plan) -> list[Table]:
    evening = plan.evening
    return [
        Table(
            f"In the {_number(evening.before_s)} s before the start",
            [*_rates(plan.before), *_loads(plan, plan.before)],
        ),
        Table(
            f"In the {_number(evening.press_s)} s after the start",
            [*_rates(plan.start), *_loads(plan, plan.start)],
        ),
        Table(f"Needed, each busy to at most {plan.target:.0%}", _needs(plan)),
        Table("Limits", _limits(plan)),
        Table("A rehearsal of this size on the machine of the figures", _rehearsal(plan)),
    ]


def _rates(moment: Moment) -> list[tuple[str, str]]:
    rates = [(work, moment.rate(work)) for work in moment.counts]
    return [(it.value.capitalize(), f"{_number(rate)} per second") for it, rate in rates if rate]


def _loads(plan: Plan, moment: Moment) -> list[tuple[str, str]]:
    loads = {
        "Web": plan.web_cores(moment),
        "Worker": plan.worker_cores(moment),
        "Redis": plan.redis_cores(moment),
        "MariaDB": plan.database_cores(moment),
    }
    return [(name, f"{cores:.2f} cores") for name, cores in loads.items() if cores]


def _needs(plan: Plan) -> list[tuple[str, str]]:
    return [
        ("Web processes", _number(plan.web_processes)),
        (f"Web machines of {plan.cores} cores", _number(plan.web_machines)),
        ("Worker processes, beat", f"{plan.workers}, 1"),
        ("Redis: ledger; broker and cache", "1; 1"),
        ("Memory of the ledger for this sale", f"{_number(plan.ledger_bytes / 1e6)} MB"),
        ("MariaDB", f"1 of {plan.database_processors} cores"),
        ("All of it on one such machine", "yes" if plan.one_machine_does else "no"),
    ]


def _limits(plan: Plan) -> list[tuple[str, str]]:
    return [
        ("One Redis is enough", _enough(plan.redis_is_enough, f"{plan.redis_share:.0%} busy")),
        ("It is full with a crowd of this kind of", f"{_number(plan.redis_buyers)} buyers"),
        ("or with winning orders of", f"{_number(plan.redis_orders_per_s)} per second"),
        (
            "One writer is enough",
            _enough(plan.writer_is_enough, f"last row after {_number(plan.last_row_s)} s"),
        ),
        ("It writes", f"{_number(plan.figures.rows_per_s)} per second"),
        (f"and in {_number(plan.behind_s)} s, the most it may lag", f"{_number(plan.writer_units)}"),
    ]


def _rehearsal(plan: Plan) -> list[tuple[str, str]]:
    """Use the names that the verdict of a rehearsal has."""
    evening = plan.evening
    predicted = predict_rehearsal(
        figures=plan.figures, buyers=evening.buyers, units=evening.units
    )
    return [
        ("Requests", f"{_number(predicted.requests_per_s)} per second"),
        ("From the first request to the last order", f"{_number(predicted.drain_s)} s"),
        ("Response time, median", f"{_number(predicted.p50_ms)} ms"),
    ]


def _enough(is_enough: bool, why: str) -> str:
    return f"{'yes' if is_enough else 'NO'}, {why}"


def _number(value: float) -> str:
    """Return a number with about three digits."""
    if value == round(value) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
