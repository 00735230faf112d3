"""The pictures fit the page's weight."""

from __future__ import annotations

from pathlib import Path

import pytest

from backoffice.demo.sales import PICTURES
from vouchers.catalogue.pictures import BOX, as_webp

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("path", sorted(PICTURES.iterdir()), ids=lambda path: path.stem)
def test_picture_is_small_and_of_the_pages_size(path: Path) -> None:
    webp = as_webp(content=path.read_bytes())
    assert (webp.width, webp.height) == BOX
    assert len(webp.content) < 15_000
