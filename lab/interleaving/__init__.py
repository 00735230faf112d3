"""A played race: a director moves its actors one at a time, in the same order each time."""
