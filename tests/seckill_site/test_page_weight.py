"""What a first visit of the purchase page costs on its way: less than 50 kB with any picture."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from posixpath import join, normpath

import pytest
from django.test import Client

from tests.support.photos import give_picture, image_file
from tests.support.sales import make_loaded_sale, make_user, make_voucher
from vouchers.catalogue.pictures import LARGEST_BYTES, as_webp
from vouchers.models import Picture

pytestmark = pytest.mark.django_db

MOST_BYTES = 50_000
NGINX_LEVEL = 5
"""``gzip_comp_level`` in ``deploy/nginx.conf``: WhiteNoise compresses files, and no pages."""

ASSET = re.compile(r'(?:href|src)="/static/([^"]+)"')
IMPORT = re.compile(r'(?:from|import)\s*"(\.[^"]+)"')
"""An import that every visit loads; ``import("…")`` loads when a page comes to need it."""

LATER = re.compile(r'import\("(\./[^"]+)"\)')
"""What a buyer's page loads later; the counter's camera loads a library, for staff alone."""

MOST_BYTES_LATER = 2_500


@pytest.fixture
def sent_bytes(settings):
    """How many bytes a static file is on its way, compressed as WhiteNoise sends it."""
    root = Path(settings.STATIC_ROOT)

    def measure(name):
        kept = [root / f"{name}{suffix}" for suffix in (".gz", "")]
        return next(path.stat().st_size for path in kept if path.exists())

    return measure


@pytest.fixture
def with_imports(settings):
    """The names of static files, and of all modules that they import."""
    root = Path(settings.STATIC_ROOT)

    def found(names, seen=frozenset()):
        for name in names:
            if name in seen:
                continue
            seen = seen | {name}
            if name.endswith(".js"):
                folder = name.rpartition("/")[0]
                imports = IMPORT.findall((root / name).read_text(encoding="utf-8"))
                seen = found([normpath(join(folder, other)) for other in imports], seen)
        return seen

    return found


def page_of(client, sale, language):
    response = client.get(
        f"/vouchers/{sale.pk}/", headers={"Accept": "text/html", "Accept-Language": language}
    )
    assert response.status_code == 200
    return response.content.decode()


@pytest.mark.parametrize("language", ["en", "zh-CN"])
@pytest.mark.parametrize("signed_in", [False, True])
def test_first_visit_of_purchase_page_is_light(sent_bytes, with_imports, language, signed_in):
    sale = make_loaded_sale(
        voucher=make_voucher(title="火锅双人套餐代金券" * 10, rules="每人限购一份。\n" * 60)
    )
    give_picture(sale.voucher)
    client = Client()
    if signed_in:
        client.force_login(make_user("ada"), backend="django.contrib.auth.backends.ModelBackend")

    page = page_of(client, sale, language)
    assets = with_imports(ASSET.findall(page))
    weights = {name: sent_bytes(name) for name in assets}
    weights["the page"] = len(gzip.compress(page.encode(), NGINX_LEVEL))
    weights["the picture"] = LARGEST_BYTES

    assert any(name.endswith(".css") for name in assets)
    assert sum(name.endswith(".js") for name in assets) >= 3
    assert sum(weights.values()) < MOST_BYTES, sorted(weights.items(), key=lambda item: -item[1])


def test_what_a_page_loads_later_is_light(sent_bytes, settings):
    folder = Path(settings.STATIC_ROOT) / "seckill"
    scripts = [it.read_text(encoding="utf-8") for it in folder.glob("*.js")]
    later = {name for script in scripts for name in LATER.findall(script)}

    assert any("/work." in name for name in later)
    weights = {name: sent_bytes(normpath(join("seckill", name))) for name in later}
    # One or the other: who is refused by a rule has no work to do.
    assert max(weights.values()) < MOST_BYTES_LATER, weights


def test_no_picture_exceeds_the_assumed_size():
    stored = give_picture(make_voucher())

    assert len(bytes(Picture.objects.get(pk=stored.pk).content)) <= LARGEST_BYTES
    assert len(as_webp(content=image_file()).content) <= LARGEST_BYTES
