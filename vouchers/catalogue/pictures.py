"""Pictures of vouchers: each upload becomes one small WebP, kept in the database.

They are in the database so that web machines need no shared disk. A picture is identified by the
digest of its bytes: what its address returns never changes, and caches may keep it forever.
"""

import itertools
from contextlib import suppress
from functools import lru_cache, partial
from hashlib import blake2b
from io import BytesIO
from typing import NamedTuple

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _
from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError

from vouchers.models import Picture, Voucher

LARGEST_UPLOAD_BYTES = 10_000_000
MOST_PIXELS = 40_000_000

BOX = (960, 540)
"""The largest width and height of a picture, in pixels."""

THUMBNAIL = (192, 108)
"""The largest width and height of a picture in a list."""

LARGEST_BYTES = 22_500
"""With a picture of this size the whole purchase page stays below 50 kB in transfer."""

FORMATS = ("JPEG", "PNG", "WEBP", "GIF")
_QUALITIES = (82, 74, 66, 58, 50, 42)
_SMALLER = 0.8
_SRGB = ImageCms.createProfile("sRGB")


class UnusablePicture(Exception):
    """The file cannot become a picture of a voucher; the text says why, and what to do."""


class WebP(NamedTuple):
    """A picture as it is stored: bytes, and width and height in pixels."""

    content: bytes
    width: int
    height: int


def store_picture(*, content: bytes) -> Picture:
    """Store an uploaded file as it will be served; the same bytes share one row.

    In a transaction the row is locked until its end, so that nobody drops it as unused meanwhile.

    :raises UnusablePicture: the file cannot be shown.
    """
    webp = as_webp(content=content)
    digest = blake2b(webp.content, digest_size=16).hexdigest()
    # This locks an existing row, without writing its bytes again.
    picture, _made = Picture.objects.update_or_create(
        digest=digest, defaults={}, create_defaults=webp._asdict()
    )
    return picture


@lru_cache(maxsize=256)
def thumbnail_of(*, digest: str) -> bytes:
    """Return a stored picture small enough for a long list, as WebP.

    :raises Picture.DoesNotExist: there is no such picture.
    """
    stored = Picture.objects.only("content").get(pk=digest)
    with Image.open(BytesIO(stored.content), formats=("WEBP",)) as image:
        image.thumbnail(THUMBNAIL, Image.Resampling.LANCZOS)
        output = BytesIO()
        image.save(output, "WEBP", quality=70, method=4)
    return output.getvalue()


def set_picture(*, voucher: Voucher, content: bytes | None) -> None:
    """Give a stored voucher this picture, or none, and drop the former one if it is now unused.

    :raises UnusablePicture: the file cannot be shown; nothing changed.
    """
    former = voucher.picture_id
    with transaction.atomic():
        voucher.picture = None if content is None else store_picture(content=content)
        voucher.save(update_fields=["picture"])
        if former and former != voucher.picture_id:
            # After the commit: two vouchers that swap pictures would deadlock in here.
            transaction.on_commit(partial(drop_unused, digest=former), robust=True)


def drop_unused(*, digest: str) -> None:
    """Delete a picture unless a voucher has it."""
    # The foreign key decides: it also sees a voucher that is being given the picture right now.
    with suppress(IntegrityError), transaction.atomic():
        Picture.objects.filter(pk=digest).delete()


def as_webp(*, content: bytes) -> WebP:
    """Return a JPEG, PNG, WebP or GIF as the small WebP that is stored.

    The result is upright, fits into the box, is opaque, in sRGB and without metadata. Only the
    first frame of a GIF is used. Given such a result, return it unchanged.

    :raises UnusablePicture: too large, of another type, animated, broken or cut off.
    """
    if len(content) > LARGEST_UPLOAD_BYTES:
        raise UnusablePicture(_("The file is larger than 10 MB. Make it smaller and try again."))
    try:
        return _as_webp(content)
    except UnusablePicture:
        raise
    except UnidentifiedImageError as error:
        raise UnusablePicture(
            _("This file is not a picture. Choose a JPEG, PNG, WebP or GIF file.")
        ) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UnusablePicture(
            _("The picture has more than 40 million pixels. Scale it down and try again.")
        ) from error
    # A broken file may raise anything in a decoder: struct.error, SyntaxError, EOFError…
    except Exception as error:
        raise UnusablePicture(
            _("The picture is damaged or incomplete. Save it again and retry.")
        ) from error


def _as_webp(content: bytes) -> WebP:
    with Image.open(BytesIO(content), formats=FORMATS) as image:
        if image.width * image.height > MOST_PIXELS:
            raise Image.DecompressionBombError
        if image.format in ("PNG", "WEBP") and getattr(image, "is_animated", False):
            raise UnusablePicture(_("This picture is animated. Choose a still one."))
        if _is_finished(image, content):
            image.load()
            return WebP(content, image.width, image.height)
        image.draft(None, (2 * max(BOX), 2 * max(BOX)))  # a large JPEG is decoded small
        return _shrink(_fit(image))


def _is_finished(image: Image.Image, content: bytes) -> bool:
    """Return whether these bytes are exactly one lossy picture of our size."""
    chunk_bytes = int.from_bytes(content[16:20], "little")
    return (
        content[12:16] == b"VP8 "
        and len(content) == 20 + chunk_bytes + chunk_bytes % 2
        and len(content) <= LARGEST_BYTES
        and image.width <= BOX[0]
        and image.height <= BOX[1]
    )


def _fit(image: Image.Image) -> Image.Image:
    ImageOps.exif_transpose(image, in_place=True)
    fitted = _to_blendable_mode(image)
    fitted.thumbnail(BOX, Image.Resampling.LANCZOS)
    return _to_srgb(_flatten(fitted), image.info.get("icc_profile"))


def _to_blendable_mode(image: Image.Image) -> Image.Image:
    """Return the image in a mode whose pixels can be averaged: no palette, and eight bits."""
    if image.has_transparency_data:
        return image if image.mode == "RGBA" else image.convert("RGBA")
    if image.mode.startswith("I"):
        return image.point(lambda value: value / 256).convert("L")
    return image if image.mode in ("RGB", "CMYK", "L") else image.convert("RGB")


def _flatten(image: Image.Image) -> Image.Image:
    """Return the image with white behind its transparent parts."""
    if image.mode != "RGBA":
        return image
    white = Image.new("RGB", image.size, "white")
    white.paste(image, mask=image.getchannel("A"))
    return white


def _to_srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    """Return the image in the colour space that a browser assumes without a profile."""
    if profile:
        # Ignore a profile that cannot be read or is for another kind of image.
        with suppress(ImageCms.PyCMSError):
            converted = ImageCms.profileToProfile(image, BytesIO(profile), _SRGB, outputMode="RGB")
            if converted:
                return converted
    return image.convert("RGB")


def _shrink(image: Image.Image) -> WebP:
    """Encode the image, lowering the quality, then the size, until it is small enough."""
    for power in itertools.count():
        size = [max(1, round(side * _SMALLER**power)) for side in image.size]
        scaled = image.resize(size, Image.Resampling.LANCZOS) if power else image
        for quality in _QUALITIES:
            output = BytesIO()
            scaled.save(
                output, "WEBP", quality=quality, method=4, exif=b"", icc_profile=b"", xmp=b""
            )
            if len(content := output.getvalue()) <= LARGEST_BYTES:
                return WebP(content, *scaled.size)
    raise AssertionError("a picture of one pixel is small enough")
