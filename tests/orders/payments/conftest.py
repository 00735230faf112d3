"""The stand-in of a provider, for every module of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from orders.payments import http_calls, providers
from tests.support.patience import GENEROUS_S
from tests.support.stand_ins.server import Fault, StandIn


@pytest.fixture
def at(
    request: pytest.FixtureRequest, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StandIn]:
    """A provider's stand-in, which takes all payments; it has to find no fault with us."""
    is_silent = request.node.callspec.params.get("fault") is Fault.SILENCE
    monkeypatch.setattr(http_calls, "CALL_S", 0.7 if is_silent else GENEROUS_S)
    stand_in: StandIn = request.param()
    stand_in.configure(settings)
    settings.SECKILL_PAYMENT_PROVIDERS = [stand_in.path]
    providers._load.cache_clear()
    try:
        yield stand_in
        assert stand_in.violations == []
    finally:
        stand_in.close()
