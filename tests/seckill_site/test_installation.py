"""Whose ledgers a Redis holds: claimed by the first, refused to others, handed over on purpose."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from orders.fulfilment.sweep import sweep
from seckill_site.checks.services import check_installation
from seckill_site.installation import ForeignLedger, adopt_ledgers, check_owner, own_identity
from seckill_site.models import Installation
from tests.support.orders import make_sale
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable
from vouchers.inventory.rebuild import load_sale, rebuild_sale
from vouchers.inventory.sale_state import snapshot

pytestmark = pytest.mark.django_db

KEY = "seckill:installation"


def become_another() -> None:
    """Let this database be that of another installation from now on."""
    Installation.objects.update(identity="another")


def test_identity_is_written_once() -> None:
    assert own_identity() == own_identity()
    assert len(own_identity()) == 16
    assert Installation.objects.count() == 1


def test_first_use_claims_the_ledgers(ledger: Any) -> None:
    check_owner()

    assert ledger.get(KEY) == own_identity()
    check_owner()


def test_ledgers_of_another_installation_are_left_alone(ledger: Any) -> None:
    sale = make_sale(stock=5)
    before = ledger.hgetall(LedgerKeys(sale.pk).sale)
    become_another()
    type(sale).objects.filter(pk=sale.pk).update(stock=7, identity=sale.identity + 1)

    for use in (load_sale, rebuild_sale):
        with pytest.raises(LedgerUnavailable, match="another installation"):
            use(sale_id=sale.pk)
    with pytest.raises(LedgerUnavailable, match="adopt_ledger"):
        sweep(now=timezone.now())

    assert ledger.hgetall(LedgerKeys(sale.pk).sale) == before


def test_check_names_a_foreign_ledger(ledger: Any) -> None:
    check_owner()
    ours = own_identity()
    become_another()

    (found,) = [it for it in check_installation() if it.id == "seckill.E014"]

    assert ours in found.msg
    assert "adopt_ledger" in str(found.hint)


def test_adopted_ledgers_are_ours(ledger: Any, capsys: pytest.CaptureFixture[str]) -> None:
    sale = make_sale(stock=5)
    become_another()

    call_command("adopt_ledger", "--yes")

    check_owner()
    load_sale(sale_id=sale.pk)
    assert snapshot(sale_id=sale.pk).terms.total == 5
    call_command("adopt_ledger")
    assert "Nothing to do" in capsys.readouterr().out


def test_adoption_asks_first(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check_owner()
    become_another()
    monkeypatch.setattr("builtins.input", lambda _: "n")

    with pytest.raises(CommandError, match="Nothing was changed"):
        call_command("adopt_ledger")

    with pytest.raises(ForeignLedger):
        check_owner()


def test_adoption_without_a_terminal_says_so(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check_owner()
    become_another()
    monkeypatch.setattr("sys.stdin", io.StringIO())

    with pytest.raises(CommandError, match=r"no terminal to answer at\. Add --yes\."):
        call_command("adopt_ledger")

    with pytest.raises(ForeignLedger):
        check_owner()


def test_adopting_returns_whose_they_were(ledger: Any) -> None:
    assert adopt_ledgers() == ""
    ours = own_identity()
    become_another()
    assert adopt_ledgers() == ours
