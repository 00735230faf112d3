"""The generated files of the shop's face, which any cache may keep, and its terms."""

from pathlib import Path

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import override

from seckill_site.face.icons import SIZES, icon
from seckill_site.face.site_face import IS_ADDRESS, face_digest, logo_bytes, site_face, theme_css
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
        face = site_face()
    icons = [
        {
            "src": reverse("face-icon", args=[face_digest(), name]),
            "sizes": f"{SIZES[name]}x{SIZES[name]}",
            "type": "image/png",
            "purpose": "maskable" if name == "maskable" else "any",
        }
        for name in ("192", "512", "maskable")
    ]
    content = {
        "id": "/",
        "name": face.name,
        "short_name": face.name,
        "lang": "en" if language == "en" else "zh-Hans",
        "start_url": "/",
        "scope": "/",
        "display": "minimal-ui",
        "theme_color": face.colour,
        "background_color": "#f5f3ef",
        "icons": icons,
    }
    response = JsonResponse(content, json_dumps_params={"ensure_ascii": False})
    response["Content-Type"] = "application/manifest+json"
    return _kept(response, digest)


@allow("GET", "HEAD")
def terms(request: HttpRequest) -> HttpResponseBase:
    """Show the terms that the shop keeps in a file."""
    path = site_face().terms
    if not path or IS_ADDRESS.fullmatch(path):
        raise Http404
    text = Path(path).read_text(encoding="utf-8")
    return as_shell(render(request, "terms.html", {"text": text}))
