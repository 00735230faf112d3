"""A subscription to the releases on one Redis server, in a thread of its own while threads wait."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

from redis import Redis

from locks.owner import process_name
from locks.protocol import CHANNEL, process_channel

logger = logging.getLogger(__name__)

THREAD_NAME = "locks-subscription"

CHECK_S = 0.5
"""Seconds between two checks whether the subscription is still needed."""

START_S = 0.5
"""Seconds for which a waiting thread waits for a new subscription at most."""


class Subscription:
    """A subscription to the channels of releases, from its start to its end.

    ``on_release`` gets the topics of each message from another process. ``is_over`` says now and
    then whether nobody needs the subscription any more. ``on_broken`` is called if it broke.
    """

    def __init__(
        self,
        client: Redis,
        *,
        on_release: Callable[[Iterable[str]], None],
        is_over: Callable[[], bool],
        on_broken: Callable[[], None],
    ) -> None:
        """Subscribe in a thread that ends with the subscription."""
        self._client: Any = client
        self._on_release, self._is_over, self._on_broken = on_release, is_over, on_broken
        self._subscribed = False
        self._settled = threading.Event()
        threading.Thread(target=self._run, name=THREAD_NAME, daemon=True).start()

    def is_subscribed(self, *, wait_s: float) -> bool:
        """Return whether messages arrive now, after a short wait for a new subscription."""
        self._settled.wait(min(START_S, wait_s))
        return self._subscribed

    def _run(self) -> None:
        try:
            with self._client.pubsub() as pubsub:
                pubsub.subscribe(CHANNEL, process_channel(process_name()))
                while not self._is_over():
                    message = pubsub.get_message(timeout=CHECK_S)
                    if message is not None:
                        self._handle(message)
        except Exception as error:  # whatever it is, the waiting threads must learn of it
            logger.warning("no messages of released locks: %r", error)
            self._on_broken()
        finally:
            self._subscribed = False
            self._settled.set()

    def _handle(self, message: dict[str, Any]) -> None:
        if message["type"] == "subscribe" and message["channel"] != CHANNEL:  # the last of the two
            self._subscribed = True
            self._settled.set()
        elif message["type"] == "message":
            topics = message["data"].split("\n")
            if message["channel"] != CHANNEL:
                self._on_release(topics)
            elif topics[0] != process_name():  # our own releases wake our threads directly
                self._on_release(topics[1:])
