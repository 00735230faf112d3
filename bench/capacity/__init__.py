"""What this machine spends on each piece of work, and rehearsals beside the plan made from it."""

import django

django.setup()
