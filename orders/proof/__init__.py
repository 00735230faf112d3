"""The proof of a first-come sale: its chain as anybody may see and check it."""
