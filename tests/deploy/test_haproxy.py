"""The HAProxy of ``deploy/``. ``tests/faults/test_galera.py`` runs it in front of real nodes."""

import re

import pytest
from django.conf import settings

from tests.support.stack import ROOT

pytestmark = pytest.mark.quick


def test_haproxy_keeps_idle_connections_longer_than_the_shop() -> None:
    text = (ROOT / "deploy/haproxy.cfg").read_text()
    hours = dict(re.findall(r"^ *timeout (client|server) (\d+)h$", text, re.MULTILINE))
    assert set(hours) == {"client", "server"}
    assert min(map(int, hours.values())) * 3600 > settings.DATABASES["default"]["CONN_MAX_AGE"]
