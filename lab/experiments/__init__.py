"""The experiments by name, in the order of their document; ``bench/`` measures them."""

from lab.experiments.experiment import Experiment

_MEASURED_BY = {
    "guards": "bench.around.guards.sell",
    "innodb-locks": "bench.around.guards.lock",
    "ids": "bench.around.ids.repeat_and_reveal",
    "id-inserts": "bench.around.ids.insert",
    "encodings": "bench.around.encodings.weigh",
    "caches": "bench.around.caches.read_in_a_crowd",
    "leaderboard": "bench.around.sorted_sets.lead",
    "delay-queue": "bench.around.sorted_sets.expire",
    "lock-servers": "bench.stopped.lock_servers.compare",
    "queue-servers": "bench.stopped.queue_servers.compare",
}

EXPERIMENTS = {name: Experiment(name, path) for name, path in _MEASURED_BY.items()}
