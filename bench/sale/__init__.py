"""The whole shop under load: requests, commits, a sale from end to end, size and memory.

Everything here works inside Django, with the settings that the environment names.
"""

import django

django.setup()
