"""The generated files are public and kept for ever; pages and errors wear the face."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from seckill_site.face.site_face import face_digest
from tests.support.sales import make_sale, make_voucher
from vouchers.models import Merchant

pytestmark = pytest.mark.django_db

HTML = {"Accept": "text/html", "Accept-Language": "en"}


@pytest.fixture(autouse=True)
def shop(settings: Any) -> Any:
    settings.SECKILL_SHOP_NAME, settings.SECKILL_SHOP_NAME_EN = "好券集市", "Voucher & Market"
    settings.SECKILL_SHOP_CONTACT = "help@shop.example"
    settings.SECKILL_SHOP_COLOUR = "#0a7d4f"
    settings.SECKILL_SITE_URL = "https://shop.example"
    return settings


def meta(page: str) -> dict[str, str]:
    return dict(re.findall(r'<meta (?:name|property)="([^"]+)" content="([^"]*)"', page))


@pytest.mark.parametrize(
    "name", ["theme.css", "icon-64.png", "icon-maskable.png", "en.webmanifest"]
)
def test_generated_file_is_kept_for_ever(client: Client, name: str) -> None:
    answer = client.get(f"/face/{face_digest()}/{name}")
    assert answer.status_code == 200
    assert "immutable" in answer["Cache-Control"]
    assert not answer.cookies


def test_file_of_another_release_is_not_kept(client: Client) -> None:
    answer = client.get("/face/0123456789abcdef/theme.css")
    assert answer.status_code == 200
    assert "immutable" not in answer["Cache-Control"]


def test_unknown_icon_is_404(client: Client) -> None:
    assert client.get(f"/face/{face_digest()}/icon-65.png").status_code == 404


def test_manifest_names_shop_colour_and_icons(client: Client) -> None:
    answer = client.get(f"/face/{face_digest()}/zh-hans.webmanifest")
    assert answer["Content-Type"] == "application/manifest+json"
    found = json.loads(answer.content)
    assert (found["name"], found["theme_color"]) == ("好券集市", "#0a7d4f")
    assert found["lang"] == "zh-Hans"
    english = client.get(f"/face/{face_digest()}/en.webmanifest").json()
    assert (english["name"], english["lang"]) == ("Voucher & Market", "en")
    assert {it["purpose"] for it in found["icons"]} == {"any", "maskable"}
    for each in found["icons"]:
        assert client.get(each["src"])["Content-Type"] == "image/png"


def test_error_page_wears_the_face(client: Client) -> None:
    page = client.get("/nothing/", headers=HTML).content.decode()
    assert page.count("Voucher &amp; Market") >= 3
    assert 'href="mailto:help@shop.example"' in page
    assert "theme.css" in page
    assert "style=" not in page


def test_sale_tells_others_title_text_picture_and_address(client: Client) -> None:
    merchant = Merchant.objects.create(name="Old Street")
    sale = make_sale(voucher=make_voucher(title="面", title_en="Noodles", merchant=merchant))
    found = meta(client.get(f"/vouchers/{sale.pk}/", headers=HTML).content.decode())
    assert found["og:title"] == "Noodles"
    assert found["og:url"] == f"https://shop.example/vouchers/{sale.pk}/"
    assert found["og:image"].startswith("https://shop.example/face/")
    assert found["og:site_name"] == "Voucher &amp; Market"
    assert found["description"] == found["og:description"]
    assert found["description"].startswith("Old Street · ¥80 instead of ¥100.")


def test_terms_show_the_file(client: Client, shop: Any, tmp_path: Path) -> None:
    assert client.get("/terms/", headers=HTML).status_code == 404
    file = tmp_path / "terms.txt"
    file.write_text("Pay first.\n\n<b>Then</b> eat.", encoding="utf-8")
    shop.SECKILL_SHOP_TERMS_EN = str(file)
    answer = client.get("/terms/", headers=HTML)
    assert "<p>Pay first.</p>" in answer.content.decode()
    assert "&lt;b&gt;Then" in answer.content.decode()
    assert "public" in answer["Cache-Control"]


def test_usual_face_needs_no_further_style_sheet(client: Client, shop: Any) -> None:
    shop.SECKILL_SHOP_COLOUR = "#CF2318"
    assert "theme.css" not in client.get("/", headers=HTML).content.decode()


def test_pages_survive_a_face_that_cannot_be_shown(client: Client, shop: Any) -> None:
    shop.SECKILL_SHOP_COLOUR, shop.SECKILL_SHOP_LOGO = "red", "/nowhere/logo.png"
    assert client.get("/", headers=HTML).status_code == 200
    assert client.get(f"/face/{face_digest()}/theme.css").status_code == 200
    assert client.get(f"/face/{face_digest()}/icon-64.png").status_code == 200
