"""The published list of a chain, and ``manage.py verify_sale FILE``."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from orders.proof.chain_list import ChainList, Link
from orders.published_files import MalformedRecord
from vouchers.chain import first_head, next_head

pytestmark = pytest.mark.quick

OTHER = "f" * 64

TEXTS = (
    "! epoch 1 1790000000000\n",
    "101 1790000000123\n102 1790000000124 refused\n103 1790000000124\n",
    "! retry 102 1790000000200\n",
    "104 1790000000300\n",
)


def a_chain(*texts: str) -> ChainList:
    start = head = first_head(sale_id=12)
    links = []
    for text in texts or TEXTS:
        head = next_head(head, text)
        links.append(Link(text, head))
    return ChainList(12, 1, start, links)


def rewritten(chain: ChainList, number: int, change: Callable[[str], str]) -> ChainList:
    """Return a chain with another text in one link, and the heads as they were."""
    links = list(chain.links)
    links[number] = links[number]._replace(text=change(links[number].text))
    return replace(chain, links=links)


def test_list_survives_writing_and_reading() -> None:
    chain = a_chain()
    assert ChainList.parse(chain.text()) == chain
    empty = ChainList(12, 1, first_head(sale_id=12), [])
    assert ChainList.parse(empty.text()) == empty


def test_right_list_is_verified_with_every_head() -> None:
    chain = a_chain()
    assert (chain.entries, chain.given_by_hand) == (4, [102])
    assert not list(chain.problems(old_heads=[link.head for link in chain.links]))


FORGERIES: dict[str, Callable[[ChainList], ChainList]] = {
    "an order added": lambda it: rewritten(it, 1, lambda text: text + "999 1790000000124\n"),
    "an order removed": lambda it: rewritten(it, 1, lambda text: text.partition("\n")[2]),
    "orders in another order": lambda it: rewritten(
        it, 1, lambda text: "".join(reversed(text.splitlines(keepends=True)))
    ),
    "another time": lambda it: rewritten(it, 3, lambda text: text.replace("300", "299")),
    "no longer refused": lambda it: rewritten(it, 1, lambda text: text.replace(" refused", "")),
    "a mark removed": lambda it: replace(it, links=[*it.links[:2], it.links[3]]),
    "another start": lambda it: replace(it, start=OTHER),
    "another sale": lambda it: replace(it, sale_id=13),
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_forged_list_is_found_out(forge: Callable[[ChainList], ChainList]) -> None:
    assert list(forge(a_chain()).problems())


def test_list_computed_anew_is_found_out_by_an_old_head() -> None:
    kept, anew = a_chain().links[1].head, a_chain(*TEXTS[:1], *TEXTS[2:])
    assert not list(anew.problems())
    assert list(anew.problems(old_heads=[kept])) == [f"the head {kept} is not in this chain"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: "",
        lambda text: text.replace("# sale: 12", "# sale: twelve"),
        lambda text: text.replace("# start", "# begin"),
        lambda text: text.replace("# entries: 4", "# entries: 5"),
        lambda text: text.replace("# head: ", "# head: 0"),
        lambda text: text + "105 1790000000400\n",
        lambda text: text.replace("101 ", "0x65 "),
        lambda text: text.replace("! epoch 1 1790000000000", "! epoch"),
        lambda text: text.replace(" refused", " Refused"),
        lambda text: text + f"= {OTHER}\n",
    ],
)
def test_text_that_is_no_list_is_refused(spoil: Callable[[str], str]) -> None:
    with pytest.raises(MalformedRecord):
        ChainList.parse(spoil(a_chain().text()))


# --- Parts ----------------------------------------------------------------------------------------


def many(*sizes: int) -> ChainList:
    """Return a chain of batches with this many orders; of none, a mark."""
    ids = iter(range(1_000, 9_999))
    texts = [
        "".join(f"{next(ids)} 1790000000123\n" for _ in range(size)) or "! adopt 1790000000123\n"
        for size in sizes
    ]
    return a_chain(*texts)


@pytest.mark.parametrize(
    "sizes",
    [(0,), (1,), (10,), (4, 6), (10, 0, 1), (5, 0, 5, 0), (7, 7, 7), (35,), (3, 25, 3), (1,) * 21],
)
def test_each_position_is_in_its_part_which_verifies_alone(sizes: tuple[int, ...]) -> None:
    chain = many(*sizes)
    parts = chain.parts(size=10)
    for part in parts:
        assert not list(ChainList.parse(part.text()).problems())
    assert len(parts) == max(-(-sum(sizes) // 10), 1)
    for position in range(1, sum(sizes) + 1):
        part = parts[(position - 1) // 10]
        assert part.first <= position < part.first + part.entries
        order = [line for it in part.links for line in it.text.splitlines() if line[0] != "!"]
        assert order[position - part.first].startswith(f"{999 + position} ")


def test_marks_of_a_chain_are_each_in_a_part() -> None:
    chain = many(0, 10, 0, 0, 12, 0)
    found = [it.head for part in chain.parts(size=10) for it in part.links]
    assert set(found) == {link.head for link in chain.links}


# --- The command ----------------------------------------------------------------------------------


def test_command_prints_what_staff_gave_by_hand(tmp_path: Path) -> None:
    path, out, told = tmp_path / "sale.txt", io.StringIO(), io.StringIO()
    path.write_text(a_chain().text())
    heads = [f"--head={a_chain().links[1].head.upper()}"]
    call_command("verify_sale", str(path), *heads, stdout=out, stderr=told)
    assert out.getvalue().split() == ["102"]
    assert a_chain().head in told.getvalue()


def test_command_refuses_a_forged_list(tmp_path: Path) -> None:
    path = tmp_path / "sale.txt"
    path.write_text(FORGERIES["an order added"](a_chain()).text())
    with pytest.raises(CommandError, match="positions 1 to 4: a line was changed"):
        call_command("verify_sale", str(path))


def test_command_refuses_a_head_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "sale.txt"
    path.write_text(a_chain().text())
    with pytest.raises(CommandError, match=f"the head {OTHER} is not in this chain"):
        call_command("verify_sale", str(path), "--head", OTHER)
