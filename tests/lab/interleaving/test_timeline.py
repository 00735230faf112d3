"""Timelines: what is noted, in words and as text."""

from __future__ import annotations

import pytest
from django.utils import translation

from lab.interleaving.timeline import Column, Kind, Role, Timeline, side_by_side
from tests.lab.interleaving.timelines import outline

pytestmark = pytest.mark.quick


def timeline() -> Timeline:
    """Two buyers: A is killed, B waits for a row and gets it."""
    made = Timeline(began_at=100.0)
    made.columns += [Column("A", Role.BUYER, 1), Column("B", Role.BUYER, 2)]
    made.add(100.001, ("A",), Kind.BEGINS, "1")
    made.add(100.002, ("A",), Kind.STATEMENT, "SELECT stock FROM lab_labsale WHERE id = 7")
    made.reply("A", 100.003, "stock 1")
    made.add(100.004, ("B",), Kind.STATEMENT, "UPDATE lab_labsale SET stock = 0")
    made.add(100.1, ("B",), Kind.WAITS_FOR_ROW)
    made.add(100.2, ("A",), Kind.KILLED)
    made.reply("B", 100.25, "1 row")
    made.add(100.3, ("B",), Kind.POINT, "unit taken")
    made.add(100.4, (), Kind.EMPTIED)
    made.add(100.5, ("B",), Kind.LOG, "all is well")
    made.add(100.6, ("B",), Kind.FAILS, "OperationalError")
    made.add(101.0, ("B",), Kind.ANSWER, "sold out")
    return made


def test_reply_is_noted_with_its_statement_or_after_a_wait() -> None:
    events = timeline().events

    assert (events[1].kind, events[1].reply) == (Kind.STATEMENT, "stock 1")
    assert (events[2].kind, events[2].reply) == (Kind.STATEMENT, "")
    assert (events[5].kind, events[5].reply, events[5].at_ms) == (Kind.GOES_ON, "1 row", 250)


def test_outline_has_no_times_or_ids() -> None:
    one, other = timeline(), timeline()
    other.events[1].what, other.events[1].at_ms = "SELECT stock FROM lab_labsale WHERE id = 8", 9

    assert outline(one) == outline(other)
    other.events[6].what = "elsewhere"
    assert outline(one) != outline(other)


def test_reads_can_be_left_out() -> None:
    assert [it.number for it in timeline().without_reads()] == [1, *range(3, 12)]


def test_side_by_side_has_actor_columns_and_event_rows() -> None:
    made = timeline()

    with translation.override("en"):
        text = side_by_side(made, made.events, width=66)

    assert (
        text
        == """\
  #     ms  A: buyer 1                  B: buyer 2
------------------------------------------------------------------
  1      1  * starts, in process 1
  2      2  SELECT stock FROM
              lab_labsale WHERE id = 7
              -> stock 1
  3      4                              UPDATE lab_labsale SET
                                          stock = 0
  4    100                              * waits for the row
  5    200  * is killed with its
              process
  6    250                              * has the row now
                                          -> 1 row
  7    300                              [unit taken]
  8    400  --------------- Redis comes back empty ---------------
  9    500                              says "all is well"
 10    600                              ! OperationalError
 11   1000                              = sold out"""
    )


def test_no_line_is_wider_than_the_terminal() -> None:
    made = timeline()
    made.columns += [Column("C", Role.WRITER), Column("D", Role.WORKER)]

    text = side_by_side(made, made.events, width=100)

    assert max(map(len, text.splitlines())) <= 100
