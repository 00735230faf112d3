"""``manage.py metrics``: metrics on a port of their own, without the threads of Django."""

import os
from errno import EPERM
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from prometheus_client import start_http_server

from backoffice.management.numbers import between
from backoffice.shop_metrics import Shop
from seckill_site.exposition import Metrics, counts_of_units


class Command(BaseCommand):
    help = "Serve /metrics: the counts of this machine's units, and with --shop what is shared."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        add, units = parser.add_argument, Path("/run/seckill")
        add("--address", default="127.0.0.1", help="where to listen (127.0.0.1)")
        add("--port", type=between(1, 65535), default=9808, help="the port (9808)")
        add("--directory", type=Path, default=units, help=f"with one for each unit ({units})")
        add("--shop", action="store_true", help="on one machine of the shop")

    def handle(self, *args: Any, **options: Any) -> None:
        directory, at = options["directory"], (options["port"], options["address"])
        try:
            next(directory.iterdir(), None)
            if directory.stat().st_uid not in (0, os.geteuid()):  # its files could say anything
                raise PermissionError(EPERM, "belongs to another user")
        except OSError as error:
            raise CommandError(f"{directory}: {error.strerror}", returncode=2) from error
        read: list[Any] = [partial(counts_of_units, directory)]
        if options["shop"]:
            database = settings.DATABASES["default"]["OPTIONS"]
            if "read_timeout" in database:  # not the ten minutes of other commands
                database.update(connect_timeout=1, read_timeout=1, write_timeout=1)
            read.append(Shop().collect)
        try:
            _, thread = start_http_server(*at, Metrics(*read))
        except OSError as error:
            why = f"cannot listen on {at[1]}:{at[0]}: {error.strerror or error}"
            raise CommandError(why, returncode=2) from error
        self.stdout.write(f"metrics at http://{at[1]}:{at[0]}/metrics")
        thread.join()
