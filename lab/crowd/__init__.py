"""A crowd race: the same presses for every step, an optional fault, and a verdict."""
