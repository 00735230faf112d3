"""The published record of a draw, and ``manage.py verify_draw FILE``."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from orders.draws.record import DrawRecord, WrongDraw, verify
from orders.draws.rules import commitment_of, drawn_order, list_digest
from orders.published_files import MalformedRecord

pytestmark = pytest.mark.quick

SEED = "0123456789abcdef" * 4
OTHER = "f" * 64


def a_record(count: int = 9, units: int = 3) -> DrawRecord:
    ids = range(100, 100 + count)
    digest = list_digest(ids)
    order = drawn_order(seed=SEED, digest=digest, entry_ids=ids)
    return DrawRecord(12, commitment_of(SEED), digest, units, SEED, order)


def text_of(record: DrawRecord) -> str:
    return "".join(record.lines())


def test_record_survives_writing_and_reading() -> None:
    record = a_record()
    assert DrawRecord.parse(text_of(record)) == record


def test_right_record_is_verified() -> None:
    verify(a_record())
    verify(a_record(count=0))


def test_first_units_of_the_order_win() -> None:
    record = a_record()
    assert record.winners == record.entry_ids[:3]
    assert replace(record, seed="").winners == []


FORGERIES: dict[str, Callable[[DrawRecord], DrawRecord]] = {
    "another order": lambda it: replace(it, entry_ids=it.entry_ids[::-1]),
    "an entry added": lambda it: replace(it, entry_ids=[*it.entry_ids, 999]),
    "an entry left out": lambda it: replace(it, entry_ids=it.entry_ids[1:]),
    "an entry twice": lambda it: replace(it, entry_ids=[*it.entry_ids, it.entry_ids[0]]),
    "another seed": lambda it: replace(it, seed=OTHER),
    "another seed and promise": lambda it: replace(it, seed=OTHER, commitment=commitment_of(OTHER)),
    "another digest": lambda it: replace(it, digest=OTHER),
    "no seed yet": lambda it: replace(it, seed=""),
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_forged_record_is_found_out(forge: Callable[[DrawRecord], DrawRecord]) -> None:
    with pytest.raises(WrongDraw):
        verify(forge(a_record()))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: "",
        lambda text: text.replace("# sale: 12", "# sale: twelve"),
        lambda text: text.replace("# digest", "# list"),
        lambda text: text.replace(SEED, "seed"),
        lambda text: text.replace("# entries: 9", "# entries: 8"),
        lambda text: text + "0x1f\n",
        lambda text: text + "12345678901234567890\n",
        lambda text: text + "１２\n",
    ],
)
def test_text_that_is_no_record_is_refused(spoil: Callable[[str], str]) -> None:
    with pytest.raises(MalformedRecord):
        DrawRecord.parse(spoil(text_of(a_record())))


def test_command_prints_the_winners(tmp_path: Path) -> None:
    record, path, out = a_record(), tmp_path / "record.txt", io.StringIO()
    path.write_text(text_of(record))
    call_command("verify_draw", str(path), stdout=out, stderr=io.StringIO())
    assert out.getvalue().split() == [str(it) for it in record.winners]


def test_command_refuses_a_forged_record(tmp_path: Path) -> None:
    path = tmp_path / "record.txt"
    path.write_text(text_of(replace(a_record(), commitment=OTHER)))
    with pytest.raises(CommandError, match="not the one that was promised"):
        call_command("verify_draw", str(path))


def test_command_refuses_a_file_that_is_missing_or_no_text(tmp_path: Path) -> None:
    path = tmp_path / "record.txt"
    path.write_bytes(b"\xff\xfe\x00")
    for unreadable in (path, tmp_path / "none"):
        with pytest.raises(CommandError, match="cannot be read"):
            call_command("verify_draw", str(unreadable))
