"""A contact counts once it is confirmed."""

from __future__ import annotations

import pytest
from allauth.account.models import EmailAddress

from accounts.models import Phone
from orders.audience.checks import CHECKS
from tests.support.orders import make_buyer

pytestmark = [pytest.mark.django_db, pytest.mark.quick]


def has_confirmed_contact(*, user_id: int) -> bool:
    return bool(CHECKS["contact"](0, user_id, True))


@pytest.mark.parametrize("verified", [False, True])
def test_address_counts_once_it_is_confirmed(verified: bool) -> None:
    buyer = make_buyer()
    EmailAddress.objects.create(user=buyer, email="ann@example.org", verified=verified)
    assert has_confirmed_contact(user_id=buyer.pk) is verified


def test_confirmed_phone_counts() -> None:
    buyer = make_buyer()
    assert not has_confirmed_contact(user_id=buyer.pk)
    Phone.objects.create(user=buyer, number="+8613800000000")
    assert has_confirmed_contact(user_id=buyer.pk)
