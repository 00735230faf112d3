"""Files for anybody to check a sale with, over HTTP: with an ETag, and compressed where taken."""

import gzip
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils.cache import get_conditional_response, patch_vary_headers

from seckill_site.web.responses import for_everybody


def file_response(
    request: HttpRequest, *, name: str, tag: str, compressed: Callable[[], bytes]
) -> HttpResponse:
    """Return a text file under this name, made only if the client has not got it by its tag."""
    response = for_everybody(HttpResponse(content_type="text/plain; charset=us-ascii"))
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["ETag"] = f'W/"{tag}"'
    patch_vary_headers(response, ["Accept-Encoding"])
    known = get_conditional_response(request, response["ETag"], response=response) or response
    if known is not response:
        return known
    response.content = compressed()
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        response["Content-Encoding"] = "gzip"
    else:
        response.content = gzip.decompress(response.content)
    return response
