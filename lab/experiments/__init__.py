"""The experiments by name, in the order of their document."""

from lab.experiments import caches, guards, ids, servers, sorted_sets
from lab.experiments.experiment import Experiment

_IN_ORDER = (guards, ids, caches, sorted_sets, servers)

EXPERIMENTS: dict[str, Experiment] = {
    it.name: it for module in _IN_ORDER for it in module.EXPERIMENTS
}
