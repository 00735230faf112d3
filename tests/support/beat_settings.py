"""The shop's settings with shorter intervals of beat, for a test that would wait for them."""

import json
import os

from seckill_site import settings
from seckill_site.settings import *  # noqa: F403

for name, seconds in json.loads(os.environ["TEST_BEAT_S"]).items():
    settings.CELERY_BEAT_SCHEDULE[name]["schedule"] = seconds
