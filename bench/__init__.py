"""Benchmarks, one package each; ``script/bench`` runs them by name."""
