"""The lab is off unless it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import django
django.setup()
from django.apps import apps
from django.urls import Resolver404, resolve
try:
    resolve("/lab/")
    has_pages = True
except Resolver404:
    has_pages = False
print(apps.is_installed("lab"), has_pages)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "found"), [(None, "False False"), ("true", "True True")])
def test_lab_is_installed_only_by_setting(asked: str | None, found: str) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "SECKILL_LAB"}
    environ["DJANGO_SETTINGS_MODULE"] = "seckill_site.settings"
    if asked is not None:
        environ["SECKILL_LAB"] = asked
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == found
