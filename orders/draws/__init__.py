"""Draws: entries become a closed list, and a seed decides their order (``docs/adr/0030``)."""
