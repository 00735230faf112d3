"""Error answers: each names what is wrong, as JSON or as a page, and gives nothing away."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest
import time_machine
from axes.handlers.proxy import AxesProxyHandler
from django.conf import settings as site_settings
from django.contrib.auth.models import Permission
from django.test import Client

from seckill_site.static_storage import StaticStorage
from tests.support.sales import make_sale, make_user

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
]


@pytest.mark.parametrize(("path", "status", "code"), CASES)
def test_an_error_is_json_by_default(faulty, path, status, code):
    response = faulty.get(path)

    assert response.status_code == status
    assert response.json()["code"] == code
    assert set(response.json()) == {"code", "message"}


@pytest.mark.parametrize(("path", "status", "code"), CASES)
def test_an_error_is_a_page_where_one_is_wanted(faulty, path, status, code):
    response = faulty.get(path, headers=HTML)

    assert response.status_code == status
    assert response["Content-Type"].startswith("text/html")
    assert b"</html>" in response.content


@pytest.mark.parametrize("accept", ["text/html", "application/json"])
@pytest.mark.parametrize("path", [case[0] for case in CASES])
def test_an_error_gives_nothing_away_and_is_kept_by_no_cache(faulty, path, accept):
    response = faulty.get(path, headers={"Accept": accept})

    assert b"a secret of ours" not in response.content
    assert b"Traceback" not in response.content
    assert response["Cache-Control"] == "no-store"


@pytest.mark.django_db
def test_an_error_page_asks_the_database_nothing_also_for_who_is_signed_in(
    faulty, django_assert_num_queries
):
    faulty.force_login(make_user("ada"), backend="django.contrib.auth.backends.ModelBackend")

    with django_assert_num_queries(0):
        for path, status, _ in CASES:
            assert faulty.get(path, headers=HTML).status_code == status


@pytest.mark.parametrize("accept", ["text/html", "application/json"])
@pytest.mark.parametrize("path", ["/", "/accounts/login/", "/accounts/signup/"])
def test_a_database_that_is_away_is_unavailable_for_now(database_gone, path, accept):
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


def test_an_error_speaks_the_language_of_its_reader(faulty):
    english = faulty.get("/nowhere/", headers={"Accept-Language": "en"}).json()["message"]
    chinese = faulty.get("/nowhere/", headers={"Accept-Language": "zh-CN"}).json()["message"]

    assert english == "Page not found."
    assert chinese != english


@pytest.mark.parametrize("host", ["evil.example", "a b", "x" * 300, ""])
def test_a_host_that_is_not_ours_is_invalid(client, host):
    response = client.get("/healthz", headers={"Host": host})

    assert response.status_code == 400
    assert response.json()["code"] == "invalid"


@pytest.mark.parametrize("accept", ["text/html", "application/json"])
def test_a_form_without_its_csrf_token_is_refused(accept):
    client = Client(enforce_csrf_checks=True, headers={"Accept": accept})

    response = client.post("/accounts/signup/", {"username": "ada"})

    assert response.status_code == 403
    assert response["Content-Type"].startswith(accept)


def test_a_body_that_is_too_large_is_invalid_not_an_error(client):
    response = client.post("/accounts/signup/", {"username": "x" * 2_000_000})

    assert response.status_code in (400, 413)
    assert response.json()["code"] == "invalid"


def test_more_fields_than_any_form_has_are_invalid_not_an_error(client):
    response = client.post("/accounts/signup/", {f"field{n}": "" for n in range(2_000)})

    assert response.status_code == 400
    assert response.json()["code"] == "invalid"


@pytest.mark.parametrize(
    "path", ["/%00", "/%ff%fe", "/?%ff=%00", "//evil.example/", "/vouchers/%0a/live/", "/" * 3_000]
)
@pytest.mark.django_db
def test_no_odd_address_is_an_error_of_ours(client, path):
    assert client.get(path).status_code < 500


# --- What a page says and where it leads ---------------------------------------------------------


def main_of(response):
    """Return what a page says in its main part, and the addresses it leads to, in their order."""
    page = response.content.decode()
    main = page[page.index("<main") : page.index("</main>")]
    text = " ".join(re.sub(r"<[^>]+>", " ", main).split())
    return text, re.findall(r'href="([^"]+)"', main)


def test_what_is_not_there_leads_back_and_to_the_sales(faulty):
    before = {"Referer": "http://testserver/orders/?state=over"}

    text, links = main_of(faulty.get("/nowhere/", headers={**ENGLISH, **before}))

    assert "The address may be mistyped" in text
    assert links == ["/orders/?state=over", "/"]
    assert main_of(faulty.get("/nowhere/", headers=ENGLISH))[1] == ["/"]


def test_what_was_not_understood_says_how_to_go_on(faulty):
    text, links = main_of(faulty.get("/faults/suspicious/", headers=ENGLISH))

    assert "Go back, reload that page" in text
    assert links == ["/"]


def test_a_visitor_who_may_not_is_led_to_the_login_and_back(faulty):
    text, links = main_of(faulty.get("/faults/forbidden/?a=1", headers=ENGLISH))

    assert "Sign in" in text
    assert links == ["/accounts/login/?next=/faults/forbidden/%3Fa%3D1", "/"]


@pytest.mark.django_db
def test_who_is_signed_in_and_may_not_is_told_that_the_account_lacks_the_permission(faulty):
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


def test_a_form_that_is_too_old_leads_to_a_fresh_one():
    client = Client(enforce_csrf_checks=True, headers=ENGLISH)
    page = {"Referer": "http://testserver/accounts/signup/?next=/orders/"}

    text, links = main_of(client.post("/accounts/signup/", {"username": "ada"}, headers=page))

    assert "Nothing was changed." in text
    assert links == ["/accounts/signup/?next=/orders/", "/"]


def test_a_method_that_is_not_taken_leads_back_to_the_sale(client):
    response = client.get("/vouchers/7/orders/", headers=ENGLISH)

    text, links = main_of(response)
    assert response.status_code == 405
    assert "This address only accepts POST." in text
    assert links == ["/vouchers/7/", "/orders/", "/"]


def test_what_is_too_large_says_how_large_it_may_be(client):
    response = client.post("/accounts/signup/", {"username": "x" * 2_000_000}, headers=ENGLISH)

    assert response.status_code == 413
    assert "10 MB" in main_of(response)[0]


def test_who_has_to_wait_is_told_how_long_and_has_a_button(faulty):
    response = faulty.get("/faults/database/?page=2", headers=ENGLISH)

    text, links = main_of(response)
    assert response["Retry-After"] == "1"
    assert "Please wait 1 second" in text
    assert links == ["/faults/database/?page=2", "/"]


def test_what_was_sent_is_not_sent_again_by_a_link(faulty):
    before = {"Referer": "http://testserver/orders/"}

    _, links = main_of(faulty.post("/faults/database/", headers={**ENGLISH, **before}))

    assert links == ["/orders/", "/"]


@pytest.mark.django_db
@time_machine.travel("2026-11-21 04:00:00+00:00", tick=False)
def test_who_is_locked_out_is_told_from_when_on_to_try_again(client, cheap_passwords):
    form = {"username": "ada", "password": "wrong"}
    before = {"Referer": "http://testserver/accounts/login/?next=/orders/"}
    AxesProxyHandler.reset_attempts()

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
    client = Client(headers=ENGLISH, raise_request_exception=False)
    client.force_login(user, backend=PASSWORDS)
    return client


def test_the_admin_answers_in_the_same_way_and_leads_back_into_it(clerk):
    missing = clerk.get("/admin/nowhere/")
    forbidden = clerk.get("/admin/auth/user/")

    assert (missing.status_code, forbidden.status_code) == (404, 403)
    assert "Page not found." in main_of(missing)[0]
    assert "does not have permission" in main_of(forbidden)[0]
    for response in (missing, forbidden):
        assert main_of(response)[1] == ["/admin/", "/"]
        assert response["Cache-Control"] == "no-store"


def test_the_admin_answers_programs_in_json(clerk):
    headers = {"Accept": "application/json"}

    assert clerk.get("/admin/nowhere/", headers=headers).json()["code"] == "not_found"
    assert clerk.get("/admin/auth/user/", headers=headers).json()["code"] == "bad_token"


@pytest.mark.django_db
def test_a_form_of_the_admin_that_is_too_old_is_refused_in_the_same_way():
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
def test_an_error_of_ours_has_a_reference_that_stands_in_the_log(faulty, caplog, headers):
    with caplog.at_level(logging.ERROR, logger="django.request"):
        shown = references_told(faulty.get("/faults/crash/", headers=headers))

    [record] = [record for record in caplog.records if record.name == "django.request"]
    assert len(shown) == 1
    assert references_in(record.getMessage()) == shown
    assert record.getMessage().count("reference") == 1
    assert record.exc_info  # the traceback stands under the same reference


def test_each_error_has_its_own_reference(faulty):
    shown = [references_told(faulty.get("/faults/crash/")).pop() for _ in range(3)]

    assert len(set(shown)) == 3


def test_other_lines_of_the_log_have_none(faulty, caplog):
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
    ("path", "status"), [("/faults/crash/", 500), ("/faults/database/", 503), ("/nowhere/", 500)]
)
def test_whatever_else_is_broken_there_is_a_page(faulty, broken, caplog, path, status):
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


def test_whatever_else_is_broken_programs_get_json(faulty, monkeypatch):
    monkeypatch.setattr("seckill_site.web.errors.problem", None)

    response = faulty.get("/faults/crash/")

    assert response.status_code == 500
    assert set(response.json()) == {"code", "message"}
    assert references_in(response.json()["message"])


@pytest.mark.django_db
def test_an_error_page_stands_without_redis_and_without_the_database(
    faulty, redis_gone, database_gone
):
    faulty.cookies[site_settings.SESSION_COOKIE_NAME] = "somebodys"

    with redis_gone():
        for path, status, _ in CASES:
            response = faulty.get(path, headers=HTML)
            assert response.status_code == status
            assert b'class="notice"' in response.content


@pytest.mark.django_db
def test_a_page_of_a_sale_without_the_database_leads_back_to_the_sale(database_gone):
    client = Client(raise_request_exception=False)

    response = client.get("/vouchers/7/", headers=ENGLISH)

    assert response.status_code == 503
    assert main_of(response)[1] == ["/vouchers/7/", "/orders/", "/"]


# --- What nginx says by itself -------------------------------------------------------------------


def test_every_error_that_nginx_answers_has_its_page_and_its_json():
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
def test_an_address_of_a_sale_that_is_not_there_does_not_lead_to_it(client):
    url = f"/vouchers/{make_sale().pk + 1}/"

    assert main_of(client.get(url, headers=ENGLISH))[1] == ["/"]
