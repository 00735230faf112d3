"""A crowd race: the same presses for every step, a fault if asked for, and a verdict."""
