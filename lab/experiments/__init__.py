"""The experiments by name, in the order of their document."""

from lab.experiments import caches, ids, servers, sorted_sets
from lab.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    it.name: it for module in (ids, caches, sorted_sets, servers) for it in module.EXPERIMENTS
}
