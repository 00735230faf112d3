"""A plan in words, for the terminal."""

from backoffice.capacity.planning import MOST_WAIT_S, TARGET, WORKERS, Moment, Plan
from backoffice.capacity.prediction import predict_rehearsal
from backoffice.figures import Figure, Section


def tables(plan: Plan) -> list[Section]:
    evening, figures = plan.evening, plan.figures
    return [
        Section(f"Each second of the {evening.before_s} s before the start", _use(plan.before)),
        Section(f"Each second of the {evening.press_s} s in which all press", _use(plan.start)),
        Section(f"Needed, with each core busy for at most {TARGET:.0%}", _needs(plan)),
        Section("Limits", _limits(plan)),
        Section(f"A rehearsal of this size, all on {figures.cores} cores", _rehearsal(plan)),
    ]


def _use(moment: Moment) -> list[Figure]:
    names = {"web": "Web", "worker": "Worker", "redis": "Redis", "database": "MariaDB"}
    cores = {name: moment.cores(part) for part, name in names.items()}
    return [
        *(Figure(it.value, _number(rate)) for it, rate in moment.rates.items() if rate),
        *(Figure(name, f"{_number(load)} cores") for name, load in cores.items() if load),
    ]


def _needs(plan: Plan) -> list[Figure]:
    return [
        Figure("Web processes", _number(plan.web_processes)),
        Figure(f"Machines of {plan.cores} cores for them", _number(plan.web_machines)),
        Figure("Worker processes", _number(WORKERS)),
        Figure("Beat processes", "1"),
        Figure("Redis servers: ledger; broker and cache", "2"),
        Figure("Memory of the ledger", f"{_number(plan.ledger_bytes / 1e6)} MB"),
        Figure("MariaDB servers", "1"),
        Figure("Cores of MariaDB", _number(plan.database_cores)),
        Figure("Machines in all, without a proxy", _number(plan.machines)),
    ]


def _limits(plan: Plan) -> list[Figure]:
    return [
        Figure("One Redis is enough", _yes(plan.one_redis_is_enough)),
        Figure("Its core is busy for", f"{plan.redis_load:.0%}"),
        Figure("It is enough for a crowd this many times as large", _number(plan.redis_times)),
        Figure("One writer is enough", _yes(plan.one_writer_is_enough)),
        Figure("From the start to the last order", f"{_number(plan.last_row_s)} s"),
        Figure(f"Units before a buyer waits {MOST_WAIT_S} s", _number(plan.writer_units)),
    ]


def _rehearsal(plan: Plan) -> list[Figure]:
    """Name the figures as the verdict of a rehearsal does."""
    evening = plan.evening
    predicted = predict_rehearsal(figures=plan.figures, buyers=evening.buyers, units=evening.units)
    return [
        Figure("Requests", f"{_number(predicted.requests_per_s)} per second"),
        Figure("From the first request to the last order", f"{_number(predicted.drain_s)} s"),
        Figure("Processor time of the web server", f"{_number(predicted.web_s)} s"),
    ]


def _yes(is_enough: bool) -> str:
    return "yes" if is_enough else "NO"


def _number(value: float) -> str:
    """Return a number with about three digits."""
    if value == round(value) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
