"""The WSGI application: whose word is taken for the client's address."""

from __future__ import annotations

import importlib
from wsgiref.util import setup_testing_defaults

import pytest
from django.core.handlers.wsgi import WSGIHandler

from seckill_site import wsgi

pytestmark = pytest.mark.quick


@pytest.fixture
def application(settings, monkeypatch, db):
    """Return the application as it starts with these proxies.

    Each request looks at the connection to the database, where an earlier test has left one.
    """
    settings.ROOT_URLCONF = "tests.seckill_site.web.urls_with_faults"
    monkeypatch.setattr("django.core.wsgi.get_wsgi_application", WSGIHandler)

    def start(*proxies):
        settings.SECKILL_TRUSTED_PROXIES = list(proxies)
        return importlib.reload(wsgi).application

    yield start
    settings.SECKILL_TRUSTED_PROXIES = []
    importlib.reload(wsgi)


def address_seen(application, *, peer, forwarded_for):
    environ = {
        "PATH_INFO": "/address/",
        "REMOTE_ADDR": peer,
        "HTTP_X_FORWARDED_FOR": forwarded_for,
        "HTTP_HOST": "localhost",
    }
    setup_testing_defaults(environ)
    response = application(environ, lambda status, headers: None)
    seen = b"".join(response).decode()
    response.close()
    return seen


def test_trusted_proxy_names_the_client(application):
    site = application("10.0.0.1")

    assert address_seen(site, peer="10.0.0.1", forwarded_for="203.0.113.7") == "203.0.113.7"


def test_untrusted_proxy_is_ignored(application):
    site = application("10.0.0.1")

    assert address_seen(site, peer="198.51.100.9", forwarded_for="203.0.113.7") == "198.51.100.9"


def test_forwarded_header_is_ignored_without_trusted_proxies(application):
    site = application()

    assert address_seen(site, peer="10.0.0.1", forwarded_for="203.0.113.7") == "10.0.0.1"


def test_address_forged_by_client_is_ignored(application):
    site = application("10.0.0.1")

    seen = address_seen(site, peer="10.0.0.1", forwarded_for="192.0.2.66, 203.0.113.7")

    assert seen == "203.0.113.7"
