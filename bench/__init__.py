"""Benchmarks, a package each; ``script/bench`` runs them by name."""
