"""The page *Settings*: for owners, checked, and read-only where the environment decides."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core import mail
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client, TestCase
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from orders.lifecycle.outbox import Mail, Message
from orders.roles import Role, make_roles
from seckill_site.face.site_face import both_faces, face_digest
from seckill_site.models import ShopSettings
from tests.support.asgi import ask
from tests.support.browsers import HTML
from tests.support.html_forms import filled
from tests.support.settings import set_by_owner
from tests.support.staff import said, staff_with, words

pytestmark = [pytest.mark.django_db, pytest.mark.quick]

LIST = "/admin/seckill_site/shopsettings/"
PAGE = f"{LIST}1/change/"


@pytest.fixture
def owner() -> Client:
    return staff_with(name="owner", is_owner=True)


def save(owner: Client, **changes: Any) -> Any:
    """Send the page's form as it is, with these changes."""
    opened = filled(owner.get(PAGE))
    with TestCase.captureOnCommitCallbacks(execute=True):
        return owner.post(PAGE, {**opened, **changes}, follow=True)


def errors(response: Any) -> dict[str, Any]:
    return dict(response.context["adminform"].form.errors)


def upload(content: bytes, name: str = "logo.png") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content, content_type="image/png")


def picture(
    size: tuple[int, int] = (300, 200), kind: str = "PNG", color: str = "navy", **options: Any
) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, color).save(file, kind, **options)
    return file.getvalue()


# --- The page -------------------------------------------------------------------------------------


def test_owner_reaches_the_page_and_saves(owner: Client) -> None:
    assert f'href="{LIST}"' in owner.get("/admin/").text
    assert owner.get(LIST)["Location"] == PAGE

    response = save(owner, name="老街茶馆", name_en="Old Street", contact="help@tea.example")

    assert said(response)[0].startswith("success: Saved the settings")
    assert response.redirect_chain[-1][0] == PAGE
    assert [it.name for it in both_faces()] == ["老街茶馆", "Old Street"]
    assert "Changed Shop name" in words(owner.get(f"{LIST}1/history/").text)


def test_page_does_not_lead_back_to_itself(owner: Client) -> None:
    assert "breadcrumbs" not in owner.get(PAGE).text
    trail = owner.get(f"{LIST}1/history/").text.partition('class="breadcrumbs">')[2]
    assert words(trail.partition("</div>")[0]).split() == ["Settings", "›", "History"]


def test_first_look_sets_nothing(owner: Client) -> None:
    assert 'placeholder="Seckill"' in owner.get(PAGE).text
    assert both_faces()[0].name == "Seckill"
    assert owner.get(f"{LIST}2/change/").status_code == 302


def test_stale_form_leaves_what_another_owner_has_changed(owner: Client) -> None:
    opened = filled(owner.get(PAGE))
    save(owner, name="Theirs", contact="theirs@tea.example")

    owner.post(PAGE, {**opened, "imprint": "Mine"})

    values = ShopSettings.objects.get().values
    assert values == {"name": "Theirs", "contact": "theirs@tea.example", "imprint": "Mine"}


def test_others_than_owners_are_refused() -> None:
    clerk = staff_with("change_voucher", "view_seckillvoucher")

    assert clerk.get(LIST).status_code == clerk.get(PAGE).status_code == 403
    assert LIST not in clerk.get("/admin/").text


def test_pages_and_mails_show_what_was_saved(owner: Client) -> None:
    save(
        owner,
        name_en="Old Street",
        contact="help@tea.example",
        imprint="ICP 1",
        terms="Pay first.\n\n<b>Then</b> eat.",
        colour="#0a7d4f",
    )

    page = Client(headers={**HTML, "Accept-Language": "en"}).get("/").text
    assert "Old Street" in page
    assert 'href="mailto:help@tea.example"' in page
    assert "ICP 1" in page
    assert 'href="/terms/"' in page
    assert f"/face/{face_digest()}/theme.css" in page
    assert "&lt;b&gt;Then" in Client(headers=HTML).get("/terms/").text
    assert "#0a7d4f" in Client().get(f"/face/{face_digest()}/theme.css").text


def test_line_ends_of_a_browser_change_no_terms(owner: Client) -> None:
    """Buyers agreed to a digest of these bytes."""
    set_by_owner(terms="Pay first.\nThen eat.")

    save(owner, terms="Pay first.\r\nThen eat.", name="Tea")

    assert both_faces()[0].terms_text == b"Pay first.\nThen eat."
    history = words(owner.get(f"{LIST}1/history/").text)
    assert "UTC+8 owner Changed Shop name." in history


def test_front_doors_own_error_page_follows() -> None:
    for name in ("Before", "After"):
        set_by_owner(name=name)
        assert both_faces()[0].name == name  # its own thread sees no open transaction
        page = ask("GET", "/vouchers/abc/", HTTP_ACCEPT="text/html").body.decode()
        assert name in page


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "x" * 41),
        ("imprint", "x" * 301),
        ("contact", "call us"),
        ("contact", "javascript:alert(1)"),
        ("colour", "red"),
        ("mail_from", "nobody"),
        ("mail_from", "a@tea.example, b@tea.example"),
        ("mail_from", "Tea\r\nBcc: c@tea.example <a@tea.example>"),
        ("name", "two\nlines"),
        ("terms", "x" * (256 * 1024 + 1)),
    ],
)
def test_unusable_value_is_refused_at_its_field(owner: Client, field: str, value: str) -> None:
    assert list(errors(save(owner, **{field: value}))) == [field]
    assert ShopSettings.objects.get().values.get(field, "") == ""


# --- The environment ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "field", "value"),
    [
        ("SECKILL_SHOP_NAME", "name", "好券集市"),
        ("SECKILL_SHOP_NAME_EN", "name_en", "Voucher Market"),
        ("SECKILL_SHOP_CONTACT", "contact", "help@shop.example"),
        ("SECKILL_SHOP_IMPRINT", "imprint", "ICP 2"),
        ("SECKILL_SHOP_IMPRINT_EN", "imprint_en", "ICP 2"),
        ("SECKILL_SHOP_TERMS", "terms", "/srv/terms.txt"),
        ("SECKILL_SHOP_TERMS_EN", "terms_en", "/srv/terms_en.txt"),
        ("SECKILL_SHOP_COLOUR", "colour", "#0a7d4f"),
        ("SECKILL_SHOP_LOGO", "new_logo", "/srv/logo.png"),
        ("SECKILL_MAIL_FROM", "mail_from", "shop@mailhost"),
        ("SECKILL_SHOP_INVITATION", "invitation", "Welcome"),
        ("SECKILL_SHOP_INVITATION_EN", "invitation_en", "Welcome"),
    ],
)
def test_variable_that_is_set_is_shown_read_only(
    owner: Client, settings: Any, variable: str, field: str, value: str
) -> None:
    setattr(settings, variable, value)

    form = owner.get(PAGE).context["adminform"].form
    response = save(
        owner,
        **{
            field: "forged@tea.example",
            "contact" if field != "contact" else "name": "tea@tea.example",
        },
    )

    assert form[field].field.disabled
    assert form[field].help_text == f"Set by {variable} in the environment, which wins."
    assert field == "new_logo" or form[field].value() == value
    assert said(response)[0].startswith("success")
    assert field not in ShopSettings.objects.get().values


# --- The logo -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "JPEG"])
def test_logo_is_decoded_stored_and_served_as_png(owner: Client, kind: str) -> None:
    save(owner, new_logo=upload(picture((1024, 512), kind=kind)))

    stored = Image.open(io.BytesIO(ShopSettings.objects.get().logo))
    assert (stored.format, stored.size) == ("PNG", (512, 256))
    icon = Client().get(f"/face/{face_digest()}/icon-64.png")
    assert icon["Content-Type"] == "image/png"
    assert icon["X-Content-Type-Options"] == "nosniff"
    assert Image.open(io.BytesIO(icon.content)).size == (64, 64)
    assert f"/face/{face_digest()}/icon-64.png" in owner.get(PAGE).text


def test_logo_keeps_its_pixels_alone(owner: Client) -> None:
    note = PngInfo()
    note.add_text("Comment", "<script>alert(1)</script>")
    content = picture(pnginfo=note) + b"<script>alert(2)</script>"

    save(owner, new_logo=upload(content))

    assert b"script" not in ShopSettings.objects.get().logo


@pytest.mark.parametrize(
    "content",
    [
        b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
        b"<html></html>",
        b"GIF89a" + b"\0" * 100,
        picture((63, 200)),
        picture((64, 4097)),
        picture() + b"\0" * 1024 * 1024,
        picture()[:60],
    ],
    ids=["svg", "html", "gif", "narrow", "long", "large", "cut off"],
)
def test_unusable_logo_is_refused(owner: Client, content: bytes) -> None:
    response = save(owner, new_logo=upload(content))

    assert "PNG, WebP or JPEG" in str(errors(response)["new_logo"])
    assert ShopSettings.objects.get().logo == b""


def test_logo_stays_until_it_is_removed(owner: Client) -> None:
    save(owner, new_logo=upload(picture()))
    save(owner, name="Tea")
    assert both_faces()[0].has_logo

    save(owner, remove_logo="on")

    assert not both_faces()[0].has_logo
    assert both_faces()[0].name == "Tea"


@pytest.mark.parametrize("mine", [{"remove_logo": "on"}, {"new_logo": "green"}])
def test_logo_that_another_owner_replaced_is_not_undone_unseen(
    owner: Client, mine: dict[str, str]
) -> None:
    save(owner, new_logo=upload(picture()))
    opened = filled(owner.get(PAGE))
    save(owner, new_logo=upload(picture(color="red")))
    theirs = ShopSettings.objects.get().logo
    if "new_logo" in mine:
        sent: dict[str, Any] = {"new_logo": upload(picture(color=mine["new_logo"]))}
    else:
        sent = mine

    refused = owner.post(PAGE, {**opened, **sent})

    assert set(errors(refused)) == set(mine)
    assert ShopSettings.objects.get().logo == theirs


# --- Mails ----------------------------------------------------------------------------------------


def test_all_mails_come_from_the_sender(owner: Client) -> None:
    save(owner, mail_from="Tea <shop@tea.example>")
    make_roles()

    with Mail().opened() as send:
        send("ann@example.com", Message("Hello", "World"))
    invite(owner)
    owner.post("/accounts/email/", {"action_add": "", "email": "boss@example.com"})

    assert [it.from_email for it in mail.outbox] == ["Tea <shop@tea.example>"] * 3


def invite(owner: Client) -> None:
    role = Group.objects.get(name=Role.CASHIER)
    new = {"email": "new@example.com", "role": role.name}
    with TestCase.captureOnCommitCallbacks(execute=True):
        owner.post("/admin/accounts/invitation/add/", new)


def test_invitation_says_the_text_first(owner: Client) -> None:
    save(owner, invitation="你好！", invitation_en="Hello & welcome!")
    make_roles()

    invite(owner)

    body = str(mail.outbox[0].body)
    assert body.startswith("Hello & welcome!\n\nYou are invited to work in the shop as: Cashier.")
    assert re.search(r"/accounts/invitations/\S+/", body)
