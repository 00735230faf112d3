"""``manage.py rehearse``: sell a copy of a sale to a crowd on the running system."""

import json
import sys
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser, no_translations
from tqdm import tqdm

from backoffice.job_engine import UNAVAILABLE
from backoffice.management.numbers import between
from backoffice.rehearsal.http_client import BadAddress
from backoffice.rehearsal.service import (
    MAX_BUYERS,
    MAX_CONNECTIONS,
    NotRunning,
    Stuck,
    cancel_rehearsal,
    clear_leftovers,
    progress,
    start_rehearsal,
    take_turns,
)
from backoffice.rehearsal.texts import tables
from orders.models import Rehearsal, RehearsalPhase
from vouchers.catalogue.staff_texts import StaffRefusal
from vouchers.models import MAX_STOCK, SeckillVoucher

CLICKS_AT_ONCE = 20_000
BAD_VERDICT, COULD_NOT, INTERRUPTED = 1, 2, 130


class Command(BaseCommand):
    help = (
        "Copy a sale, let a crowd buy the copy from the running web server, wait until the workers "
        "have written the orders, report correctness and speed, and remove every trace of the "
        "copy. Exit status 0 if nothing was oversold, lost or doubled and nothing is left; 1 if "
        "something was; 2 if the rehearsal could not run."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("sale_id", nargs="?", type=int, metavar="SALE_ID")
        numbers = (
            ("buyers", 1, MAX_BUYERS, 1_000, "default 1000"),
            ("stock", 1, MAX_STOCK, None, "vouchers offered (default: as in the sale)"),
            ("duplicates", 0, 100, 10, "percent who click twice (default 10)"),
            ("connections", 1, MAX_CONNECTIONS, 100, "concurrent (default 100)"),
        )
        for name, least, most, default, text in numbers:
            kind = between(least, most)
            parser.add_argument(f"--{name}", type=kind, default=default, help=text)
        parser.add_argument("--url", help="the web server (default: SECKILL_REHEARSAL_URL)")
        parser.add_argument("--json", action="store_true", help="verdict as one JSON object")
        parser.add_argument(
            "--clear", action="store_true", help="only clear up after rehearsals that crashed"
        )

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["clear"]:
                self._clear()
            else:
                self._rehearse(self._start(options), as_json=options["json"])
        except StaffRefusal as error:
            raise CommandError(str(error), returncode=COULD_NOT) from error
        except (*UNAVAILABLE, Stuck) as error:
            text = f"Redis or the database did not respond: {error!r}. Beat or rehearse --clear "
            text += "clears up what is left of a rehearsal"
            raise CommandError(text, returncode=COULD_NOT) from error

    def _start(self, options: dict[str, Any]) -> Rehearsal:
        if options["sale_id"] is None:
            raise CommandError("which sale? Give its id", returncode=COULD_NOT)
        url = (options["url"] or settings.SECKILL_REHEARSAL_URL).rstrip("/")
        sizes = {name: options[name] for name in ("buyers", "stock", "duplicates", "connections")}
        try:
            return start_rehearsal(sale_id=options["sale_id"], url=url, **sizes)
        except SeckillVoucher.DoesNotExist as error:
            text = f"there is no sale {options['sale_id']}"
            raise CommandError(text, returncode=COULD_NOT) from error
        except BadAddress as error:
            text = f"{url} is not the address of a web server"
            raise CommandError(text, returncode=COULD_NOT) from error

    def _rehearse(self, rehearsal: Rehearsal, *, as_json: bool) -> None:
        """Run all phases; clean up in any case."""
        try:
            rehearsal = self._take_turns(rehearsal)
        except KeyboardInterrupt as error:
            self._cancel(rehearsal)
            raise CommandError("cancelled, and cleared up", returncode=INTERRUPTED) from error
        except Exception:
            self._cancel(rehearsal)
            raise
        if not rehearsal.verdict:
            raise CommandError(_in_words(rehearsal), returncode=COULD_NOT)
        self._print(rehearsal, as_json=as_json)
        if rehearsal.problem or not rehearsal.verdict["is_right"]:
            sys.exit(BAD_VERDICT)

    def _cancel(self, rehearsal: Rehearsal) -> None:
        self.stderr.write("Clearing up…")
        with suppress(NotRunning):  # it is already cleaning up
            cancel_rehearsal(rehearsal_id=rehearsal.pk)
        self._take_turns(rehearsal)

    def _take_turns(self, rehearsal: Rehearsal) -> Rehearsal:
        """Run the remaining phases, with a progress bar for each."""
        states = take_turns(rehearsal_id=rehearsal.pk, clicks_at_once=CLICKS_AT_ONCE)
        phase, bar = "", tqdm(disable=True)
        try:
            for state in states:
                done, total = progress(state)
                if state.phase != phase:
                    if not state.problem:
                        bar.update((bar.total or 0) - bar.n)
                    bar.close()
                    phase = state.phase
                    label = str(RehearsalPhase(phase).label)
                    bar = tqdm(total=total, desc=label, file=self.stderr, disable=None)
                bar.total = total
                bar.update(done - bar.n)
            return state
        finally:
            bar.close()

    def _clear(self) -> None:
        cleared = 0
        for rehearsal in clear_leftovers():
            cleared += 1
            self.stdout.write(f"cleared up after {rehearsal}")
        if not cleared:
            self.stdout.write("Nothing is left of earlier rehearsals.")

    def _print(self, rehearsal: Rehearsal, *, as_json: bool) -> None:
        if as_json:
            row = {"rehearsal": str(rehearsal.pk), "phase": rehearsal.phase}
            row["problem"] = rehearsal.problem
            self.stdout.write(json.dumps({**row, **rehearsal.verdict}, indent=2))
            return
        for table in tables(rehearsal):
            self.stdout.write(table.title)
            for figure in table.figures:
                self.stdout.write(f"  {figure.label:<45}{figure.shown:>15}")
        self.stdout.write(_in_words(rehearsal))


def _in_words(rehearsal: Rehearsal) -> str:
    if rehearsal.problem:
        return f"Failed at {rehearsal.url}: {rehearsal.problem}. Nothing is left of it."
    if rehearsal.verdict["is_right"]:
        return "Right: every voucher was sold once, and nothing is left of it."
    return "WRONG: see what is not 0 above. Nothing is left of it."
