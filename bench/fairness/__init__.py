"""Honest buyers and an attacker with many accounts, who compete for the same units.

Each contest is a whole sale over HTTP: the honest buyers have an address and an account each and
press once, as people do; the attacker's program has many accounts and few addresses and sends as
fast as it can. The share of the units that the attacker's accounts hold in the end is compared
guard by guard. Beside it, orders are measured under floods of sign-ups and of slow bodies.
"""

import django

django.setup()
