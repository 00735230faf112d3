"""Finding payment providers by the settings and by name."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import pytest
from django.conf import settings as site

from orders.payments.providers import (
    BadNotification,
    PaymentProvider,
    TooManyCalls,
    call_provider,
    current_provider,
    provider_named,
)
from orders.payments.reading import refusing_malformed
from orders.payments.sandbox import Sandbox
from tests.support.patience import GENEROUS_S
from tests.support.payments import use_fake
from tests.support.stack import ROOT

pytestmark = pytest.mark.quick


def test_half_of_the_threads_wait_for_providers() -> None:
    may_end = threading.Event()

    def wait(_: PaymentProvider) -> bool:
        return may_end.wait(GENEROUS_S)

    half = site.SECKILL_DJANGO_THREADS // 2
    with ThreadPoolExecutor(half + 1) as pool:
        calls = [pool.submit(call_provider, "sandbox", wait) for _ in range(half + 1)]
        first = next(as_completed(calls))
        assert isinstance(first.exception(), TooManyCalls)
        may_end.set()
        others = [it.result() for it in calls if it is not first]
    assert others == [True] * half
    assert call_provider("sandbox", lambda it: it.name) == "sandbox"


def test_sandbox_is_the_default_provider() -> None:
    provider: PaymentProvider = current_provider()
    assert isinstance(provider, Sandbox)
    assert provider_named("sandbox") is provider


def test_first_provider_takes_new_payments(settings: Any) -> None:
    fake = use_fake(settings)
    assert current_provider() is fake
    assert provider_named("fake") is fake
    assert isinstance(provider_named("sandbox"), Sandbox)


@pytest.mark.parametrize("name", ["", "Sandbox", "fake", "sandbox "])
def test_unknown_provider_name_raises(name: str) -> None:
    with pytest.raises(LookupError):
        provider_named(name)


def test_removed_provider_is_not_found(settings: Any) -> None:
    use_fake(settings)
    settings.SECKILL_PAYMENT_PROVIDERS = ["tests.support.payments.FakeProvider"]
    with pytest.raises(LookupError):
        provider_named("sandbox")


def test_no_module_branches_on_a_company() -> None:
    """A provider says itself what is special about it; pages and services ask it."""
    own = {f"orders/payments/{it}.py" for it in ("alipay", "stripe_checkout", "wechat_pay")}
    apps = ("accounts", "vouchers", "orders", "api", "backoffice")
    sources = {str(it.relative_to(ROOT)): it for app in apps for it in (ROOT / app).rglob("*.py")}
    assert own < set(sources)
    naming = re.compile(r"""['"](alipay|stripe|wechat|weixin://)['"]""")
    assert [it for it in sources if it not in own and naming.search(sources[it].read_text())] == []


def test_missing_provider_class_raises(settings: Any) -> None:
    settings.SECKILL_PAYMENT_PROVIDERS = ["orders.payments.sandbox.NoSuch"]
    with pytest.raises(ImportError):
        current_provider()


def test_malformed_message_is_told_in_a_few_words() -> None:
    """Anybody may send one, and the log gets a line for each."""
    with (
        pytest.raises(BadNotification) as told,
        refusing_malformed(BadNotification, "the notification"),
    ):
        (b"\xff" * 64_000).decode()
    assert len(str(told.value)) < 300
