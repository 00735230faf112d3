"""Every form of the back office: a stale one undoes nothing, and none creates anything twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.core import mail
from django.test import Client
from django.urls import reverse

from orders.models import InvitationCode, OrderJob, Rehearsal
from seckill_site.models import SentForm
from seckill_site.web.admin_forms import CarryingForm, CheckedForms
from tests.orders.test_roles import PAGES, Row, address, browser_of
from tests.orders.test_roles import unprobed as unprobed
from tests.orders.test_roles import world as world
from tests.support.browsers import HTML
from tests.support.html_forms import filled, save
from tests.support.orders import at_once, race
from tests.support.tiers import slow_after
from vouchers.models import Merchant

World = dict[str, Any]

pytestmark = pytest.mark.django_db


# --- All of them ----------------------------------------------------------------------------------

COMPARED = {
    # What a page carries for a comparison of its own, which is older.
    **dict.fromkeys(("extend", "stock", "end", "room-rate"), "seen"),
    **dict.fromkeys(("admin:sale-publish", "admin:sale-withdraw"), "looked_at"),
    "admin:vouchers_voucher_process_import": "key",
}

NOTHING_STORED = {
    # Refused unless the thing is in the state that the page is about.
    **dict.fromkeys(("admin:sale-pause", "admin:sale-resume"), "their state"),
    **dict.fromkeys(("pause", "resume", "open-room", "close-room", "lift-limits"), "its state"),
    **dict.fromkeys(("retry-unwritten", "refuse-unwritten"), "its state"),
    **dict.fromkeys(("delete", "cancel", "refund", "rest_refund", "count_refund"), "its state"),
    "admin:orders_rehearsal_change": "the button that cancels it",
    # Nothing of what is stored is on the page.
    "admin:vouchers_voucher_import": "a file, which is only looked at",
    "admin:auth_user_password_change": "a new password",
    "admin:system": "a reconciliation",
    "admin:customers": "a search",
    "admin:orders_voucherorder_changelist": "a search, and actions that ask or check the state",
    "redeem": "a code, which is used once",
}

OF_EVERY_PAGE = {"csrfmiddlewaretoken", "language", "next"}


class PostForms(HTMLParser):
    """The names of the controls in each form of a page that is posted."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[set[str]] = []
        self._is_open = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        its = dict(attrs)
        if tag == "form" and its.get("method", "").lower() == "post":
            self.found.append(set())
            self._is_open = True
        elif self._is_open and its.get("name"):
            self.found[-1].add(its["name"])

    def handle_endtag(self, tag: str) -> None:
        self._is_open = self._is_open and tag != "form"


def forms_on(page: Any) -> list[set[str]]:
    if page.streaming or page.status_code != 200 or "html" not in page["Content-Type"]:
        return []
    return [found for it in PostForms(page.text).found if (found := it - OF_EVERY_PAGE)]


def what_it_carries(page_name: str) -> str:
    """Return the control without which a form of this page is refused here; "" if it needs none."""
    last = re.split("[_-]board-|voucherorder_|_(?=delete$)", page_name)[-1]
    for known in (page_name, last):
        if known in NOTHING_STORED:
            return ""
        if known in COMPARED:
            return COMPARED[known]
    return "made_from" if page_name.endswith("_change") else "form_key"


@pytest.mark.slow
def test_every_form_carries_what_it_needs(world: World) -> None:
    """Walk all pages of the back office: one that is new fails here until it is covered."""
    owner, uncovered, carrying = browser_of("owner"), [], set()
    for key in PAGES:
        wanted = what_it_carries(key.split(",")[0])
        for controls in forms_on(owner.get(address(key, world))):
            if wanted and wanted not in controls:
                uncovered.append((key, sorted(controls)))
            if "made_from" in controls:
                carrying.add(key)
    assert uncovered == []
    assert carrying == EDITS.keys() | SAME_FORM, "each is edited in the tests below"


# --- Stored objects -------------------------------------------------------------------------------

EDITS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # What I enter, what a colleague saves meanwhile, and what I enter instead of that.
    "admin:vouchers_seckillvoucher_change": (
        {"title": "Mine"}, {"stock": "9", "ends_at_1": "23:59:58", "paused": "on"}, {"stock": "8"}
    ),
    "admin:vouchers_voucher_change": (
        {"title": "Mine"}, {"face_value_cents": "20", "valid_where": "Everywhere"},
        {"valid_where": "Nowhere"},
    ),
    "admin:vouchers_merchant_change": (
        {"address": "Mine 1"}, {"contact": "12345678", "name": "Tea"}, {"name": "Rice"}
    ),
    "admin:auth_user_change": (
        {"first_name": "Mine"}, {"email": "new@example.com"}, {"email": "mine@example.com"}
    ),
    "admin:auth_user_change, advanced": (
        {"first_name": "Mine"}, {"last_name": "Li", "is_staff": "on"}, {"last_name": "Wang"}
    ),
    "admin:auth_group_change": (
        {"name": "Mine"}, {"permissions": ["1", "2"]}, {"permissions": ["2", "3"]}
    ),
    "admin:seckill_site_shopsettings_change": (
        {"name": "Mine"}, {"contact": "12345678"}, {"contact": "87654321"}
    ),
    "admin:api_webhookendpoint_change": (
        {"url": "https://example.com/mine"}, {"topics": ["order.used"]}, {"topics": ["order.paid"]}
    ),
}  # fmt: skip

SAME_FORM = {
    "admin:vouchers_seckillvoucher_change, begun",
    "admin:vouchers_voucher_change, on sale",
}


edits = pytest.mark.parametrize("key", slow_after(1, EDITS))


def colleague() -> Client:
    client: Client = browser_of("operator")
    user = client.get("/admin/").wsgi_request.user
    user.is_superuser = True
    user.save()
    return client


def shown(client: Client, url: str, names: Any) -> dict[str, Any]:
    fields = filled(client.get(url, headers=HTML))
    return {name: fields.get(name) for name in names}


def as_shown(changes: dict[str, Any]) -> dict[str, Any]:
    return {name: ["on"] if it == "on" else it for name, it in changes.items()}


@edits
def test_what_only_others_changed_stays(key: str, world: World) -> None:
    mine, theirs, _ = EDITS[key]
    url, owner, other = address(key, world), browser_of("owner"), colleague()
    opened = filled(owner.get(url))
    assert save(other, url, filled(other.get(url)), **theirs).status_code == 302

    answer = save(owner, url, opened, **mine)

    assert answer.status_code == 302, answer.text
    page = owner.get(url).text
    assert shown(owner, url, {**mine, **theirs}) == as_shown({**mine, **theirs})
    assert "Others have changed this meanwhile, and it stays:" in page
    assert "(operator)" in page


@edits
def test_what_both_changed_is_refused_with_both_values(key: str, world: World) -> None:
    mine, theirs, instead = EDITS[key]
    url, owner, other = address(key, world), browser_of("owner"), colleague()
    opened = filled(owner.get(url))
    save(other, url, filled(other.get(url)), **theirs)
    before = shown(owner, url, {**mine, **theirs})

    answer = save(owner, url, opened, **mine, **instead)

    assert answer.status_code == 200
    assert "After you had opened this form, operator changed this to" in answer.text
    assert shown(owner, url, {**mine, **theirs}) == before
    again = filled(answer)
    assert {name: again[name] for name in {**mine, **instead}} == {**mine, **instead}

    assert save(owner, url, again).status_code == 302
    assert shown(owner, url, {**theirs, **mine, **instead}) == as_shown(
        {**theirs, **mine, **instead}
    )


@pytest.mark.slow
def test_same_change_by_both_is_no_clash(world: World) -> None:
    url, owner = address("admin:vouchers_merchant_change", world), browser_of("owner")
    opened = filled(owner.get(url))
    save(owner, url, opened, contact="12345678")
    assert save(owner, url, opened, contact="12345678", address="Road 1").status_code == 302
    merchant = Merchant.objects.get(pk=world["merchant"].pk)
    assert (merchant.contact, merchant.address) == ("12345678", "Road 1")


@pytest.mark.parametrize("carried", slow_after(1, [None, "", "x", "e30:1:y"]))
def test_page_of_before_the_update_undoes_nothing(world: World, carried: str | None) -> None:
    url, owner = address("admin:vouchers_merchant_change", world), browser_of("owner")
    opened = {**filled(owner.get(url)), "made_from": carried}
    Merchant.objects.filter(pk=world["merchant"].pk).update(contact="12345678")

    answer = save(owner, url, opened, address="Road 1")

    assert answer.status_code == 200
    assert "somebody changed this to “12345678”" in answer.text
    assert save(owner, url, filled(answer)).status_code == 302


@pytest.mark.slow
def test_log_says_who_changed_each_field(world: World) -> None:
    url, owner, other = (
        address("admin:vouchers_merchant_change", world), browser_of("owner"), colleague(),
    )  # fmt: skip
    opened = filled(owner.get(url))
    save(other, url, filled(other.get(url)), contact="12345678")
    third = browser_of("clerk")
    save(third, url, filled(third.get(url)), address="Road 1")

    page = save(owner, url, opened, contact="87654321", address="Road 2").text

    assert "operator changed this to “12345678”. You have entered “87654321”" in page
    assert "clerk changed this to “Road 1”. You have entered “Road 2”" in page


# --- Under the lock of the row --------------------------------------------------------------------


def overtaken(monkeypatch: pytest.MonkeyPatch, change: Callable[[], Any]) -> None:
    """Let somebody else save between the comparison of a form and the lock of its row."""
    hold = CheckedForms.hold
    waiting = [change]

    def late(*args: Any) -> None:
        if waiting:
            at_once(waiting.pop())
        hold(*args)

    monkeypatch.setattr(CheckedForms, "hold", late)


def rename(**changes: Any) -> Callable[[], Any]:
    return lambda: Merchant.objects.update(**changes)


@race
def test_change_before_the_lock_is_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    merchant, owner = Merchant.objects.create(name="Old"), browser_of("owner")
    url = reverse("admin:vouchers_merchant_change", args=[merchant.pk])
    opened = filled(owner.get(url))
    overtaken(monkeypatch, rename(contact="12345678", name_en="Theirs"))

    assert save(owner, url, opened, address="Road 1").status_code == 302

    merchant.refresh_from_db()
    assert (merchant.address, merchant.contact) == ("Road 1", "12345678")


@race
def test_without_the_check_such_a_change_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    merchant, owner = Merchant.objects.create(name="Old"), browser_of("owner")
    url = reverse("admin:vouchers_merchant_change", args=[merchant.pk])
    opened = filled(owner.get(url))
    overtaken(monkeypatch, rename(contact="12345678"))
    monkeypatch.setattr(CarryingForm, "check", lambda form, row: None)

    save(owner, url, opened, address="Road 1")

    merchant.refresh_from_db()
    assert merchant.contact == ""


@race
def test_object_deleted_before_the_lock_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    merchant, owner = Merchant.objects.create(name="Old"), browser_of("owner")
    url = reverse("admin:vouchers_merchant_change", args=[merchant.pk])
    opened = filled(owner.get(url))
    overtaken(monkeypatch, lambda: Merchant.objects.all().delete())

    assert save(owner, url, opened, address="Road 1").status_code == 302
    assert not Merchant.objects.exists()


@race
def test_row_that_changes_all_the_time_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    merchant, owner = Merchant.objects.create(name="Old"), browser_of("owner")
    owner.raise_request_exception = False
    url = reverse("admin:vouchers_merchant_change", args=[merchant.pk])
    opened, numbers = filled(owner.get(url)), iter(range(100))
    hold = CheckedForms.hold

    def late(*args: Any) -> None:
        at_once(lambda: Merchant.objects.update(contact=str(next(numbers))))
        hold(*args)

    monkeypatch.setattr(CheckedForms, "hold", late)

    assert save(owner, url, opened, address="Road 1").status_code == 503


@race
def test_two_who_save_at_once_both_win() -> None:
    merchant, owner, other = (
        Merchant.objects.create(name="Old"), browser_of("owner"), colleague(),
    )  # fmt: skip
    url = reverse("admin:vouchers_merchant_change", args=[merchant.pk])
    for n in range(5):
        mine, theirs = {"address": f"Road {n}"}, {"contact": f"1234567{n}"}
        answers = at_once(
            partial(save, owner, url, filled(owner.get(url)), **mine),
            partial(save, other, url, filled(other.get(url)), **theirs),
        )
        assert [it.status_code for it in answers] == [302, 302]
        merchant.refresh_from_db()
        assert {"address": merchant.address, "contact": merchant.contact} == {**mine, **theirs}


# --- What is created ------------------------------------------------------------------------------

OTHER_CREATES = {
    "admin:sale-codes": InvitationCode,
    "admin:sale-rehearse": Rehearsal,
    "admin:orders_voucherorder_cancel_many": OrderJob,
    "admin:orders_voucherorder_refund_many": OrderJob,
}

SECRETS = {"admin:api_apitoken_add", "admin:api_webhookendpoint_add"}

CREATES = {
    key: row
    for key, row in PAGES.items()
    if row.change and (key.endswith("_add") or key in OTHER_CREATES)
}


def model_of(key: str) -> Any:
    if key in OTHER_CREATES:
        return OTHER_CREATES[key]
    app_label, model_name, _ = key.removeprefix("admin:").split("_")
    return apps.get_model(app_label, model_name)


def opened_to_create(key: str, row: Row, owner: Client, world: World) -> dict[str, Any]:
    """Return what the page of a form sends that is filled in to create something."""
    if not key.endswith("_many"):
        return {**filled(owner.get(address(key, world))), **row.send}
    kind = "cancel" if "cancel" in key else "refund"
    order = world["unpaid" if kind == "cancel" else "paid"]
    chosen = {"action": f"{kind}_selected", "_selected_action": [order.pk]}
    question = owner.post(reverse("admin:orders_voucherorder_changelist"), chosen)
    return {**filled(question), **row.send}


@pytest.mark.parametrize("key", slow_after(1, CREATES))
def test_second_press_leads_to_what_the_first_made(key: str, world: World) -> None:
    owner, model = browser_of("owner"), model_of(key)
    Rehearsal.objects.all().delete()
    sent = opened_to_create(key, CREATES[key], owner, world)
    before = set(model.objects.values_list("pk", flat=True))

    first = owner.post(address(key, world), sent)
    made = set(model.objects.values_list("pk", flat=True)) - before
    log = LogEntry.objects.count()
    second = owner.post(address(key, world), sent)

    assert made, first.text
    assert set(model.objects.values_list("pk", flat=True)) - before == made
    assert LogEntry.objects.count() == log
    assert "form_key" in sent
    if key in SECRETS:
        assert secret_on(first) == secret_on(second)
    elif key == "admin:sale-codes":
        assert second["Location"] == first["Location"]
        assert "Made 3 invitation codes." in owner.get(second["Location"]).text
    else:
        assert f"/{made.pop()}/change/" in second["Location"]


def secret_on(page: Any) -> str:
    found = re.search(r"\b(?:sk_|whsec_)[\w+/=-]{20,}", page.text)
    assert found, page.text
    return found[0]


@pytest.mark.parametrize(
    "key", [pytest.param(it, marks=() if "seckill" in it else pytest.mark.slow) for it in CREATES]
)
@race
def test_two_presses_at_once_create_one_thing(key: str, world: World) -> None:
    owner, model = browser_of("owner"), model_of(key)
    Rehearsal.objects.all().delete()
    sent = opened_to_create(key, CREATES[key], owner, world)
    before = model.objects.count()
    owners = [Client(headers=HTML) for _ in range(2)]
    for it in owners:
        it.cookies = owner.cookies

    answers = at_once(*(lambda it=it: it.post(address(key, world), sent) for it in owners))

    assert model.objects.count() - before == (3 if key == "admin:sale-codes" else 1)
    assert {it.status_code for it in answers} <= {200, 302}, answers
    assert SentForm.objects.count() == 1


@race
def test_without_keys_two_presses_create_two_things(world: World) -> None:
    owner = browser_of("owner")
    key = "admin:vouchers_seckillvoucher_add"
    sent = opened_to_create(key, CREATES[key], owner, world)
    del sent["form_key"]
    before = model_of(key).objects.count()
    for _ in range(2):
        owner.post(address(key, world), sent)
    assert model_of(key).objects.count() - before == 2


@pytest.mark.slow
def test_key_is_nobody_elses_and_no_other_forms(world: World) -> None:
    owner, other = browser_of("owner"), colleague()
    url = reverse("admin:vouchers_merchant_add")
    sent = {**filled(owner.get(url)), "name": "Tea"}
    owner.post(url, sent)
    other.post(url, {**sent, "name": "Rice"})
    owner.post(reverse("admin:auth_group_add"), {"form_key": sent["form_key"], "name": "Friends"})
    assert Merchant.objects.filter(name__in=("Tea", "Rice")).count() == 2
    assert SentForm.objects.count() == 3


@pytest.mark.slow
def test_form_that_was_refused_may_be_sent_again(world: World) -> None:
    owner, url = browser_of("owner"), reverse("admin:vouchers_merchant_add")
    refused = owner.post(url, {**filled(owner.get(url)), "name": ""})
    assert owner.post(url, {**filled(refused), "name": "Tea"}).status_code == 302
    assert Merchant.objects.filter(name="Tea").count() == 1


def test_second_press_in_a_window_of_another_form_closes_it(world: World) -> None:
    owner, url = browser_of("owner"), f"{reverse('admin:vouchers_merchant_add')}?_popup=1"
    sent = {**filled(owner.get(url)), "name": "Tea", "_popup": "1"}
    owner.post(url, sent)
    assert "popup_response" in owner.post(url, sent).text
    assert Merchant.objects.filter(name="Tea").count() == 1


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_second_press_mails_no_second_invitation(world: World) -> None:
    owner, url = browser_of("owner"), address("admin:accounts_invitation_resend", world)
    sent = filled(owner.get(reverse("admin:staff")))
    for _ in range(2):
        owner.post(url, sent)
    assert len(mail.outbox) == 1


@pytest.mark.slow
def test_second_press_makes_no_second_secret(world: World) -> None:
    owner, endpoint = browser_of("owner"), world["webhook"]
    url = reverse("admin:api_webhookendpoint_changelist")
    sent = {**filled(owner.get(url)), "action": "rotate", "_selected_action": [endpoint.pk]}
    old = endpoint.secret

    first, second = owner.post(url, sent), owner.post(url, sent)

    endpoint.refresh_from_db()
    assert secret_on(first) == secret_on(second) == endpoint.secret
    assert endpoint.old_secret == old
