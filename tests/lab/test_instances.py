"""The instances behind nginx of a crowd race: pressing through nginx, its log, and the kill."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lab.instances import DESCRIPTION, Front
from lab.steps.step import Answer
from tests.support.patience import wait_for
from vouchers.inventory.keys import LedgerUnavailable

pytestmark = pytest.mark.quick

FIRST, SECOND = "127.0.0.1:41001", "127.0.0.1:41002"


class Scripted(BaseHTTPRequestHandler):
    """Answers each request with the next status and body; without one, it hangs up."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        asked: list[tuple[str, str, str]] = self.server.asked  # type: ignore[attr-defined]
        asked.append((self.path, self.headers["Race-Buyer"], json.loads(body)["token"]))
        status, answer = self.server.answers.pop(0)  # type: ignore[attr-defined]
        if not status:
            return
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Scripted) as server:
        server.asked, server.answers = [], []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "code", "answer"),
    [
        (202, None, Answer.QUEUED),
        (409, "sold_out", Answer.SOLD_OUT),
        (409, "already_ordered", Answer.ALREADY_ORDERED),
        (503, "unavailable", Answer.BUSY),
        (429, "rate_limited", Answer.BUSY),
    ],
)
def test_press_through_nginx_has_an_answer(
    server: ThreadingHTTPServer, status: int, code: str | None, answer: Answer
) -> None:
    server.answers.append((status, {"code": code}))  # type: ignore[attr-defined]
    front = Front(f"http://127.0.0.1:{server.server_port}", "", {})
    assert front.buy(sale_id=7, user_id=300, token="t") is answer
    asked = ("/vouchers/7/orders/", "10.0.1.44", "t")
    assert server.asked == [asked]  # type: ignore[attr-defined]


def test_press_without_answer_may_be_repeated(server: ThreadingHTTPServer) -> None:
    server.answers.append((0, {}))  # type: ignore[attr-defined]
    front = Front(f"http://127.0.0.1:{server.server_port}", "", {})
    with pytest.raises(LedgerUnavailable):
        front.buy(sale_id=7, user_id=1, token="t")


def test_log_says_who_answered_and_what_was_sent_on(tmp_path: Path) -> None:
    lines = [
        f"{FIRST} 0 202 POST /vouchers/7/orders/ HTTP/1.1",
        f"{SECOND} 1 202 POST /vouchers/7/orders/ HTTP/1.1",
        f"{SECOND} 0 409 POST /vouchers/7/orders/ HTTP/1.1",
        "- 0 503 POST /vouchers/7/orders/ HTTP/1.1",
        f"{SECOND} 0 202 POST /vouchers/70/orders/ HTTP/1.1",
        f"{SECOND} 0 200 GET /healthz HTTP/1.1",
    ]
    log = tmp_path / "answers.log"
    log.write_text("".join(f"{line}\n" for line in lines))
    front = Front("", str(log), {FIRST: [], SECOND: []})
    assert front.figures(7) == {"answered": [1, 2], "sent_on": 1}


def test_kill_ends_all_processes_of_the_first_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["sh", "-c", "sleep 300 & echo started; wait"]
    shells = [
        subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) for _ in range(3)
    ]
    pids = [shell.pid for shell in shells]
    description = tmp_path / "instances.json"
    instances = {FIRST: pids[:2], SECOND: pids[2:]}
    description.write_text(json.dumps({"url": "", "log": "", "instances": instances}))
    monkeypatch.setenv(DESCRIPTION, str(description))
    try:
        for shell in shells:
            assert shell.stdout
            assert shell.stdout.readline() == b"started\n"
        Front.started().kill_first()
        for shell in shells[:2]:
            assert shell.wait(10) == -9
            assert shell.stdout
            assert shell.stdout.read() == b""  # its child has ended as well
        assert shells[2].poll() is None
    finally:
        Front("", "", {FIRST: pids}).kill_first()
        for shell in shells:
            shell.communicate()
    wait_for(lambda: all(shell.poll() is not None for shell in shells), what="their end")
