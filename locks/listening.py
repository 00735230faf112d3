"""Hears of releases on one Redis server: one subscription, in one thread, while somebody waits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

from redis import Redis

from locks.owner import process_name
from locks.protocol import CHANNEL, channel_of

logger = logging.getLogger(__name__)

THREAD_NAME = "locks-listener"

LOOK_UP_S = 0.5
"""How often the thread looks whether it is still wanted."""

PATIENCE_S = 0.5
"""How long one who waits for a lock waits for the subscription first."""


class Line:
    """A subscription to the channels of releases, from its start to its end.

    ``heard`` gets the topics of each message that another process sent. ``ends`` is asked now and
    then whether the line is wanted no more; ``ended`` is called where it broke instead.
    """

    def __init__(
        self,
        client: Redis,
        *,
        heard: Callable[[Iterable[str]], None],
        ends: Callable[[], bool],
        ended: Callable[[], None],
    ) -> None:
        self._client: Any = client
        self._heard, self._ends, self._ended = heard, ends, ended
        self._subscribed = False
        self._settled = threading.Event()

    def start(self) -> None:
        """Subscribe, in a thread that ends with the line."""
        threading.Thread(target=self._run, name=THREAD_NAME, daemon=True).start()

    def is_subscribed(self, *, patience_s: float) -> bool:
        """Say whether messages are heard now, after waiting a moment for a new subscription."""
        self._settled.wait(min(PATIENCE_S, patience_s))
        return self._subscribed

    def _run(self) -> None:
        try:
            self._listen()
        except Exception as error:  # whatever it is, those who wait must be told
            logger.warning("no messages of released locks: %r", error)
            self._ended()
        finally:
            self._subscribed = False
            self._settled.set()

    def _listen(self) -> None:
        with self._client.pubsub() as subscription:
            subscription.subscribe(CHANNEL, channel_of(process_name()))
            while not self._ends():
                message = subscription.get_message(timeout=LOOK_UP_S)
                if message is not None:
                    self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        if message["type"] == "subscribe" and message["channel"] != CHANNEL:  # the last of the two
            self._subscribed = True
            self._settled.set()
        elif message["type"] == "message":
            topics = message["data"].split("\n")
            if message["channel"] != CHANNEL:
                self._heard(topics)
            elif topics[0] != process_name():  # ours were woken by the release itself
                self._heard(topics[1:])
