"""``manage.py verify_draw``: compute a published draw again."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orders.draws.record import DrawRecord, MalformedRecord, WrongDraw, verify

LARGEST_BYTES = 64 * 1024 * 1024


class Command(BaseCommand):
    """Verify the record of a draw."""

    help = (
        "Compute a draw again from its published record and print the winners, one entry id a line."
        " Compare the commitment that it prints with the one that the page showed before the end."
        " Exit status 1 if the result does not follow from list and seed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("record", metavar="FILE", help="the file record.txt of the draw's page")

    def handle(self, *, record: str, **options: Any) -> None:
        try:
            found = DrawRecord.parse(_read(Path(record)))
            verify(found)
        except (MalformedRecord, WrongDraw) as error:
            raise CommandError(str(error)) from error
        self.stderr.write(f"commitment {found.commitment}")
        self.stderr.write(f"digest {found.digest}")
        self.stderr.write(f"{len(found.winners)} of {len(found.entry_ids)} entries won: verified")
        for entry_id in found.winners:
            self.stdout.write(str(entry_id))


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise MalformedRecord(f"{path} is larger than any record")
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeError) as error:
        raise CommandError(f"{path} cannot be read: {error}") from error
