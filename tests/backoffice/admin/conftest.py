"""Members of staff who may look at sales, and run them."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.support.staff import staff_with


@pytest.fixture
def operator(db: None) -> Client:
    return staff_with("view_seckillvoucher", "run_seckillvoucher")


@pytest.fixture
def looker(db: None) -> Client:
    return staff_with("view_seckillvoucher", name="looker")
