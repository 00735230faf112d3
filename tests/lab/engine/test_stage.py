"""The stage of a race: which keys of Redis it deletes."""

from __future__ import annotations

import pytest

from lab.engine.fork_server import ForkServer
from lab.engine.stage import Stage
from lab.steps import STEPS
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys

pytestmark = pytest.mark.django_db(transaction=True)

STEPS_WITH_KEPT_KEYS = [("v4", 1), ("ours", 0)]
"""The shop's keys with the id of a lab sale belong to another sale; ours is the control."""


@pytest.mark.parametrize(("step", "kept"), STEPS_WITH_KEPT_KEYS)
def test_clearing_a_lab_sale_keeps_shop_keys(step: str, kept: int, fork_server: ForkServer) -> None:
    client = ledger_connection()
    with Stage(STEPS[step], fork_server) as stage:
        stage.open(units=1, buyers=1)
        lock = LedgerKeys(stage.sale_id).sale_lock
        client.set(lock, "another holder")
    assert client.exists(lock) == kept


@pytest.mark.parametrize(("step", "kept"), STEPS_WITH_KEPT_KEYS)
def test_emptying_redis_for_a_lab_sale_keeps_shop_keys(
    step: str, kept: int, fork_server: ForkServer
) -> None:
    client = ledger_connection()
    with Stage(STEPS[step], fork_server) as stage:
        stage.open(units=1, buyers=1)
        pending = LedgerKeys(stage.sale_id).pending
        client.set(pending, "another sale's")
        stage.delete_keys()
        assert client.exists(pending) == kept
