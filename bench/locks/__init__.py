"""Our lock beside those of three libraries, in one run."""
