"""Error answers: each names what is wrong, as JSON or as a page, and gives nothing away."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest
import time_machine
from django.conf import settings as site_settings
from django.contrib.auth.models import Permission
from django.test import Client

from seckill_site.static_storage import StaticStorage
from tests.support.browsers import browser_of
from tests.support.sales import make_sale, make_user
from tests.support.tiers import slow_after

HTML = {"Accept": "text/html"}
ENGLISH = {**HTML, "Accept-Language": "en"}
PASSWORDS = "django.contrib.auth.backends.ModelBackend"
REFERENCE = re.compile(r"\b[0-9A-F]{4}-[0-9A-F]{4}\b")
NGINX_ERRORS = Path(site_settings.BASE_DIR) / "deploy/errors"


@pytest.fixture
def faulty(settings):
    """A client of the site with views that fail; it answers as the server would."""
    settings.ROOT_URLCONF = "tests.seckill_site.web.urls_with_faults"
    return Client(raise_request_exception=False)


CASES = [
    ("/faults/suspicious/", 400, "invalid"),
    ("/faults/forbidden/", 403, "bad_token"),
    ("/nowhere/", 404, "not_found"),
    ("/faults/crash/", 500, "error"),
    ("/faults/database/", 503, "unavailable"),
    ("/faults/table/", 503, "unavailable"),
]


def assert_tells_nothing(response):
    assert b"a secret of ours" not in response.content
    assert b"Traceback" not in response.content
    assert response["Cache-Control"] == "no-store"


@pytest.mark.parametrize(("path", "status", "code"), CASES)
def test_error_is_json_by_default(faulty, path, status, code):
    response = faulty.get(path)

    assert response.status_code == status
    assert response.json()["code"] == code
    assert set(response.json()) == {"code", "message"}
    assert_tells_nothing(response)


@pytest.mark.parametrize("accept", ["text/html", "application/json"])
@pytest.mark.parametrize("path", ["/", "/accounts/login/", "/accounts/signup/"])
def test_missing_database_returns_503(database_gone, path, accept):
    client = Client(raise_request_exception=False)

    if path == "/":
        response = client.get(path, headers={"Accept": accept})
    else:
        form = {"username": "ada", "password": "x", "password1": "lang 1234 x"}
        form["password2"] = form["password1"]
        response = client.post(path, form, headers={"Accept": accept})

    assert response.status_code == 503
    assert int(response["Retry-After"]) >= 1
    assert response["Content-Type"].startswith(accept)


def test_error_is_in_the_readers_language(faulty):
    english = faulty.get("/nowhere/", headers={"Accept-Language": "en"}).json()["message"]
    chinese = faulty.get("/nowhere/", headers={"Accept-Language": "zh-CN"}).json()["message"]

    assert english == "Page not found."
    assert chinese != english


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
@pytest.mark.parametrize(
    "path", ["/", "/orders/", "/accounts/login/", "/accounts/signup/", "/admin/"]
)
def test_page_refuses_other_methods_with_405(db, method, path):
    client = Client(enforce_csrf_checks=True, headers=ENGLISH)

    response = client.generic(method, path)

    assert response.status_code == 405
    assert "GET" in response["Allow"]
    assert "open for too long" not in response.content.decode()


def test_page_without_a_form_refuses_post_with_405(db):
    response = Client(enforce_csrf_checks=True).post("/orders/")

    assert (response.status_code, response["Allow"]) == (405, "GET, HEAD")


def test_too_many_fields_return_400(client):
    response = client.post("/accounts/signup/", {f"field{n}": "" for n in range(2_000)})

    assert response.status_code == 400
    assert response.json()["code"] == "invalid"


@pytest.mark.parametrize(
    "path", ["/%00", "/%ff%fe", "/?%ff=%00", "//evil.example/", "/vouchers/%0a/live/", "/" * 3_000]
)
@pytest.mark.django_db
def test_malformed_address_is_no_server_error(client, path):
    assert client.get(path).status_code < 500


# --- What a page says and where it leads ---------------------------------------------------------


def main_of(response):
    """Return what a page says in its main part, and the addresses it leads to, in their order."""
    page = response.content.decode()
    main = page[page.index("<main") : page.index("</main>")]
    text = " ".join(re.sub(r"<[^>]+>", " ", main).split())
    return text, re.findall(r'href="([^"]+)"', main)


FROM_ORDERS = {"Referer": "http://testserver/orders/"}


@pytest.mark.parametrize(
    ("method", "path", "before", "words", "links"),
    slow_after(
        2,
        [
            ("get", "/nowhere/", {}, "The address may be mistyped", ["/"]),
            ("get", "/nowhere/", FROM_ORDERS, "The address may be mistyped", ["/orders/", "/"]),
            ("get", "/faults/suspicious/", {}, "Go back, reload that page", ["/"]),
            (
                *("get", "/faults/forbidden/?a=1", {}, "Sign in"),
                ["/accounts/login/?next=/faults/forbidden/%3Fa%3D1", "/"],
            ),
            (
                "get",
                "/faults/database/?page=2",
                {},
                "Wait 1 second",
                ["/faults/database/?page=2", "/"],
            ),
            ("post", "/faults/database/", FROM_ORDERS, "Wait 1 second", ["/orders/", "/"]),
        ],
    ),
)
def test_error_page_says_what_to_do_and_leads_on(faulty, method, path, before, words, links):
    """A link repeats a GET, and never a POST."""
    response = getattr(faulty, method)(path, headers={**ENGLISH, **before})

    text, found = main_of(response)
    assert words in text
    assert found == links


@pytest.mark.django_db
def test_403_page_names_the_missing_permission(faulty):
    faulty.force_login(make_user("ada"), backend=PASSWORDS)

    text, links = main_of(faulty.get("/faults/forbidden/", headers=ENGLISH))

    assert "Your account does not have permission to do this." in text
    assert "Sign in again" not in text
    assert links == ["/"]
    body = faulty.get("/faults/forbidden/", headers={"Accept-Language": "en"}).json()
    assert body == {
        "code": "bad_token",
        "message": "Your account does not have permission to do this.",
    }


def test_old_form_page_links_to_a_fresh_one():
    client = Client(enforce_csrf_checks=True, headers=ENGLISH)
    page = {"Referer": "http://testserver/accounts/signup/?next=/orders/"}

    response = client.post("/accounts/signup/", {"username": "ada"}, headers=page)

    text, links = main_of(response)
    assert response.status_code == 403
    assert "Nothing was changed." in text
    assert links == ["/accounts/signup/?next=/orders/", "/"]
    program = {"Accept": "application/json"}
    body = client.post("/accounts/signup/", {"username": "ada"}, headers=program)
    assert (body.status_code, body["Content-Type"]) == (403, "application/json")


def test_405_page_links_to_the_sale(client):
    response = client.get("/vouchers/7/orders/", headers=ENGLISH)

    text, links = main_of(response)
    assert response.status_code == 405
    assert "POST" not in text, "a word that buyers need not know"
    assert "Go back and use the button on the previous page." in text
    assert links == ["/vouchers/7/", "/orders/", "/"]


def test_413_page_names_the_limit(client):
    response = client.post("/accounts/signup/", {"username": "x" * 2_000_000}, headers=ENGLISH)

    assert response.status_code == 413
    assert "10 MB" in main_of(response)[0]


@pytest.mark.django_db
@time_machine.travel("2026-11-21 04:00:00+00:00", tick=False)
def test_lockout_page_names_the_retry_time(client, cheap_passwords, in_shanghai):
    form = {"username": "ada", "password": "wrong"}
    before = {"Referer": "http://testserver/accounts/login/?next=/orders/"}

    answers = [
        client.post("/accounts/login/", form, headers={**ENGLISH, **before}) for _ in range(6)
    ]

    text, links = main_of(answers[-1])
    assert answers[-1].status_code == 429
    assert answers[-1]["Retry-After"] == "360"
    assert "12:06:00 (UTC+8)" in text
    assert links == ["/accounts/login/?next=/orders/", "/"]


# --- In the admin --------------------------------------------------------------------------------


@pytest.fixture
def clerk(db):
    """A client of staff that may look at sales and at nothing else."""
    user = make_user("clerk", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_seckillvoucher"))
    return browser_of(user, headers=ENGLISH, raise_request_exception=False)


def test_admin_errors_lead_back_into_the_admin(clerk):
    missing = clerk.get("/admin/nowhere/")
    forbidden = clerk.get("/admin/auth/user/")

    assert (missing.status_code, forbidden.status_code) == (404, 403)
    assert "Page not found." in main_of(missing)[0]
    assert "does not have permission" in main_of(forbidden)[0]
    for response in (missing, forbidden):
        assert main_of(response)[1] == ["/admin/", "/"]
        assert response["Cache-Control"] == "no-store"


def test_admin_errors_are_json_for_programs(clerk):
    headers = {"Accept": "application/json"}

    assert clerk.get("/admin/nowhere/", headers=headers).json()["code"] == "not_found"
    assert clerk.get("/admin/auth/user/", headers=headers).json()["code"] == "bad_token"


@pytest.mark.django_db
def test_old_admin_form_is_refused_alike():
    client = Client(enforce_csrf_checks=True, headers=ENGLISH)

    response = client.post("/admin/login/", {"username": "ada", "password": "x"})

    assert response.status_code == 403
    assert "This page was open for too long." in main_of(response)[0]


# --- An error of ours ----------------------------------------------------------------------------


def references_in(text):
    return set(REFERENCE.findall(text))


def references_told(response):
    """Return those that a person reads: in JSON, Chinese before them is written in escapes."""
    is_json = response["Content-Type"] == "application/json"
    return references_in(response.json()["message"] if is_json else response.text)


@pytest.mark.parametrize("headers", [HTML, {}])
def test_server_error_reference_is_logged(faulty, caplog, headers):
    with caplog.at_level(logging.ERROR, logger="django.request"):
        shown = references_told(faulty.get("/faults/crash/", headers=headers))

    [record] = [record for record in caplog.records if record.name == "django.request"]
    assert len(shown) == 1
    assert references_in(record.getMessage()) == shown
    assert record.getMessage().count("reference") == 1
    assert record.exc_info  # the traceback stands under the same reference


def test_each_server_error_has_its_own_reference(faulty):
    shown = [references_told(faulty.get("/faults/crash/")).pop() for _ in range(3)]

    assert len(set(shown)) == 3


def test_other_log_lines_have_no_reference(faulty, caplog):
    with caplog.at_level(logging.WARNING, logger="django.request"):
        faulty.get("/nowhere/")

    assert not references_in(caplog.text)


def crash(*args, **kwargs):
    raise LookupError("a secret of ours")


@pytest.fixture(params=["templates", "static files", "translations"])
def broken(request, faulty, settings, monkeypatch):
    """A part that the page of an error needs is broken, and was not when the site started."""
    faulty.get("/healthz")
    if request.param == "templates":
        settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [], "APP_DIRS": False}]
    elif request.param == "static files":
        monkeypatch.setattr(StaticStorage, "url", crash)
    else:
        monkeypatch.setattr("seckill_site.web.errors._", crash)
        monkeypatch.setattr("seckill_site.web.responses._", crash)


@pytest.mark.parametrize(
    ("path", "status"),
    slow_after(2, [("/faults/crash/", 500), ("/faults/database/", 503), ("/nowhere/", 500)]),
)
def test_broken_error_page_falls_back_to_plain_page(faulty, broken, caplog, path, status):
    response = faulty.get(path, headers=HTML)

    page = response.content.decode()
    assert response.status_code == status
    assert response["Content-Type"].startswith("text/html")
    assert response["Cache-Control"] == "no-store"
    assert "Something went wrong on our side" in page
    assert "我们这边出了问题" in page
    assert references_in(page) & references_in(caplog.text)
    assert "secret" not in page
    assert ("Retry-After" in response) is (status == 503)


def test_broken_error_page_falls_back_to_json(faulty, monkeypatch):
    monkeypatch.setattr("seckill_site.web.errors.problem", None)

    response = faulty.get("/faults/crash/")

    assert response.status_code == 500
    assert set(response.json()) == {"code", "message"}
    assert references_in(response.json()["message"])


@pytest.mark.django_db
def test_error_is_a_page_for_browsers_without_redis_and_database(faulty, redis_gone, database_gone):
    faulty.cookies[site_settings.SESSION_COOKIE_NAME] = "somebodys"

    with redis_gone():
        for path, status, _ in CASES:
            response = faulty.get(path, headers=HTML)
            assert response.status_code == status
            assert response["Content-Type"].startswith("text/html")
            assert b'class="notice"' in response.content
            assert b"</html>" in response.content
            assert_tells_nothing(response)


@pytest.mark.django_db
def test_sale_page_without_database_links_to_sale(database_gone):
    client = Client(raise_request_exception=False)

    response = client.get("/vouchers/7/", headers=ENGLISH)

    assert response.status_code == 503
    assert main_of(response)[1] == ["/vouchers/7/", "/orders/", "/"]


# --- What nginx says by itself -------------------------------------------------------------------


def test_every_nginx_error_has_page_and_json():
    conf = (NGINX_ERRORS.parent / "nginx.conf").read_text(encoding="utf-8")
    names = re.findall(r"/errors/([a-z-]+)\.\$error_type;", conf)

    assert sorted(names) == ["busy", "too-large", "unavailable"]
    for name in names:
        page = (NGINX_ERRORS / f"{name}.html").read_text(encoding="utf-8")
        assert "<script" not in page
        assert "style=" not in page
        assert 'lang="zh-Hans"' in page
        assert 'lang="en"' in page
        body = json.loads((NGINX_ERRORS / f"{name}.json").read_text(encoding="utf-8"))
        assert set(body) == {"code", "message"}


@pytest.mark.django_db
def test_404_page_of_missing_sale_has_no_sale_link(client):
    url = f"/vouchers/{make_sale().pk + 1}/"

    assert main_of(client.get(url, headers=ENGLISH))[1] == ["/"]
