"""Which payment providers there are, and under which name each is found."""

from __future__ import annotations

from typing import Any

import pytest

from orders.payments.providers import PaymentProvider, current_provider, provider_named
from orders.payments.sandbox import Sandbox
from tests.support.payments import use_fake

pytestmark = pytest.mark.quick


def test_the_sandbox_is_the_provider_unless_told_otherwise() -> None:
    provider: PaymentProvider = current_provider()
    assert isinstance(provider, Sandbox)
    assert provider_named("sandbox") is provider


def test_new_payments_go_to_the_first_and_the_others_are_still_found(settings: Any) -> None:
    fake = use_fake(settings)
    assert current_provider() is fake
    assert provider_named("fake") is fake
    assert isinstance(provider_named("sandbox"), Sandbox)


@pytest.mark.parametrize("name", ["", "Sandbox", "fake", "sandbox "])
def test_a_name_that_the_settings_do_not_have_is_no_provider(name: str) -> None:
    with pytest.raises(LookupError):
        provider_named(name)


def test_a_provider_that_was_taken_out_is_not_found_any_more(settings: Any) -> None:
    use_fake(settings)
    settings.SECKILL_PAYMENT_PROVIDERS = ["tests.support.payments.FakeProvider"]
    with pytest.raises(LookupError):
        provider_named("sandbox")


def test_a_provider_is_made_once_and_then_asked_again_and_again(settings: Any) -> None:
    fake = use_fake(settings)
    assert current_provider() is fake
    assert provider_named("fake") is fake


def test_a_class_that_there_is_not_is_said_at_once(settings: Any) -> None:
    settings.SECKILL_PAYMENT_PROVIDERS = ["orders.payments.sandbox.NoSuch"]
    with pytest.raises(ImportError):
        current_provider()
