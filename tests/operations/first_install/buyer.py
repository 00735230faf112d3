"""A visitor of the installed shop, over HTTPS, or of the one at the address in ``SHOP``.

``buy SALE`` signs up, buys, pays at the sandbox and prints the receipt. ``look SALE`` asks for
pages of both ports until ``/root/enough`` is there, and prints how often each status came.
"""

import http.cookiejar
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from pathlib import Path

SHOP, SALE = os.environ.get("SHOP", "https://shop.example"), sys.argv[2]
PASSWORD = "first-buyer-of-the-shop"
GIVE_UP_S = 120

certificate = "/etc/ssl/shop.example.pem" if SHOP.startswith("https:") else None
context = ssl.create_default_context(cafile=certificate)
cookies = http.cookiejar.CookieJar()
opener = urllib.request.build_opener(
    urllib.request.HTTPSHandler(context=context), urllib.request.HTTPCookieProcessor(cookies)
)


def ask(url, fields=None, accept="application/json"):
    """Return the address and the text of an answer, after redirects."""
    headers = {"Accept": accept, "Referer": f"{SHOP}/"}
    if fields is not None:
        token = next((it.value for it in cookies if it.name.endswith("csrftoken")), "")
        fields = urllib.parse.urlencode({**fields, "csrfmiddlewaretoken": token}).encode()
    request = urllib.request.Request(urllib.parse.urljoin(SHOP, url), fields, headers)
    try:
        with opener.open(request, timeout=30) as answer:
            return answer.url, answer.read().decode()
    except urllib.error.HTTPError as error:
        sys.exit(f"{request.get_method()} {url}: {error.code} {error.read().decode()[:2000]}")


def say(found):
    sys.stdout.write(f"{json.dumps(found)}\n")
    sys.stdout.flush()


def until(order, status):
    """Poll the receipt until the order has that status."""
    give_up = time.monotonic() + GIVE_UP_S
    while (found := json.loads(ask(order["status_url"])[1]))["status"] != status:
        if time.monotonic() > give_up:
            sys.exit(f"the order did not become {status}: {found}")
        time.sleep(0.2)
    return found


def buy():
    ask("/accounts/signup/", accept="text/html")
    ask(
        "/accounts/signup/",
        {"username": "ada", "password1": PASSWORD, "password2": PASSWORD, "email": ""},
        accept="text/html",
    )
    _, token = ask(f"/vouchers/{SALE}/token/")
    _, order = ask(f"/vouchers/{SALE}/orders/", {"token": json.loads(token)["token"]})
    order = json.loads(order)
    until(order, "unpaid")
    sandbox, _ = ask(f"{order['status_url']}pay/", {}, accept="text/html")

    ask(sandbox, {"choice": "pay"}, accept="text/html")
    say(until(order, "paid"))


def look():
    """Ask for a page of each port; none is kept for longer than a tenth of a second."""
    statuses: Counter[str] = Counter()
    while not Path("/root/enough").exists():
        for page in (f"/vouchers/{SALE}/", f"/vouchers/{SALE}/form/"):
            try:
                with opener.open(f"{SHOP}{page}", timeout=30) as answer:
                    statuses[str(answer.status)] += 1
            except urllib.error.HTTPError as error:
                statuses[str(error.code)] += 1
        say(statuses)
        time.sleep(0.05)
    say(statuses)


{"buy": buy, "look": look}[sys.argv[1]]()
