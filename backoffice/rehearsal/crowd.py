"""The crowd of a rehearsal: order requests to the running web server, and their answers.

Answers are judged as on the purchase page: after no answer, a busy shop or a gateway error the
outcome is unknown, and the same token may be sent again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from backoffice.rehearsal.http_client import NO_ANSWER, Address, Response, send_all
from vouchers.inventory.request_stats import ACCEPTED

REQUEST_S = 5.0
"""Seconds to wait for an answer, as on the purchase page."""

UNANSWERED = "unanswered"
BUSY = frozenset({429, 502, 503, 504})
"""Statuses that leave the outcome unknown: the page sends the same token again."""

MAX_CODE_LENGTH = 32


class NoWebServer(Exception):
    """The address does not respond like a web server of this shop."""


@dataclass(frozen=True)
class Answer:
    """The answer to a click; ``ms`` is None if no answer came.

    ``code`` is *accepted*, the code of the refusal, or the bare status if it is not the shop's.
    """

    click: int
    code: str
    is_known: bool
    order_id: int | None = None
    ms: int | None = None
    retry_after_s: int = 0


def check_web(*, url: str, path: str) -> None:
    """Check that a web server is alive.

    :raises BadAddress: the address is not one of a web server.
    :raises NoWebServer: it does not respond, or not with 200.
    """
    address = Address.of(url)
    request = address.request("GET", path)
    response = send_all([request], address=address, connections=1, timeout_s=REQUEST_S)[0]
    if response.status == NO_ANSWER:
        raise NoWebServer(response.body)
    if response.status != 200:
        raise NoWebServer(f"{path} is answered with {response.status}")


def fire(
    *, url: str, path: str, tokens: Mapping[int, str], connections: int, for_s: float
) -> list[Answer]:
    """Send the token of each click until time is up; return the answers received.

    :raises BadAddress: the address is not one of a web server.
    """
    address = Address.of(url)
    # Not marked as a first attempt: a click is sent again if its answer or our process was lost.
    # Only the ledger knows whether the buyer has already won.
    requests = [address.request("POST", path, {"token": token}) for token in tokens.values()]
    responses = send_all(
        requests, address=address, connections=connections, timeout_s=REQUEST_S, for_s=for_s
    )
    clicks = list(tokens)
    return [judge(clicks[number], response) for number, response in responses.items()]


def judge(click: int, response: Response) -> Answer:
    """Return the answer that a response gives to a click."""
    if response.status == NO_ANSWER:
        return Answer(click, UNANSWERED, is_known=False)
    content = response.body if isinstance(response.body, dict) else {}
    ms = round(response.seconds * 1000)
    if response.status == 202:
        order_id = str(content.get("order_id", ""))
        accepted = int(order_id) if order_id.isdecimal() else None
        return Answer(click, ACCEPTED, is_known=True, order_id=accepted, ms=ms)
    retry_after = response.headers.get("retry-after", "")
    return Answer(
        click,
        str(content.get("code") or response.status)[:MAX_CODE_LENGTH],
        is_known=response.status not in BUSY,
        ms=ms,
        retry_after_s=int(retry_after) if retry_after.isdecimal() else 0,
    )
