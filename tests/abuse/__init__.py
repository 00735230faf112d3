"""Attacks, each tried as an attacker would, with a control in which its guard is off.

Attacks and controls in the tests of a module are not repeated: ``docs/security.md`` names them.
Without a control are comparisons of two answers that nothing but allauth makes equal, an order id
that is sent again (it is the same order by nature), headers, and paths that do not exist.
"""

import pytest

guard_and_control = pytest.mark.parametrize("guarded", [True, False], ids=["guard", "control"])
"""Try an attack twice; in the control its guard is off, and it succeeds."""
