"""The pure functions of a draw."""

import hashlib
import subprocess

import pytest

from orders.draws.rules import commitment_of, drawn_order, list_digest, ticket

pytestmark = pytest.mark.quick

SEED = "5e" * 32
IDS = [7, 30, 100, 2]


def test_list_digest_is_sha256sum_of_sorted_lines() -> None:
    done = subprocess.run(["sha256sum"], input=b"2\n7\n30\n100\n", capture_output=True, check=True)
    assert list_digest(IDS) == done.stdout.decode().split()[0]


def test_list_digest_does_not_depend_on_order() -> None:
    assert list_digest(IDS) == list_digest(reversed(IDS))


def test_list_digest_of_ids_cannot_be_rearranged() -> None:
    assert list_digest([1, 23]) != list_digest([12, 3])


def test_ticket_is_sha256_of_its_parts() -> None:
    digest = list_digest(IDS)
    expected = hashlib.sha256(f"{SEED}:{digest}:30".encode()).hexdigest()
    assert ticket(seed=SEED, digest=digest, entry_id=30) == expected


def test_commitment_is_sha256_of_the_seed_as_text() -> None:
    assert commitment_of(SEED) == hashlib.sha256(SEED.encode()).hexdigest()


def test_drawn_order_sorts_by_ticket() -> None:
    digest = list_digest(IDS)
    order = drawn_order(seed=SEED, digest=digest, entry_ids=IDS)
    tickets = [ticket(seed=SEED, digest=digest, entry_id=it) for it in order]
    assert sorted(order) == sorted(IDS)
    assert tickets == sorted(tickets)


def test_every_entry_wins_about_equally_often() -> None:
    ids, wins = range(1, 11), dict.fromkeys(range(1, 11), 0)
    digest = list_digest(ids)
    for number in range(2_000):
        seed = hashlib.sha256(str(number).encode()).hexdigest()
        for winner in drawn_order(seed=seed, digest=digest, entry_ids=ids)[:3]:
            wins[winner] += 1
    assert min(wins.values()) > 500  # 600 each; a deviation of 20.5, and these seeds are fixed
    assert max(wins.values()) < 700
