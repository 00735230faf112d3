"""The generated files of the shop's face, which any cache may keep, and its terms."""

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.translation import override

from seckill_site.face.icons import SIZES, icon
from seckill_site.face.site_face import face_digest, logo_bytes, site_face, theme_css
from seckill_site.web.responses import allow, as_shell, for_ever, for_everybody


def _kept(response: HttpResponse, digest: str) -> HttpResponse:
    """Let caches keep a file for ever; one of another release is answered, but kept shortly."""
    return for_ever(response) if digest == face_digest() else for_everybody(response)


@allow("GET", "HEAD")
def theme(request: HttpRequest, digest: str) -> HttpResponseBase:
    """Return the style sheet with the shop's colour."""
    return _kept(HttpResponse(theme_css(), content_type="text/css; charset=utf-8"), digest)


@allow("GET", "HEAD")
def icon_file(request: HttpRequest, digest: str, name: str) -> HttpResponseBase:
    """Return an icon."""
    if name not in SIZES:
        raise Http404
    content = icon(name, colour=site_face().rgb, logo=logo_bytes())
    return _kept(HttpResponse(content, content_type="image/png"), digest)


@allow("GET", "HEAD")
def manifest(request: HttpRequest, digest: str, language: str) -> HttpResponseBase:
    """Return the web app manifest in one language."""
    with override("en" if language == "en" else "zh-hans"):
        content = render_to_string("face_manifest.json")
    return _kept(HttpResponse(content, content_type="application/manifest+json"), digest)


@allow("GET", "HEAD")
def terms(request: HttpRequest) -> HttpResponseBase:
    """Show the terms, unless the shop has none or has them on a page elsewhere."""
    face = site_face()
    if face.terms_url == face.terms:
        raise Http404
    return as_shell(render(request, "terms.html", {"text": face.terms_text.decode()}))
