"""``manage.py error_pages``: nginx's own error pages, with the face of the shop."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from seckill_site.face.error_pages import write_error_pages


class Command(BaseCommand):
    help = "Write nginx's error pages with the shop's name, contact and colour; prints their paths."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("directory", type=Path, help="where to, such as /srv/seckill/errors")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            for path in write_error_pages(into=options["directory"]):
                self.stdout.write(str(path))
        except OSError as error:
            raise CommandError(f"{options['directory']}: {error.strerror or error}") from error
