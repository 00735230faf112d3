"""The drawings fit the page's weight."""

from __future__ import annotations

import pytest

from backoffice.demo.pictures import DRAWINGS
from vouchers.catalogue.pictures import BOX, as_webp

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawing_is_small_and_of_the_pages_size(name: str) -> None:
    webp = as_webp(content=DRAWINGS[name]())
    assert (webp.width, webp.height) == BOX
    assert len(webp.content) < 15_000
