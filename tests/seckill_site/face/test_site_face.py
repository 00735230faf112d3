"""The face is the settings', in the reader's language, in pages and mails."""

from __future__ import annotations

from typing import Any

import pytest
from django.template.loader import render_to_string
from django.utils import translation

from seckill_site.face.site_face import face_digest, site_face, theme_css

pytestmark = pytest.mark.quick


@pytest.fixture
def shop(settings: Any) -> Any:
    settings.SECKILL_SHOP_NAME, settings.SECKILL_SHOP_NAME_EN = "好券集市", "Voucher Market"
    settings.SECKILL_SHOP_CONTACT = "help@shop.example"
    settings.SECKILL_SHOP_IMPRINT = settings.SECKILL_SHOP_IMPRINT_EN = "ICP 1234"
    return settings


@pytest.mark.parametrize(("language", "name"), [("zh-hans", "好券集市"), ("en", "Voucher Market")])
def test_name_is_in_the_readers_language(shop: Any, language: str, name: str) -> None:
    with translation.override(language):
        assert site_face().name == name


@pytest.mark.parametrize(
    ("contact", "url"),
    [
        ("help@shop.example", "mailto:help@shop.example"),
        ("+86 (21) 5555-0100", "tel:+862155550100"),
        ("(021) 5555 0100", "tel:02155550100"),
        ("https://shop.example/help", "https://shop.example/help"),
    ],
)
def test_contact_becomes_a_link(shop: Any, contact: str, url: str) -> None:
    shop.SECKILL_SHOP_CONTACT = contact
    assert site_face().contact_url == url


def test_imprint_is_a_text_or_a_link(shop: Any) -> None:
    assert site_face().imprint_url == ""
    shop.SECKILL_SHOP_IMPRINT = shop.SECKILL_SHOP_IMPRINT_EN = "https://shop.example/imprint"
    assert site_face().imprint_url == "https://shop.example/imprint"


def test_terms_of_a_file_are_a_page_of_the_site(shop: Any) -> None:
    shop.SECKILL_SHOP_TERMS = "/srv/terms.txt"
    with translation.override("zh-hans"):
        assert site_face().terms_url == "/terms/"
    shop.SECKILL_SHOP_TERMS = "https://shop.example/terms"
    with translation.override("zh-hans"):
        assert site_face().terms_url == "https://shop.example/terms"


def test_digest_changes_with_name_and_colour(shop: Any) -> None:
    first = face_digest()
    shop.SECKILL_SHOP_COLOUR = "#0a7d4f"
    second = face_digest()
    shop.SECKILL_SHOP_NAME = "另一家"
    assert len({first, second, face_digest()}) == 3


def test_theme_names_both_schemes_and_stays_small(shop: Any) -> None:
    shop.SECKILL_SHOP_COLOUR = "#0a7d4f"
    css = theme_css()
    assert "--accent:#0a7d4f" in css
    assert "prefers-color-scheme:dark" in css
    assert len(css) < 500


def test_mail_foot_says_whose_mail_it_is(shop: Any) -> None:
    with translation.override("en"):
        text = render_to_string("mail_foot.txt")
    assert text.splitlines()[1:] == [
        "-- ",
        f"Voucher Market · {shop.SECKILL_SITE_URL}/",
        "Contact: help@shop.example",
        "ICP 1234",
    ]
