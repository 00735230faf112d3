"""The shop's own settings, with the empty view and the classic design beside the shop."""

from seckill_site.settings import *  # noqa: F403
from seckill_site.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "bench.classic"]
ROOT_URLCONF = "bench.urls"
