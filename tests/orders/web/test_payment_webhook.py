"""Notifications of payment providers: what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given
from hypothesis import settings as effort
from hypothesis import strategies as st

from tests.support.inspection import assert_refused, everything

pytestmark = pytest.mark.django_db


def test_unknown_provider_and_other_methods_are_refused(client: Client) -> None:
    assert_refused(client.post("/payments/nobody/notify/"), 404, "not_found")
    assert_refused(client.get("/payments/sandbox/notify/"), 405, "invalid")


@pytest.mark.parametrize("provider", ["nobody", "sandbox"])
def test_refused_notification_is_answered_in_the_senders_language(
    client: Client, provider: str
) -> None:
    texts = {
        client.post(
            f"/payments/{provider}/notify/", b"x", "text/plain", headers={"Accept-Language": it}
        ).json()["message"]
        for it in ("en", "zh-hans")
    }
    assert len(texts) == 2


@effort(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    st.one_of(
        st.binary(max_size=300),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
            max_leaves=6,
        ).map(lambda value: json.dumps(value).encode()),
    ),
    st.text(st.characters(codec="latin-1"), max_size=80),
)
def test_fuzzed_notification_is_refused_and_changes_nothing(
    client: Client, body: bytes, signature: str
) -> None:
    before = everything()
    sent: dict[str, Any] = {"HTTP_SANDBOX_SIGNATURE": signature}
    answer = client.post("/payments/sandbox/notify/", body, content_type="application/json", **sent)
    assert answer.status_code == 400
    assert everything() == before
