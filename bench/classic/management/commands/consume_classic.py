"""``consume_classic``: the consumer of the classic design, as a process."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from bench.classic.consumer import consume


class Command(BaseCommand):
    help = "Write the orders of the classic design, one transaction each."

    def handle(self, *args: Any, **options: Any) -> None:
        consume()
