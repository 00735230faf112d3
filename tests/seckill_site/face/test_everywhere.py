"""A change of the settings is in force in every process within ten seconds, without a restart."""

from __future__ import annotations

from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.orders.lifecycle.test_notifications import buyers_with_addresses
from tests.support.orders import make_sale
from tests.support.patience import GENEROUS_S, running_s, wait_for
from tests.support.payments import make_unpaid_order
from tests.support.settings import set_by_owner
from tests.support.stack import Process, Stack, Web, beat_every

pytestmark = pytest.mark.slow

IN_FORCE_S = 10.0
PAGES = ("/", "/terms/", "/nowhere/", "/vouchers/0/")
"""Two shells, an error page of Django, and one of the front door."""


def shows(web: Web, name: str) -> bool:
    """Say whether each process of a web server shows this name on all pages."""
    return all(name in page_of(web, path) for path in PAGES for _ in range(4))


def page_of(web: Web, path: str) -> str:
    request = Request(web.url + path, headers={"Accept": "text/html", "Accept-Language": "zh"})
    try:
        with urlopen(request, timeout=GENEROUS_S) as answer:
            return str(answer.read().decode())
    except HTTPError as error:
        return error.read().decode()


def mails_from(worker: Process, sender: str) -> bool:
    return f"From: {sender}" in worker.text()


def test_change_reaches_front_door_django_and_worker(stack: Stack) -> None:
    set_by_owner(name="第一家", terms="第一家", mail_from="first@tea.example")
    often = beat_every(tell_buyers=0.3)
    with stack.together():
        webs = [stack.web(workers=2), stack.web(workers=2, server="wsgi")]
        worker = stack.worker("--beat", SECKILL_MAIL_URL="consolemail://", **often)
    sale, (ann, ben) = make_sale(), buyers_with_addresses(2)
    make_unpaid_order(sale, [ann])
    wait_for(lambda: mails_from(worker, "first@tea.example"), what="the first mail")
    assert all(shows(web, "第一家") for web in webs)

    set_by_owner(name="第二家", terms="第二家", mail_from="second@tea.example")
    changed_at = running_s()

    wait_for(lambda: all(shows(it, "第二家") for it in webs), what="the new name")
    assert running_s() - changed_at < IN_FORCE_S
    wait_for(lambda: running_s() - changed_at > IN_FORCE_S / 2, what="half of the time")
    make_unpaid_order(sale, [ben])
    wait_for(lambda: mails_from(worker, "second@tea.example"), what="the next mail")
    assert worker.text().count("From: first@") == 1
