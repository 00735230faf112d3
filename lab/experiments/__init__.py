"""The experiments by name, in the order of their document."""

from lab.experiments import ids
from lab.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {it.name: it for it in (*ids.EXPERIMENTS,)}
