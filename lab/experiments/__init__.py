"""The experiments by name, in the order of their document; ``bench/`` measures them."""

from django.utils.translation import gettext_lazy as _

from lab.experiments.experiment import Experiment

_IN_ORDER = (
    Experiment(
        "guards",
        _("Guards in a crowd"),
        _("step|sold|turned away|UPDATEs per order|orders/s|p99 ms"),
        "bench.around.guards.sell",
    ),
    Experiment(
        "innodb-locks",
        _("What InnoDB locks"),
        _("statement|isolation level|records|gaps"),
        "bench.around.guards.lock",
    ),
    Experiment(
        "ids",
        _("Ids for orders"),
        _("kind|bits|repeated: counter lost|repeated: two regions|late: clock back|sales seen"),
        "bench.around.ids.repeat_and_reveal",
    ),
    Experiment(
        "id-inserts",
        _("Inserting ids"),
        _("kind|rows/s|to auto-increment|rows, MiB|index by buyer, MiB"),
        "bench.around.ids.insert",
    ),
    Experiment(
        "caches",
        _("Caches in front of the database"),
        _("read|how|reads/s|queries/s|most in 50 ms|p99 ms|keys"),
        "bench.around.caches.read_in_a_crowd",
    ),
    Experiment(
        "leaderboard",
        _("A leaderboard"),
        _("how|count an order, ms|top ten, ms|rank of one, ms|sales lost with Redis"),
        "bench.around.sorted_sets.lead",
    ),
    Experiment(
        "delay-queue",
        _("A delay queue for unpaid orders"),
        _(
            "how|late p50, ms|late p99, ms|looks/s|empty look, ms|taken twice"
            "|lost: worker dies|lost: Redis empty"
        ),
        "bench.around.sorted_sets.expire",
    ),
    Experiment(
        "lock-servers",
        _("Lock servers"),
        _(
            "lock|median µs|p99 µs|hand-over ms|killed: free after s|frozen: free after s"
            "|notices after ms|late write|with its token"
        ),
        "bench.stopped.lock_servers.compare",
    ),
    Experiment(
        "queue-servers",
        _("Queue servers"),
        _("queue|lost|doubled|interrupted one again after s|others after s"),
        "bench.stopped.queue_servers.compare",
    ),
)

EXPERIMENTS: dict[str, Experiment] = {it.name: it for it in _IN_ORDER}
