"""The shop's settings for processes that wait for servers while the machine stands still.

For tests of what the shop does, not of how long it waits: Redis has a second otherwise, the
database five.
"""

from seckill_site.settings import *  # noqa: F403
from seckill_site.settings import CACHES, DATABASES, INSTALLED_APPS
from tests.support.patience import GENEROUS_S

for cache in CACHES.values():
    cache["OPTIONS"]["SOCKET_TIMEOUT"] = GENEROUS_S
for name in {"read_timeout", "write_timeout"} & DATABASES["default"]["OPTIONS"].keys():
    DATABASES["default"]["OPTIONS"][name] = int(GENEROUS_S)
INSTALLED_APPS = [*INSTALLED_APPS, "tests.support.patient_front_door.PatientFrontDoor"]
