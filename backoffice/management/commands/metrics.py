"""``manage.py metrics``: metrics on a port of their own, without the threads of Django."""

import os
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from prometheus_client import CollectorRegistry, start_http_server

from backoffice.management.numbers import between
from backoffice.shop_metrics import Shop
from seckill_site.exposition import Units

PORT = 9808


class Command(BaseCommand):
    help = "Serve /metrics: the counts of this machine's units, and with --shop what is shared."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--address", default="127.0.0.1", help="where to listen (127.0.0.1)")
        port = between(1, 65535)
        parser.add_argument("--port", type=port, default=PORT, help=f"the port ({PORT})")
        parser.add_argument(
            "--directory",
            type=Path,
            default=Path("/run/seckill"),
            help="holds the PROMETHEUS_MULTIPROC_DIR of each unit (/run/seckill)",
        )
        parser.add_argument("--shop", action="store_true", help="on one machine of the shop")

    def handle(self, *args: Any, **options: Any) -> None:
        check_directory(options["directory"])
        registry = CollectorRegistry()
        registry.register(Units(options["directory"]))
        if options["shop"]:
            limit_database()
            registry.register(Shop())
        address, port = options["address"], options["port"]
        try:
            server, thread = start_http_server(port, address, registry)
        except OSError as error:
            why = error.strerror or error
            raise CommandError(f"cannot listen on {address}:{port}: {why}", returncode=2) from error
        self.stdout.write(f"metrics at http://{address}:{port}/metrics")
        try:
            thread.join()
        except KeyboardInterrupt:
            server.shutdown()


def check_directory(directory: Path) -> None:
    """Check that this user may trust what is in a directory of counts.

    :raises CommandError: it is missing, or somebody else's.
    """
    try:
        owner = directory.stat().st_uid
        next(directory.iterdir(), None)
    except OSError as error:
        raise CommandError(f"{directory}: {error.strerror}", returncode=2) from error
    if owner not in (0, os.geteuid()):
        raise CommandError(f"{directory} belongs to another user", returncode=2)


def limit_database() -> None:
    """Let no statement of this process wait, as those of other commands do."""
    options = settings.DATABASES["default"]["OPTIONS"]
    if "connect_timeout" in options:
        options.update(connect_timeout=1, read_timeout=1, write_timeout=1)
