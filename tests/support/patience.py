"""How long tests wait, on machines that now and then stand still for a second or more."""

from __future__ import annotations

MOMENT_S = 6.0
"""More than any time-out of the site, less than the minutes that libraries wait of themselves."""
