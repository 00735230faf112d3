"""The whole shop under load: requests, writing, a sale from end to end, size and memory.

All of it works inside Django, with the settings that the environment names.
"""

import django

django.setup()
