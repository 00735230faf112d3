"""Bodies at the front door: whole at once, in parts, too slow, given up."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from io import BytesIO
from typing import Any

import pytest
from django.core.handlers.wsgi import WSGIRequest
from django.utils.translation import get_language_from_request

from seckill_site.front_door import requests
from seckill_site.front_door.requests import (
    IN_MEMORY_BYTES,
    LONGEST_BODY_BYTES,
    BodyCutOff,
    BodyKind,
    BodyTooLong,
    BodyTooSlow,
    environ_of,
    read_body,
    request_language,
)
from seckill_site.front_door.threads import Busy
from tests.support.patience import GENEROUS_S

pytestmark = pytest.mark.quick

LARGE = str(IN_MEMORY_BYTES + 1)


class Client:
    """A client that sends these messages and then nothing more."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self._messages = iter(messages)
        self.asked = 0

    async def receive(self) -> dict[str, Any]:
        self.asked += 1
        message = next(self._messages, None)
        return message if message is not None else await asyncio.Event().wait()  # type: ignore

    async def read(self, **headers: str) -> bytes:
        with await read_body(headers, self.receive) as body:
            return body.read()

    async def upload(self) -> bytes:
        headers = {"CONTENT_LENGTH": LARGE}
        with await read_body(headers, self.receive, is_upload=True) as body:
            return body.read()


def part(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, GENEROUS_S))


def test_header_with_an_underscore_cannot_stand_for_that_of_a_proxy() -> None:
    headers = [(b"x_forwarded_proto", b"https"), (b"x-forwarded-for", b"192.0.2.1")]
    found = environ_of({"method": "GET", "path": "/", "headers": headers})
    assert "HTTP_X_FORWARDED_PROTO" not in found
    assert found["HTTP_X_FORWARDED_FOR"] == "192.0.2.1"


@pytest.mark.parametrize("raw", [{"raw_path": b"/a%2525"}, {}])
def test_path_is_decoded_once(raw: dict[str, bytes]) -> None:
    scope = {"method": "GET", "path": "/a%25", "headers": [], **raw}
    assert environ_of(scope)["PATH_INFO"] == "/a%25"


def test_cookies_in_several_headers_are_all_read() -> None:
    headers = [(b"cookie", b"a=b"), (b"cookie", b"django_language=en")]
    found = environ_of({"method": "GET", "path": "/", "headers": headers})
    assert request_language(found) == "en"


LONG = ", ".join(f"fr-x{number}" for number in range(50))
ODD_LANGUAGES = [
    {"HTTP_ACCEPT_LANGUAGE": f"{LONG}, en"},
    {"HTTP_ACCEPT_LANGUAGE": f"{LONG[:116]}, zh-hans;q=0.1, en"},
    {"HTTP_ACCEPT_LANGUAGE": f"en;q=0.1, {LONG}, zh-hans"},
    {"HTTP_COOKIE": "django_language=en-aaaaaaaaa-bbbbbbb"},
    {"HTTP_COOKIE": "django_language=zh-hans; django_language=en"},
    {"HTTP_COOKIE": 'django_language="en"'},
    {"HTTP_COOKIE": "django_language=" + "en" * 300, "HTTP_ACCEPT_LANGUAGE": "en"},
    {"HTTP_COOKIE": "django_language=en-aaaaaaaaaaaa/bbb"},
    {"HTTP_COOKIE": "xdjango_language=en"},
]


@pytest.mark.parametrize("headers", ODD_LANGUAGES, ids=lambda it: str(it)[:60])
def test_language_is_that_of_django(headers: dict[str, str]) -> None:
    environ = {"REQUEST_METHOD": "GET", "wsgi.input": BytesIO(), **headers}
    assert request_language(environ) == get_language_from_request(WSGIRequest(environ))


def test_body_of_the_declared_length_is_not_asked_for_again() -> None:
    client = Client(part(b"all of it"))  # as granian sends it
    assert run(client.read(CONTENT_LENGTH="9")) == b"all of it"
    assert client.asked == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"CONTENT_LENGTH": "10"},
        {"HTTP_TRANSFER_ENCODING": "chunked"},
        {"HTTP_TRANSFER_ENCODING": "chunked", "CONTENT_LENGTH": "3"},
        {"CONTENT_LENGTH": "3,10"},
    ],
)
def test_body_of_another_length_is_read_to_its_end(headers: dict[str, str]) -> None:
    client = Client(part(b"one"), part(b" and two", more=False))
    assert run(client.read(**headers)) == b"one and two"


def test_length_of_a_body_in_chunks_is_that_of_its_parts() -> None:
    environ = {"HTTP_TRANSFER_ENCODING": "chunked"}
    client = Client(part(b"one"), part(b"two", more=False))
    run(read_body(environ, client.receive)).close()
    assert environ["CONTENT_LENGTH"] == "6"


def test_long_body_is_not_kept_in_memory() -> None:
    content = b"x" * (IN_MEMORY_BYTES + 1)
    client = Client(part(content, more=False))
    with run(read_body({"CONTENT_LENGTH": str(len(content))}, client.receive)) as body:
        assert body._rolled
        assert body.read() == content


@pytest.mark.parametrize("declared", [LONGEST_BODY_BYTES + 1, 10**18, 10**19, 10**4000])
def test_body_declared_too_long_is_refused_unread(declared: int) -> None:
    client = Client(part(b"x"))
    with pytest.raises(BodyTooLong):
        run(client.read(CONTENT_LENGTH=str(declared)))
    assert client.asked == 0


def test_control_longest_allowed_body_is_read() -> None:
    content = b"x" * LONGEST_BODY_BYTES
    assert run(Client(part(content, more=False)).read(CONTENT_LENGTH=str(len(content)))) == content


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect the temporary files of bodies."""
    made: list[Any] = []

    def make(size: int) -> Any:
        made.append(tempfile.SpooledTemporaryFile(size))  # noqa: SIM115
        return made[-1]

    monkeypatch.setattr(requests, "SpooledTemporaryFile", make)
    return made


@pytest.mark.parametrize("beyond", [0, 1])
def test_body_that_grows_too_long_is_refused(beyond: int, files: list[Any]) -> None:
    half = b"x" * (LONGEST_BODY_BYTES // 2)
    client = Client(part(half), part(half + b"x" * beyond), part(b"", more=False))
    reading = client.read(HTTP_TRANSFER_ENCODING="chunked")
    if beyond:
        with pytest.raises(BodyTooLong):
            run(reading)
        assert client.asked == 2  # and not the rest
    else:
        assert len(run(reading)) == LONGEST_BODY_BYTES
    assert [it.closed for it in files] == [True]


@pytest.mark.parametrize("arrived", [[], [part(b"half")]], ids=["nothing", "half"])
def test_abandoned_body_leaves_no_open_file(arrived: list[Any], files: list[Any]) -> None:
    client = Client(*arrived, {"type": "http.disconnect"})
    with pytest.raises(BodyCutOff):
        run(client.read(CONTENT_LENGTH="8"))
    assert [it.closed for it in files] == [True]


@pytest.mark.parametrize(
    ("messages", "is_upload", "is_ended"),
    [([], True, True), ([part(b"x")], False, True), ([part(b"x")], True, False)],
    ids=["nothing of an upload", "a part", "a part of an upload"],
)
def test_only_the_rest_of_an_upload_has_more_time(
    messages: list[Any], is_upload: bool, is_ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "LONGEST_BODY_S", 0.05)
    monkeypatch.setattr(requests, "LONGEST_UPLOAD_S", GENEROUS_S / 2)

    async def read() -> Any:
        client = Client(*messages)
        reading = client.upload() if is_upload else client.read(CONTENT_LENGTH=LARGE)
        return await asyncio.wait_for(reading, 0.3)

    with pytest.raises(BodyTooSlow if is_ended else TimeoutError):
        run(read())


def test_slow_bodies_end_each_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LONGEST_BODY_S", 0.05)
    monkeypatch.setattr(requests, "LONGEST_UPLOAD_S", GENEROUS_S / 2)

    async def read() -> list[Any]:
        upload = asyncio.ensure_future(Client(part(b"x")).upload())
        both = [Client(*messages).read(CONTENT_LENGTH="1") for messages in ([], [part(b"x")])]
        found = await asyncio.gather(*both, return_exceptions=True)
        later = await asyncio.gather(Client().read(CONTENT_LENGTH="1"), return_exceptions=True)
        assert not upload.done()
        upload.cancel()
        return [*found, *later]

    first, quick, later = run(read())
    assert (type(first), quick, type(later)) == (BodyTooSlow, b"x", BodyTooSlow)


async def outcomes(*readings: Coroutine[Any, Any, Any]) -> list[type]:
    """Return how readings end that begin at once, each as the class of what it gives or raises."""
    found = await asyncio.gather(*readings, return_exceptions=True)
    return [type(it) for it in found]


def test_large_bodies_leave_room_for_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LONGEST_BODY_S", 0.05)
    most = requests.MOST_BODIES[BodyKind.LARGE]
    large = [Client().read(CONTENT_LENGTH=LARGE) for _ in range(most + 1)]
    small = Client(part(b"x")).read(CONTENT_LENGTH="1")
    assert run(outcomes(*large, small)) == [BodyTooSlow] * most + [Busy, bytes]


def test_more_uploads_than_have_a_place_have_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LONGEST_BODY_S", 0.05)
    monkeypatch.setattr(requests, "LONGEST_UPLOAD_S", 0.5)
    ended: list[int] = []

    async def upload(number: int) -> None:
        try:
            await Client(part(b"x")).upload()
        finally:
            ended.append(number)

    assert run(outcomes(*map(upload, range(9)))) == [BodyTooSlow] * 9
    assert ended[0] == 8


def test_address_has_few_bodies_that_do_not_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LONGEST_TURN_S", 0.01)
    monkeypatch.setattr(requests, "LONGEST_BODY_S", 0.1)
    one = {"REMOTE_ADDR": "203.0.113.7", "CONTENT_LENGTH": "1"}
    many = [Client().read(**one) for _ in range(requests.MOST_OF_ADDRESS + 1)]
    other = Client(part(b"x")).read(**one | {"REMOTE_ADDR": "203.0.113.8"})
    assert run(outcomes(*many, other))[-3:] == [BodyTooSlow, Busy, bytes]


def test_crowd_behind_one_address_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies that have arrived take turns."""
    one = {"REMOTE_ADDR": "203.0.113.7", "CONTENT_LENGTH": "1"}

    class Late(Client):
        async def receive(self) -> dict[str, Any]:
            await asyncio.sleep(0.001)
            return await super().receive()

    crowd = [Late(part(b"x")).read(**one) for _ in range(5 * requests.MOST_OF_ADDRESS)]
    assert set(run(outcomes(*crowd))) == {bytes}


def test_cancelled_reading_is_cancelled_and_forgotten() -> None:
    async def read() -> int:
        reading = asyncio.ensure_future(Client().read(CONTENT_LENGTH="1"))
        await asyncio.sleep(0)
        assert len(requests._bodies().being_read) == 1
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        return len(requests._bodies().being_read)

    assert run(read()) == 0
