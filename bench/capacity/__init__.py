"""What this machine spends on each operation, and rehearsals beside the plan made from it."""

import django

django.setup()
