"""A short run of the soak, so that it works on the day it is wanted."""

from __future__ import annotations

import os
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
from django.db import connection

from tests.support.stack import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

MINUTES = 5 / 60


@pytest.mark.django_db(transaction=True)
def test_r4_random_faults_break_no_invariant() -> None:
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}")
    connection.close()  # or it is among those that are killed
    soak = subprocess.run(
        [sys.executable, "-m", "tests.faults.soak", "--minutes", str(MINUTES), "--seed", "3"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": url.geturl()},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert soak.returncode == 0, soak.stdout + soak.stderr
    for line in ("| seed | 3 |", "| lost | 0 |", "| doubled | 0 |", "| oversold | 0 |"):
        assert line in soak.stdout, soak.stdout
