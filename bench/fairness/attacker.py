"""The attacker's program: many accounts, few addresses, one core for the work.

It knows the API: it asks for tokens with the accounts' sessions, does their work with
OpenSSL's SHA-256, and sends each token once.
"""

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from http.client import HTTPConnection
from itertools import count

from bench.fairness.buyers import from_address
from bench.sale.buyers import ORDER
from bench.sale.generator import Crowd, Step, Visit, fire, order_request

CONNECTIONS = 64
RETRY_S = 0.02


@dataclass(frozen=True)
class Attack:
    """An attack on a sale: the cookies of the accounts, and the number of addresses."""

    port: int
    sale_id: int
    cookies: Sequence[str]
    addresses: int
    work: int

    def address(self, number: int) -> str:
        return f"203.0.113.{1 + number % self.addresses}"


# --- Work -----------------------------------------------------------------------------------------


def do_work(token: str, bits: int) -> str:
    """Return a token with a nonce, as ``work.js`` finds one."""
    if not bits:
        return token
    most = 1 << (256 - bits)
    start = sha256(f"{token}~".encode())
    for number in count():
        digest = start.copy()
        digest.update(b"%d" % number)
        if int.from_bytes(digest.digest()) < most:
            return f"{token}~{number}"
    raise AssertionError("numbers do not end")


def do_all_work(executor: Executor, tokens: Sequence[str], bits: int) -> list[str]:
    """Do the work of all tokens, in all processes of a pool."""
    if not bits:
        return list(tokens)
    return list(executor.map(do_work, tokens, [bits] * len(tokens), chunksize=20))


# --- Ready before the start -----------------------------------------------------------------------


def collect_tokens(attack: Attack) -> list[str]:
    """Return the token of each account that gets one."""
    with closing(HTTPConnection("127.0.0.1", attack.port)) as connection:
        return list(_tokens(connection, attack))


def _tokens(connection: HTTPConnection, attack: Attack) -> Iterator[str]:
    for number, cookie in enumerate(attack.cookies):
        headers = {"Cookie": cookie, **_headers(attack, number)}
        connection.request("GET", f"/vouchers/{attack.sale_id}/token/", headers=headers)
        with connection.getresponse() as answer:
            body = answer.read()
            if answer.status == 200:
                yield json.loads(body)["token"]


def _headers(attack: Attack, number: int) -> dict[str, str]:
    return {
        "Host": "localhost",
        "Accept": "application/json",
        "X-Forwarded-For": attack.address(number),
    }


def send_all_at(attack: Attack, tokens: Sequence[str], opens_at: float) -> None:
    """Send all tokens at the start of the sale, as fast as they are answered."""
    if tokens:
        fire(Crowd(attack.port, lambda: _senders(attack, tokens, opens_at), CONNECTIONS))


def _senders(attack: Attack, tokens: Sequence[str], opens_at: float) -> list[Visit]:
    opens_s = opens_at - time.time()
    return [
        from_address(_send(attack.sale_id, token, opens_s), attack.address(number))
        for number, token in enumerate(tokens)
    ]


def _send(sale_id: int, token: str, due_s: float) -> Visit:
    step = Step(ORDER, order_request(sale_id, token, attempt=1), due_s)
    while _is_too_early((reply := (yield step)).status, reply.body):
        step = step._replace(due_s=reply.at_s + RETRY_S)


def _is_too_early(status: int, body: bytes) -> bool:
    return status == 503 or (status == 409 and json.loads(body)["code"] == "not_started")


# --- From the start on ----------------------------------------------------------------------------


def work_and_send_from(attack: Attack, opens_at: float) -> None:
    """From the start on, take account after account: ask for a token, do its work, send it.

    It takes a core, and stops when the sale is sold out.
    """
    time.sleep(max(0.0, opens_at - time.time()))
    with closing(HTTPConnection("127.0.0.1", attack.port)) as connection:
        path = f"/vouchers/{attack.sale_id}/orders/"
        for number, token in enumerate(_tokens(connection, attack)):
            body = json.dumps({"token": do_work(token, attack.work)})
            headers = {"Content-Type": "application/json", **_headers(attack, number)}
            connection.request("POST", path, body, headers)
            with connection.getresponse() as answer:
                if json.loads(answer.read()).get("code") == "sold_out":
                    return
