"""Publishing and withdrawing sales: each asks first, and says what it could not do."""

from __future__ import annotations

import datetime as dt
import re
from html import unescape
from io import BytesIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from PIL import Image

from backoffice.admin import stages as stages_page
from orders.models import InvitationCode
from tests.support.html_forms import Filled
from tests.support.sales import HOUR, make_loaded_sale, make_sale, make_voucher, reserve
from tests.support.staff import said, staff_with, words
from tests.support.tiers import slow_after
from vouchers.catalogue.form_hints import Level
from vouchers.catalogue.history import history_text
from vouchers.catalogue.pictures import set_picture
from vouchers.catalogue.sales import stage_sale
from vouchers.inventory.reservations import SalePaused
from vouchers.models import SaleStage, SeckillVoucher, Voucher

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/admin/vouchers/seckillvoucher/"
SOON, LATER = dt.timedelta(days=3), dt.timedelta(days=4)


@pytest.fixture
def owner() -> Client:
    return staff_with(name="owner", is_owner=True)


def make_draft(**fields: Any) -> SeckillVoucher:
    """Make a loaded draft that starts in three days."""
    now = timezone.now()
    window = {"begins_at": now + SOON, "ends_at": now + LATER}
    return make_loaded_sale(**{**window, "stage": SaleStage.DRAFT, **fields})


def stages(*sales: SeckillVoucher) -> list[str]:
    return [SeckillVoucher.objects.get(pk=it.pk).stage for it in sales]


def url_of(step: str, *sales: SeckillVoucher) -> str:
    return f"{LIST}{step}/?ids={','.join(str(it.pk) for it in sales)}"


def confirm(client: Client, url: str, **entries: str) -> Any:
    """Send what the page asks for, as it shows it."""
    return client.post(url, {**Filled(client.get(url).text).fields, **entries})


def warnings(client: Client, sale: SeckillVoucher) -> list[str]:
    """Return what the checklist of a draft warns of."""
    [(_, hints)] = client.get(url_of("publish", sale)).context["sales"]
    return [it.text for it in hints if it.level is Level.WARNING]


# --- The steps ------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", slow_after(1, ["publish", "withdraw"]))
def test_action_of_the_list_asks_before_it_does_anything(owner: Client, step: str) -> None:
    sales = [make_draft(), make_draft(stage=SaleStage.PUBLIC)]
    chosen = {"action": step, "_selected_action": [it.pk for it in sales]}

    answer = owner.post(LIST, chosen)

    assert answer["Location"] == url_of(step, *sales)
    page = owner.get(answer["Location"])
    assert page.status_code == 200
    assert "1 sale that you chose is left out" in words(page.text)
    assert stages(*sales) == ["draft", "public"]


def test_several_drafts_are_published_at_once(owner: Client) -> None:
    drafts = [make_draft(), make_draft(begins_at=timezone.now() - HOUR)]

    answer = confirm(owner, url_of("publish", *drafts))

    assert said(answer) == ["success: 2 sales were published."]
    listed = owner.get(answer["Location"]).context["cl"].result_list
    assert set(listed) == set(drafts)
    assert stages(*drafts) == ["public", "public"]
    assert {history_text(it) for it in LogEntry.objects.all()} == {"Stage: draft → public"}
    reserve(sale_id=drafts[1].pk, order_id=501, user_id=1)


def test_several_sales_are_withdrawn_at_once_for_a_reason(owner: Client) -> None:
    sales = [make_draft(stage=SaleStage.PUBLIC), make_loaded_sale()]

    answer = confirm(owner, url_of("withdraw", *sales), reason="Wrong year.")

    assert said(answer) == ["success: 2 sales were withdrawn."]
    assert stages(*sales) == ["draft", "draft"]
    assert {history_text(it) for it in LogEntry.objects.all()} == {
        "Stage: public → draft. Reason: Wrong year."
    }
    with pytest.raises(SalePaused):
        reserve(sale_id=sales[1].pk, order_id=501, user_id=1)


def test_sale_with_a_buyer_stays_public_and_is_named(owner: Client) -> None:
    free, bought = make_loaded_sale(), make_loaded_sale()
    reserve(sale_id=bought.pk, order_id=501, user_id=1)

    answer = confirm(owner, url_of("withdraw", free, bought))

    text = "The sale has orders, so it has to stay public. Pause it instead."
    assert said(answer) == ["success: 1 sale was withdrawn.", f"error: {bought}: {text}"]
    assert stages(free, bought) == ["draft", "public"]
    assert LogEntry.objects.count() == 1
    reserve(sale_id=bought.pk, order_id=502, user_id=2)


def test_wrong_series_is_withdrawn_from_where_it_was_published(owner: Client) -> None:
    series = [make_draft() for _ in range(3)]
    there = confirm(owner, url_of("publish", *series))["Location"]

    link = re.search(r'href="([^"]+)">Withdraw all</a>', owner.get(there).text)
    assert link
    confirm(owner, unescape(link[1]))

    assert stages(*series) == ["draft"] * 3


@pytest.mark.parametrize(
    "query", slow_after(1, ["", "ids=", "ids=x", "ids=" + "9" * 5_000, "ids=²"])
)
@pytest.mark.parametrize("step", ["publish", "withdraw"])
def test_page_without_a_sale_leads_to_the_list(owner: Client, step: str, query: str) -> None:
    make_draft()

    answer = owner.post(f"{LIST}{step}/?{query}")

    assert (answer.status_code, answer["Location"]) == (302, LIST)
    assert SeckillVoucher.objects.get().stage == SaleStage.DRAFT


def test_publish_of_a_public_sale_says_so(owner: Client) -> None:
    answer = owner.get(url_of("publish", make_loaded_sale()))
    text = "None of these sales is in the right state, or you may not change them."
    assert said(answer) == [f"warning: {text}"]


@pytest.mark.parametrize(
    "change", slow_after(1, [{"stock": 9}, {"needs_code": True}, {"paused": True}])
)
def test_draft_changed_meanwhile_is_shown_again(owner: Client, change: dict[str, Any]) -> None:
    draft = make_draft()
    entries = Filled(owner.get(url_of("publish", draft)).text).fields
    SeckillVoucher.objects.filter(pk=draft.pk).update(**change)

    answer = owner.post(url_of("publish", draft), entries)

    assert stages(draft) == ["draft"]
    assert said(answer)[0].startswith("warning: The sales have changed since your preview.")
    owner.post(url_of("publish", draft), Filled(answer.text).fields)
    assert stages(draft) == ["public"]


def test_draft_changed_before_its_lock_stays_a_draft(
    owner: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft, other = make_draft(), make_draft()

    def late(**kwargs: Any) -> SeckillVoucher:
        Voucher.objects.filter(pk=draft.voucher_id).update(title="Rice")
        return stage_sale(**kwargs)

    monkeypatch.setattr(stages_page, "stage_sale", late)
    answer = confirm(owner, url_of("publish", draft, other))

    assert stages(draft, other) == ["draft", "public"]
    assert "someone else changed the sale first" in said(answer)[-1]


def test_nothing_is_published_without_what_the_page_showed(owner: Client) -> None:
    draft = make_draft()
    assert owner.post(url_of("publish", draft), {"_publish": "yes"}).status_code == 200
    assert stages(draft) == ["draft"]


def test_without_redis_nothing_is_withdrawn(owner: Client, redis_gone: Any) -> None:
    sale = make_loaded_sale()
    entries = Filled(owner.get(url_of("withdraw", sale)).text).fields

    with redis_gone():
        answer = owner.post(url_of("withdraw", sale), entries)

    assert said(answer) == [
        f"error: {sale}: The change was not saved: Redis did not respond. Try again."
    ]
    assert stages(sale) == ["public"]


def test_preparing_staff_withdraws_only_what_has_not_started() -> None:
    clerk = staff_with("view_seckillvoucher", "change_seckillvoucher")
    coming, running = make_draft(stage=SaleStage.PUBLIC), make_loaded_sale()

    answer = confirm(clerk, url_of("withdraw", coming, running))

    assert said(answer) == ["success: 1 sale was withdrawn."]
    assert stages(coming, running) == ["draft", "public"]


# --- The checklist --------------------------------------------------------------------------------


def make_faultless_voucher() -> Voucher:
    voucher = make_voucher(valid_until=timezone.localdate() + dt.timedelta(days=90))
    set_picture(voucher=voucher, content=_webp())
    return voucher


def _webp() -> bytes:
    drawn = BytesIO()
    Image.new("RGB", (64, 36), "tomato").save(drawn, "WEBP")
    return drawn.getvalue()


def test_faultless_draft_has_nothing_to_check(owner: Client) -> None:
    draft = make_draft(voucher=make_faultless_voucher())

    page = words(owner.get(url_of("publish", draft)).text)

    assert warnings(owner, draft) == []
    for fine in ("Starts in 2 d 23 h.", "Lasts 1 d.", "Stock 5 at limit 1: at least 5 buyers."):
        assert fine in page


NO_CODE = "Buyers need an invitation code, and there are none yet: nobody can buy."


@pytest.mark.parametrize(
    ("fields", "text"),
    slow_after(
        2,
        [
            (
                {"begins_at": timezone.now() - HOUR},
                "Started 1 h ago: buyers can buy as soon as the sale is published.",
            ),
            ({"needs_code": True}, NO_CODE),
            ({"stock": 0}, "No vouchers: nobody can buy."),
            ({"paused": True}, "Paused: nobody can buy until the sale is resumed."),
        ],
    ),
    ids=["start", "codes", "stock", "pause"],
)
def test_checklist_names_what_is_wrong_with_the_sale(
    owner: Client, fields: dict[str, Any], text: str
) -> None:
    draft = make_draft(voucher=make_faultless_voucher(), **fields)
    assert [re.sub(r" \d+ (min|s)\b", "", it) for it in warnings(owner, draft)] == [text]


@pytest.mark.parametrize(
    ("fields", "text"),
    slow_after(
        2,
        [
            ({"valid_until": None}, "No last day: the voucher does not expire."),
            (
                {"valid_until": dt.date(2020, 1, 1)},
                "Valid until 2020-01-01, but the sale ends later.",
            ),
            ({"picture": None}, "No picture: buyers see a drawing of a ticket."),
            ({"price_cents": 0}, "Free: buyers pay nothing."),
        ],
    ),
    ids=["validity", "early", "picture", "price"],
)
def test_checklist_names_what_is_wrong_with_the_voucher(
    owner: Client, fields: dict[str, Any], text: str
) -> None:
    draft = make_draft(voucher=make_faultless_voucher())
    Voucher.objects.update(**fields)
    assert warnings(owner, draft) == [text]


def test_checklist_counts_the_codes_that_are_unused(owner: Client) -> None:
    draft = make_draft(voucher=make_faultless_voucher(), needs_code=True, stock=2)
    link = f"{LIST}{draft.pk}/codes/"
    assert warnings(owner, draft) == [NO_CODE]
    assert f'href="{link}"' in owner.get(url_of("publish", draft)).text
    InvitationCode.objects.create(seckill_voucher=draft, code="WELCOME1")
    assert warnings(owner, draft) == ["1 unused invitation code for 2 vouchers."]
    InvitationCode.objects.create(seckill_voucher=draft, code="WELCOME2")
    assert warnings(owner, draft) == []


def test_checklist_names_an_overlap_with_another_sale(owner: Client) -> None:
    draft = make_draft(voucher=make_faultless_voucher())
    make_sale(voucher=draft.voucher, begins_at=draft.begins_at, ends_at=draft.ends_at)
    assert warnings(owner, draft)[0].startswith("Overlaps with another sale of this voucher")


def test_checklists_of_many_drafts_cost_no_more_statements(owner: Client) -> None:
    def cost(count: int) -> int:
        url = url_of("publish", *[make_draft(needs_code=True) for _ in range(count)])
        owner.get(url)
        with CaptureQueriesContext(connection) as queries:
            assert len(owner.get(url).context["sales"]) == count
        return len(queries)

    assert cost(2) == cost(12)


def test_one_draft_is_shown_beside_its_buyers_page(owner: Client) -> None:
    one, other = make_draft(), make_draft()
    frame = f'<iframe src="/vouchers/{one.pk}/preview/"'
    assert frame in owner.get(url_of("publish", one)).text
    both = owner.get(url_of("publish", one, other)).text
    assert "<iframe" not in both
    assert all(f'href="/vouchers/{it.pk}/preview/"' in both for it in (one, other))
