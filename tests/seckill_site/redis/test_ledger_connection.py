"""The connection to the ledger's Redis: decoded replies, no retries, a short timeout."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack, closing

import pytest
from django.test import override_settings
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.patience import MOMENT_S


def test_replies_are_text(ledger):
    ledger.set("k", "售罄")

    assert ledger.get("k") == "售罄"


class Listener:
    """A server that accepts, and then hangs up or says nothing."""

    def __init__(self, *, hang_up):
        self.hang_up, self.accepted, self._held = hang_up, 0, []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._socket.getsockname()[1]}/0"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.accepted += 1
            if self.hang_up:
                connection.close()
            else:
                self._held.append(connection)

    def close(self):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)
        for connection in self._held:
            connection.close()


@pytest.fixture
def at_listener(settings):
    """Point the ledger at a listener; return a function that makes it."""
    with ExitStack() as stack:

        def point(*, hang_up):
            listener = stack.enter_context(closing(Listener(hang_up=hang_up)))
            there = settings.CACHES
            ledger = {**there["ledger"], "LOCATION": listener.url}
            stack.enter_context(override_settings(CACHES={**there, "ledger": ledger}))
            return listener

        yield point


def test_ledger_client_does_not_retry(at_listener):
    """The client never replays a script: only the caller knows whether that is safe."""
    listener = at_listener(hang_up=True)

    with pytest.raises(RedisConnectionError):
        ledger_connection().ping()

    assert listener.accepted == 1


@pytest.mark.usefixtures("impatient_redis")
def test_silent_server_times_out(at_listener):
    listener = at_listener(hang_up=False)
    started = time.monotonic()

    with pytest.raises(RedisTimeoutError):
        ledger_connection().ping()

    assert 0.5 < time.monotonic() - started < MOMENT_S
    assert listener.accepted == 1
