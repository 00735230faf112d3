"""Settings as the order path reads them: worked out once, and again after a test has changed one.

Django looks up each setting through a proxy written in Python. An order needs a dozen, which took
a tenth of its processor time.
"""

from collections.abc import Callable
from functools import cache
from typing import TypeVar

from django.core.signals import setting_changed

T = TypeVar("T")


def kept(work_out: Callable[[], T]) -> Callable[[], T]:
    """Keep what a function derives from the settings, as long as no setting changes."""
    cached = cache(work_out)
    setting_changed.connect(lambda **_: cached.cache_clear(), weak=False)
    return cached
