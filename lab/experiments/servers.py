"""Locks and queues on other servers: ``bench/stopped/`` has their clients and measures them."""

from collections.abc import Callable, Iterator

from django.utils.module_loading import import_string
from django.utils.translation import gettext_lazy as _

from lab.experiments.experiment import Experiment, Row


def _comparison_of(module: str) -> Callable[[], Iterator[Row]]:
    """Return the measurement of a module, which is imported when it is run."""

    def run() -> Iterator[Row]:
        yield from import_string(f"bench.stopped.{module}.compare")()

    return run


EXPERIMENTS = (
    Experiment(
        "lock-servers",
        _("Lock servers"),
        _(
            "lock|median µs|p99 µs|hand-over ms|killed: free after s|frozen: free after s"
            "|notices after ms|late write|with its token"
        ),
        _comparison_of("lock_servers"),
    ),
    Experiment(
        "queue-servers",
        _("Queue servers"),
        _("queue|lost|doubled|interrupted one again after s|others after s"),
        _comparison_of("queue_servers"),
    ),
)
