"""Error answers: each names what is wrong, as JSON or as a page, and gives nothing away."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.vouchers.factories import make_user

HTML = {"Accept": "text/html"}


@pytest.fixture
def faulty(settings):
    """A client of the site with views that fail; it answers as the server would."""
    settings.ROOT_URLCONF = "tests.seckill_site.urls_with_faults"
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

    assert english == "There is nothing here."
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
