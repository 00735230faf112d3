"""The clocks of machines, Redis and the database, and which of them decides (``docs/adr/0021``)."""
