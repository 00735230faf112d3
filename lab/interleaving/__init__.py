"""Played races: a director moves the actors one at a time, in the same order each time."""
