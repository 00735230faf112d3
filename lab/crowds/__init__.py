"""A race of a crowd: the same presses for every step, a fault if asked for, and what came of it."""
