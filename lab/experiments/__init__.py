"""The experiments by name, in the order of their document."""

from lab.experiments import caches, guards, ids, sorted_sets
from lab.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    it.name: it for module in (guards, ids, caches, sorted_sets) for it in module.EXPERIMENTS
}
