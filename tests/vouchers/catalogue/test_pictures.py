"""Pictures: each upload becomes one small WebP, or is refused with the reason."""

from __future__ import annotations

import zlib
from contextlib import suppress
from threading import Event

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from PIL import Image, ImageCms

from tests.support.orders import at_once
from tests.support.patience import GENEROUS_S
from tests.support.photos import RED, film_file, image_file, noise_file, opened, saved
from tests.support.sales import make_voucher
from tests.support.tiers import slow_after
from vouchers.catalogue.pictures import (
    BOX,
    LARGEST_BYTES,
    UnusablePicture,
    as_webp,
    drop_unused,
    set_picture,
    store_picture,
)
from vouchers.models import Picture, Voucher

ORIENTATION, DESCRIPTION, TURNED = 0x0112, 0x010E, 6

pytestmark = pytest.mark.usefixtures("english")


def near(colour, other):
    return all(abs(a - b) <= 8 for a, b in zip(colour, other, strict=True))


def middle(content):
    """Return the colour in the middle of a picture."""
    image = opened(content).convert("RGB")
    return image.getpixel((image.width // 2, image.height // 2))


def exif(**tags):
    found = Image.Exif()
    found[ORIENTATION] = tags.get("orientation", 1)
    found[DESCRIPTION] = "a secret of the photographer"
    return found


# --- Encoding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF"])
def test_each_format_becomes_webp(kind):
    webp = as_webp(content=image_file(kind=kind))

    image = opened(webp.content)
    assert (image.format, image.size) == ("WEBP", (640, 360))
    assert (webp.width, webp.height) == (640, 360)
    assert near(middle(webp.content), RED)


@pytest.mark.parametrize(
    ("size", "fitted"),
    slow_after(
        2,
        [
            ((1920, 1080), (960, 540)),
            ((4000, 3000), (720, 540)),
            ((3000, 1000), (960, 320)),
            ((1000, 4000), (135, 540)),
            ((300, 200), (300, 200)),
            ((8000, 1), (960, 1)),
            ((1, 1), (1, 1)),
        ],
    ),
)
def test_picture_fits_box_and_keeps_ratio(size, fitted):
    webp = as_webp(content=image_file(size=size))

    assert (webp.width, webp.height) == opened(webp.content).size == fitted


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_noise_is_made_small_enough(kind):
    webp = as_webp(content=noise_file(kind=kind))

    assert len(webp.content) <= LARGEST_BYTES
    assert webp.width < BOX[0]
    assert abs(webp.width / webp.height - 16 / 9) < 0.02


def test_small_picture_keeps_best_quality():
    # The control of the one above: a plain picture keeps its size.
    assert as_webp(content=image_file(size=BOX)).width == BOX[0]


def test_photo_is_upright_and_has_no_metadata():
    image = Image.new("RGB", (800, 400), "blue")
    image.paste(RED, (0, 0, 400, 400))  # on the left; once turned clockwise it is on top
    content = as_webp(content=saved(image, "JPEG", exif=exif(orientation=TURNED))).content

    upright = opened(content)
    assert upright.size == (270, 540)
    assert near(upright.convert("RGB").getpixel((135, 60)), RED)
    assert not upright.getexif()
    assert b"EXIF" not in content
    assert b"photographer" not in content


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_any_color_depth_keeps_its_look(mode):
    if mode == "I;16":
        image, looks = Image.new(mode, (80, 60), 40_000), (156, 156, 156)
    else:
        image = Image.new("RGB", (80, 60), "white").convert(mode)
        looks = (255, 255, 255)
    kind = "JPEG" if mode == "CMYK" else "PNG"

    assert near(middle(as_webp(content=saved(image, kind)).content), looks)


def test_transparency_becomes_white():
    content = image_file(kind="PNG", mode="RGBA", colour=(*RED, 0))

    assert near(middle(as_webp(content=content).content), (255, 255, 255))


def test_color_profile_is_converted_to_srgb():
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for icc in (srgb, profile, b"no profile at all"):
        content = as_webp(content=image_file(icc_profile=icc)).content
        assert near(middle(content), RED)
        assert b"ICCP" not in content


def test_first_frame_of_gif_and_double_photo_is_used():
    for kind in ("GIF", "MPO"):
        assert near(middle(as_webp(content=film_file(kind)).content), RED)


def test_stored_picture_is_returned_unchanged():
    once = as_webp(content=noise_file(size=(400, 300)))

    assert as_webp(content=once.content) == once


def test_webp_with_trailing_bytes_is_encoded_again():
    once = as_webp(content=image_file()).content

    assert b"hidden" not in as_webp(content=once + b"hidden").content


# --- Refusals -------------------------------------------------------------------------------------


def bomb(width, height):
    """Return a small file whose header promises a huge picture."""
    small = saved(Image.new("1", (1, 1)), "PNG")
    header = small[12:16] + width.to_bytes(4) + height.to_bytes(4) + small[24:29]
    return small[:12] + header + zlib.crc32(header).to_bytes(4) + small[33:]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not a picture"),
        (b"hello", "not a picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a picture"),
        (image_file(kind="BMP"), "not a picture"),
        (image_file(kind="TIFF"), "not a picture"),
        (film_file("WEBP"), "animated"),
        (film_file("PNG"), "animated"),
        (b"\0" * 10_000_001, "10 MB"),
        (bomb(7_000, 6_000), "40 million pixels"),
        (bomb(14_000, 10_000), "40 million pixels"),
        (bomb(20_000, 18_000), "40 million pixels"),
    ],
    ids=["empty", "text", "svg", "bmp", "tiff", "moving webp", "moving png", "bytes", "pixels",
         "bomb", "large bomb"],
)  # fmt: skip
def test_unusable_picture_is_refused_with_reason(content, why):
    with pytest.raises(UnusablePicture, match=why):
        as_webp(content=content)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF"])
@pytest.mark.parametrize("part", [0.1, 0.5, 0.95])
def test_truncated_picture_is_refused(kind, part):
    whole = noise_file(kind=kind, size=(200, 120))

    with pytest.raises(UnusablePicture):
        as_webp(content=whole[: int(len(whole) * part)])


@pytest.mark.parametrize("kind", slow_after(1, ["JPEG", "PNG", "WEBP", "GIF"]))
def test_corrupt_byte_gives_picture_or_refusal(kind):
    whole = noise_file(kind=kind, size=(16, 12))
    for place in range(0, len(whole), 1 + len(whole) // 150):
        for byte in (0x00, 0xFF, whole[place] ^ 0x80):
            broken = whole[:place] + bytes([byte]) + whole[place + 1 :]
            with suppress(UnusablePicture):
                assert as_webp(content=broken).content


def test_png_text_bomb_is_never_unpacked():
    text = zlib.compress(b"x" * 100_000_000)
    chunk = b"zTXt" + b"a\0\0" + text
    bomb = len(chunk[4:]).to_bytes(4) + chunk + zlib.crc32(chunk).to_bytes(4)
    whole = image_file(kind="PNG")

    with pytest.raises(UnusablePicture):
        as_webp(content=whole[:33] + bomb + whole[33:])


# --- In the database ------------------------------------------------------------------------------


@pytest.mark.django_db
def test_same_file_is_same_row():
    first, again = (store_picture(content=image_file()) for _ in range(2))
    other = store_picture(content=image_file(colour="blue"))

    assert first == again
    assert first != other
    assert Picture.objects.count() == 2
    stored = Picture.objects.get(pk=first.pk)
    assert (stored.width, stored.height) == opened(bytes(stored.content)).size == (640, 360)


@pytest.mark.django_db
def test_refused_file_stores_nothing():
    with pytest.raises(UnusablePicture):
        store_picture(content=b"hello")

    assert not Picture.objects.exists()


@pytest.mark.django_db
def test_storing_again_locks_row_without_writing_bytes():
    with CaptureQueriesContext(connection) as first:
        store_picture(content=image_file())
    with CaptureQueriesContext(connection) as again:
        store_picture(content=image_file())

    assert any("RIFF" in query["sql"] for query in first)
    assert not any("RIFF" in query["sql"] for query in again)
    assert any("FOR UPDATE" in query["sql"] for query in again)


@pytest.fixture
def voucher(db):
    return make_voucher()


def replace(voucher, content, callbacks):
    with callbacks(execute=True):
        set_picture(voucher=voucher, content=content)
    return Voucher.objects.get(pk=voucher.pk)


def test_replaced_picture_is_dropped(voucher, django_capture_on_commit_callbacks):
    replace(voucher, image_file(), django_capture_on_commit_callbacks)
    found = replace(voucher, image_file(colour="blue"), django_capture_on_commit_callbacks)

    assert [picture.pk for picture in Picture.objects.all()] == [found.picture_id]


def test_picture_is_removed(voucher, django_capture_on_commit_callbacks):
    replace(voucher, image_file(), django_capture_on_commit_callbacks)
    found = replace(voucher, None, django_capture_on_commit_callbacks)

    assert found.picture_id is None
    assert not Picture.objects.exists()


def test_shared_picture_is_kept(voucher, django_capture_on_commit_callbacks):
    other = replace(make_voucher(), image_file(), django_capture_on_commit_callbacks)
    replace(voucher, image_file(), django_capture_on_commit_callbacks)
    replace(voucher, None, django_capture_on_commit_callbacks)

    assert Picture.objects.get().pk == other.picture_id


def test_same_picture_again_changes_nothing(voucher, django_capture_on_commit_callbacks):
    replace(voucher, image_file(), django_capture_on_commit_callbacks)
    found = replace(voucher, image_file(), django_capture_on_commit_callbacks)

    assert Picture.objects.get().pk == found.picture_id


def test_refused_file_keeps_former_picture(voucher, django_capture_on_commit_callbacks):
    before = replace(voucher, image_file(), django_capture_on_commit_callbacks)

    with pytest.raises(UnusablePicture):
        replace(voucher, b"hello", django_capture_on_commit_callbacks)

    assert Voucher.objects.get().picture_id == before.picture_id


@pytest.mark.django_db(transaction=True)
def test_picture_being_assigned_is_not_dropped(row_locks):
    """One voucher gets the picture that another has just lost."""
    digest = store_picture(content=image_file()).pk
    voucher, stored = make_voucher(), Event()

    def give():
        with transaction.atomic():
            voucher.picture = store_picture(content=image_file())
            stored.set()
            voucher.save(update_fields=["picture"])

    def drop():
        assert stored.wait(GENEROUS_S)
        drop_unused(digest=digest)

    assert at_once(give, drop) == [None, None]
    assert Voucher.objects.get().picture_id == digest


@pytest.mark.django_db(transaction=True)
def test_control_without_lock_picture_is_dropped(row_locks):
    """The control: the picture is found, then dropped by another, and cannot be assigned."""
    digest = store_picture(content=image_file()).pk
    voucher = make_voucher()

    def give():
        with transaction.atomic():
            voucher.picture = Picture.objects.get(pk=digest)  # not held
            at_once(lambda: drop_unused(digest=digest))
            voucher.save(update_fields=["picture"])

    with pytest.raises(IntegrityError):
        give()
