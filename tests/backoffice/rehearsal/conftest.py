"""What the tests of rehearsals share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.rehearsals import crowd_in_a_thread


@pytest.fixture(autouse=True)
def crowd() -> Iterator[None]:
    with crowd_in_a_thread():
        yield
