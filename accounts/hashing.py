"""Password hashing, bounded in each process: orders go first.

A hash takes a third of a second of a processor. Python computes it without the interpreter's lock,
so coroutines that answer orders in the same process wait only for the processor. So few hashes run
at once, in threads of their own with a low priority; as many wait, and what is more is refused.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from allauth.core.exceptions import RateLimited
from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.http import HttpRequest
from django.utils.deprecation import MiddlewareMixin
from django.utils.translation import gettext

from seckill_site.process_memory import ProcessMemory
from seckill_site.web.errors import too_many_requests
from seckill_site.web.responses import SIGN_INS_RETRY_AFTER_S, SIGN_INS_TEXT

NICE = 10
"""By how much other threads go before one that hashes: it gets a tenth of their share."""


class TooManyHashes(Exception):
    """This process hashes, and is about to hash, as many passwords as it may."""


class _HashingThreads(ProcessMemory):
    """A few threads that hash; as many passwords as there are threads may wait for one."""

    def forget(self) -> None:
        """Have no thread yet: after a fork the old ones belong to the parent process."""
        threads = settings.SECKILL_HASHES_AT_ONCE
        # Linux has a priority for each thread: these go last.
        self._pool = ThreadPoolExecutor(threads, "hashing", initializer=os.nice, initargs=(NICE,))
        self._places = threading.Semaphore(2 * threads)

    def run(self, hash_password: Callable[[], str]) -> str:
        """Return what a function that hashes a password returns.

        :raises TooManyHashes: as many passwords wait as may.
        """
        if not self._places.acquire(blocking=False):
            raise TooManyHashes
        try:
            return self._pool.submit(hash_password).result()
        finally:
            self._places.release()


hashing_threads = _HashingThreads()


class BoundedHasher(PBKDF2PasswordHasher):
    """Django's hasher, in the threads of this process: whatever hashes or checks uses it."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        """Return the hash of a password.

        :raises TooManyHashes: as many passwords wait as may.
        """
        return hashing_threads.run(partial(super().encode, password, salt, iterations))


class TooManyMiddleware(MiddlewareMixin):
    """Answers 429 where a password was not hashed, or allauth counts too many."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> Any:
        """Return the refusal, or None for another exception."""
        if isinstance(exception, RateLimited):
            return too_many_requests(request)
        if not isinstance(exception, TooManyHashes):
            return None
        return too_many_requests(
            request, message=gettext(SIGN_INS_TEXT), retry_after_s=SIGN_INS_RETRY_AFTER_S
        )
