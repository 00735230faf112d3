"""The shop behind each web server that could serve it, in one run."""
