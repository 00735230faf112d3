"""A plan in words, for the terminal."""

from dataclasses import dataclass

from backoffice.capacity.planning import MOST_WAIT_S, TARGET, WORKERS, Moment, Plan
from backoffice.capacity.prediction import predict_rehearsal


@dataclass(frozen=True)
class Table:
    """A part of the plan: rows of a name and a value."""

    title: str
    rows: list[tuple[str, str]]


def tables(plan: Plan) -> list[Table]:
    evening, figures = plan.evening, plan.figures
    return [
        Table(f"Each second of the {evening.before_s} s before the start", _work(plan.before)),
        Table(f"Each second of the {evening.press_s} s in which all press", _work(plan.start)),
        Table(f"Needed, with each core busy for at most {TARGET:.0%}", _needs(plan)),
        Table("Limits", _limits(plan)),
        Table(f"A rehearsal of this size, all on {figures.cores} cores", _rehearsal(plan)),
    ]


def _work(moment: Moment) -> list[tuple[str, str]]:
    cores = {
        "Web": moment.web_cores,
        "Worker": moment.worker_cores,
        "Redis": moment.redis_cores,
        "MariaDB": moment.database_cores,
    }
    return [
        *((work.value, _number(rate)) for work, rate in moment.rates.items() if rate),
        *((name, f"{_number(load)} cores") for name, load in cores.items() if load),
    ]


def _needs(plan: Plan) -> list[tuple[str, str]]:
    return [
        ("Web processes", _number(plan.web_processes)),
        (f"Machines of {plan.cores} cores for them", _number(plan.web_machines)),
        ("Worker processes", _number(WORKERS)),
        ("Beat processes", "1"),
        ("Redis servers: ledger; broker and cache", "2"),
        ("Memory of the ledger", f"{_number(plan.ledger_bytes / 1e6)} MB"),
        ("MariaDB servers", "1"),
        ("Cores of MariaDB", _number(plan.database_cores)),
        ("Machines in all, without a proxy", _number(plan.machines)),
    ]


def _limits(plan: Plan) -> list[tuple[str, str]]:
    return [
        ("One Redis is enough", _yes(plan.one_redis_is_enough)),
        ("Its core is busy for", f"{plan.redis_load:.0%}"),
        ("It is enough for a crowd this many times as large", _number(plan.redis_times)),
        ("One writer is enough", _yes(plan.one_writer_is_enough)),
        ("From the start to the last order", f"{_number(plan.last_row_s)} s"),
        (f"Units before a buyer waits {MOST_WAIT_S} s", _number(plan.writer_units)),
    ]


def _rehearsal(plan: Plan) -> list[tuple[str, str]]:
    """Name the figures as the verdict of a rehearsal does."""
    evening = plan.evening
    found = predict_rehearsal(figures=plan.figures, buyers=evening.buyers, units=evening.units)
    return [
        ("Requests", f"{_number(found.requests_per_s)} per second"),
        ("From the first request to the last order", f"{_number(found.drain_s)} s"),
        ("Processor time of the web server", f"{_number(found.web_s)} s"),
    ]


def _yes(is_enough: bool) -> str:
    return "yes" if is_enough else "NO"


def _number(value: float) -> str:
    """Return a number with about three digits."""
    if value == round(value) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
