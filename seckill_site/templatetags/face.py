"""Template tags for the shop's face in pages, error pages and mails; they need no request."""

from django import template
from django.urls import reverse

from seckill_site.face.site_face import Face, face_digest, site_face
from seckill_site.web.responses import absolute_url

register = template.Library()


@register.simple_tag
def shop_face() -> Face:
    """Return the face in the page's language."""
    return site_face()


@register.simple_tag
def shop_name() -> str:
    """Return the name of the shop in the page's language."""
    return site_face().name


@register.simple_tag
def face_url(name: str, *args: str) -> str:
    """Return the path of a generated file of the face, which changes with its content."""
    return reverse(f"face-{name}", args=[face_digest(), *args])


@register.simple_tag
def site_address(path: str = "/") -> str:
    """Return the absolute address of a path of this site."""
    return absolute_url(path)
