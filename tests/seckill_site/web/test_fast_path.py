"""The gate: shut where it must be, and out of the way where it fails."""

from __future__ import annotations

import io
from typing import Any

import pytest

from seckill_site.web.fast_path import request_path, with_fast_path
from seckill_site.web.responses import Answer

pytestmark = pytest.mark.quick


def behind(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("301 Moved Permanently", [])
    return [environ["wsgi.input"].read()]


def asked(site: Any, **environ: Any) -> tuple[str, bytes]:
    begun: list[str] = []
    environ = {"wsgi.input": io.BytesIO(b"body"), **environ}
    content = b"".join(site(environ, lambda status, headers: begun.append(status)))
    return begun[0], content


def test_plain_http_bypasses_the_fast_path_if_https_is_required() -> None:
    answer = Answer(200, "{}", ())
    site = with_fast_path(behind, responders=[lambda environ: answer], https_only=True)
    assert asked(site)[0] == "301 Moved Permanently"
    assert asked(site, HTTP_X_FORWARDED_PROTO="https")[0] == "200 OK"


def test_first_responder_with_an_answer_wins() -> None:
    answers = [None, Answer(200, "{}", ()), Answer(404, "", ())]
    asks = [lambda environ, it=it: it for it in answers]
    assert asked(with_fast_path(behind, responders=asks, https_only=False)) == ("200 OK", b"{}")


def test_failing_responder_leaves_the_request_to_django(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(environ: dict[str, Any]) -> None:
        raise RuntimeError("a fault of ours")

    site = with_fast_path(behind, responders=[broken], https_only=False)
    assert asked(site, PATH_INFO="/x/") == ("301 Moved Permanently", b"body")
    assert "the fast path failed at /x/" in caplog.text


def test_path_includes_the_script_name() -> None:
    assert request_path({"PATH_INFO": "/a/"}) == "/a/"
    assert request_path({"PATH_INFO": "/a/", "SCRIPT_NAME": "/shop"}) == "/shop/a/"
