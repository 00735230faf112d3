"""The modules that a web process loads for the order path."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

ORDER_PATH = """
import json, sys
from django.contrib import admin

admin.autodiscover = lambda: None  # the admin's actions call the back half, the order path must not
import seckill_site.asgi, orders.placing.publishing

print(json.dumps(sorted(sys.modules)))
"""
WORKERS_ONLY = ("orders.fulfilment", "orders.tasks", "orders.lifecycle.notifications")


def loaded_by(program: str) -> set[str]:
    output = subprocess.check_output([sys.executable, "-W", "ignore", "-c", program], text=True)
    return set(json.loads(output))


def is_for_workers(module: str) -> bool:
    of_settings = ("backoffice.apps", "backoffice.activity")  # the latter is a middleware
    in_backoffice = module.startswith("backoffice.") and module not in of_settings
    return in_backoffice or module.startswith(WORKERS_ONLY)


def test_order_path_imports_neither_back_half_nor_backoffice_nor_mail() -> None:
    modules = loaded_by(ORDER_PATH)
    assert "orders.web.front_door" in modules
    assert not [module for module in modules if is_for_workers(module)]


def test_control_tasks_import_the_back_half() -> None:
    modules = loaded_by(
        ORDER_PATH.replace("import seckill_site.asgi", "import seckill_site.asgi, orders.tasks")
    )
    assert [module for module in modules if is_for_workers(module)]
