"""``docs/six-steps.md``: the story in words, with the tables of races."""
