"""Browsers and devices in words."""

from __future__ import annotations

import pytest
from allauth.usersessions.models import UserSession
from django.template.loader import render_to_string
from django.test import Client
from django.utils import timezone, translation
from django.utils.html import strip_tags

from tests.support.sales import make_user

ANDROID = "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko)"
IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15"
WINDOWS = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko)"
MAC = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko)"
HARMONY = "Mozilla/5.0 (Phone; OpenHarmony 5.0; HarmonyOS) AppleWebKit/537.36 Chrome/114.0.0.0"


@pytest.mark.quick
@pytest.mark.parametrize(
    ("user_agent", "english", "chinese"),
    [
        (f"{ANDROID} Chrome/126 Mobile Safari/537.36", "Chrome on Android", "Chrome（Android）"),
        (
            f"{IPHONE} Version/17.5 Mobile/15E148 Safari/604.1",
            "Safari on iPhone",
            "Safari（iPhone）",
        ),
        (f"{IPHONE} CriOS/126 Mobile Safari/604.1", "Chrome on iPhone", "Chrome（iPhone）"),
        (f"{WINDOWS} Chrome/126 Safari/537.36 Edg/126", "Edge on Windows", "Edge（Windows）"),
        (f"{MAC} Version/17.5 Safari/605.1.15", "Safari on Mac", "Safari（Mac）"),
        (
            f"{ANDROID} Version/4.0 Chrome/126 Mobile Safari/537.36 MicroMessenger/8.0.49",
            "WeChat on Android",
            "微信（Android）",
        ),
        (f"{HARMONY} HuaweiBrowser/5.0", "Huawei on HarmonyOS", "华为浏览器（HarmonyOS）"),
        (
            "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0",
            "Firefox on Linux",
            "Firefox（Linux）",
        ),
        ("curl/8.7.1", "Another browser", "其他浏览器"),
        ("", "Another browser", "其他浏览器"),
    ],
)
def test_browser_says_what_it_is_in_words(user_agent: str, english: str, chinese: str) -> None:
    its = {"agent": user_agent, "at": timezone.now()}
    for language, expected in (("en", f"{english}, today"), ("zh-hans", f"{chinese}，今天")):
        with translation.override(language):
            text = strip_tags(render_to_string("usersessions/device.html", its))
        assert text.strip().startswith(expected)


@pytest.mark.django_db
def test_page_lists_devices_without_the_raw_text(client: Client) -> None:
    ada = make_user("ada")
    client.force_login(ada, backend="django.contrib.auth.backends.ModelBackend")
    UserSession.objects.create(
        user=ada, session_key=client.session.session_key, ip="192.0.2.7",
        user_agent=f"{ANDROID} Chrome/126 Mobile Safari/537.36",
    )  # fmt: skip
    page = client.get("/accounts/sessions/", headers={"Accept-Language": "en"}).text
    words = " ".join(strip_tags(page).split())
    assert "Chrome on Android, today" in words
    assert "192.0.2.7" in words
    assert "This device" in words
    assert "Mozilla" not in page
