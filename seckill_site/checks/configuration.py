"""Start-up checks of the settings.

Checks of settings (tag ``seckill``) need no connection. Checks of servers (tag ``services``) are
deployment checks, so that neither a plain ``manage.py check`` nor a migration needs a server.
``docs/checks.md`` lists them.
"""

import logging
import os
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.checks import CheckMessage, register, run_checks
from django.db import connection
from django.http.request import split_domain_port, validate_host
from django.utils.module_loading import import_string

from seckill_site.celery import app
from seckill_site.checks.findings import finding
from seckill_site.checks.services import SERVICES, Check, dotted, numbers

logger = logging.getLogger(__name__)

SETTINGS = "seckill"

SHORTEST_KEY = 32
FEWEST_CHARACTERS_IN_KEY = 10
KEY_FROM_AN_EXAMPLE = re.compile("insecure|change.?me|secret.?key|example", re.IGNORECASE)
LOCAL_HOST = re.compile(r"(.*\.)?localhost|127(\.\d+){3}|\[::1\]")
SETTINGS_FILE = Path("/etc/seckill.env")
"""The file of ``deploy/``, which systemd and a shell have to read alike."""

READ_ALIKE = re.compile(r"([A-Za-z_]\w*=([\w@%+=:,./-]*|'[^'\ufffd]*'))?[ \t]*|#.*", re.ASCII)
TRIED_VERSIONS = {"redis": ((6, 4), (9, 0)), "django-redis": ((7, 0), (8, 0))}
"""The versions that fit the pinned packages, from the first up to but excluding the second."""


@register(SETTINGS)
def check_ledger_options(**_: Any) -> Iterator[CheckMessage]:
    """Find options that would hide an outage or repeat a call."""
    options = settings.CACHES["ledger"].get("OPTIONS", {})
    everywhere = getattr(settings, "DJANGO_REDIS_IGNORE_EXCEPTIONS", False)
    if options.get("IGNORE_EXCEPTIONS", everywhere):
        yield finding("E001")
    retry = options.get("CONNECTION_POOL_KWARGS", {}).get("retry")
    if retry is None or retry.get_retries() != 0:
        yield finding("E002")


@register(SETTINGS)
def check_broker_options(**_: Any) -> Iterator[CheckMessage]:
    """Find options that would let a task hang, get lost or run twice at once."""
    options = app.conf.broker_transport_options
    missing = {"socket_timeout", "socket_connect_timeout"} - {n for n in options if options[n]}
    if missing:
        yield finding("E003", missing=" and no ".join(sorted(missing)))
    if not app.conf.task_acks_late:
        yield finding("E004")
    if not 0 < (app.conf.task_time_limit or 0) < options.get("visibility_timeout", 0):
        yield finding("E005")


@register(SETTINGS)
def check_payment_paths(**_: Any) -> Iterator[CheckMessage]:
    """Find payment providers that do not exist, such as one under its old path."""
    if not settings.SECKILL_PAYMENT_PROVIDERS:
        yield finding("E009")
    for path in settings.SECKILL_PAYMENT_PROVIDERS:
        try:
            provider = import_string(path)
            for problem in getattr(provider, "problems", tuple)():
                yield finding("E019", problem=problem, path=path)
        except ImportError as error:
            yield finding("E008", path=path, error=error)


@register(SETTINGS)
def check_site_url(**_: Any) -> Iterator[CheckMessage]:
    """Find a malformed address of the site, from which links and callbacks are built."""
    url = settings.SECKILL_SITE_URL
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query
        _ = parts.port  # raises if it is no number
    except ValueError:
        is_address = False
    if not is_address:
        yield finding("E017", url=url)


@register(SETTINGS)
def check_versions(**_: Any) -> Iterator[CheckMessage]:
    """Find client libraries that do not fit each other or are untested."""
    for name, (first, end) in TRIED_VERSIONS.items():
        if not first <= numbers(number := version(name)) < end:
            tried = f"{dotted(first)} to {dotted(end)}, the last not included"
            yield finding("E006", name=name, number=number, tried=tried)
    kombu, celery = version("kombu"), version("celery")
    if numbers(kombu) != numbers(celery):
        yield finding("E006", name="kombu", number=kombu, tried=f"that of celery {celery}")


@register(SETTINGS)
def check_debug(**_: Any) -> Iterator[CheckMessage]:
    """Find a site in debug mode that strangers can reach."""
    public = [host for host in settings.ALLOWED_HOSTS if not LOCAL_HOST.fullmatch(host)]
    if settings.DEBUG and (public or settings.HTTPS_ONLY or settings.SECKILL_TRUSTED_PROXIES):
        yield finding("W001")


@register(SETTINGS, deploy=True)
def check_deployment(**_: Any) -> Iterator[CheckMessage]:
    """Find settings that suit a development alone."""
    url, keys = settings.SECKILL_SITE_URL, [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    host, _port = split_domain_port(url.partition("://")[2].partition("/")[0])
    found = {
        "E007": any(map(_is_weak, keys)),  # the fallbacks verify signatures, too
        "E018": not os.environ.get("SECKILL_SITE_URL"),
        "E027": settings.HTTPS_ONLY and not settings.SECKILL_TRUSTED_PROXIES,
        "E028": not getattr(staticfiles_storage, "hashed_files", True),
        "E029": not validate_host(host, settings.ALLOWED_HOSTS),
        "W002": bool(os.environ.get("FAILPOINT")),
        "W003": connection.vendor == "sqlite",
        "W004": "orders.payments.sandbox.Sandbox" in settings.SECKILL_PAYMENT_PROVIDERS,
        "W005": not settings.SECKILL_STAFF_SECOND_FACTOR,
        "W006": settings.SECKILL_SMS_BACKEND == "accounts.phones.ConsoleBackend",
        "W007": settings.EMAIL_BACKEND == "django.core.mail.backends.console.EmailBackend",
    }
    if not settings.DEBUG:
        yield from (finding(number, url=url) for number, is_so in found.items() if is_so)


@register("settings_file")  # a tag of its own: a shop that runs stays ready while it is edited
def check_settings_file(**_: Any) -> Iterator[CheckMessage]:
    """Find lines that a shell would run, change or stop at."""
    try:
        lines = SETTINGS_FILE.read_bytes().decode(errors="replace").split("\n")
    except (FileNotFoundError, PermissionError):
        return
    for number, line in enumerate(lines, 1):
        if not READ_ALIKE.fullmatch(line):
            yield finding("E030", path=SETTINGS_FILE, line=number)


def _is_weak(key: str) -> bool:
    is_short = len(key) < SHORTEST_KEY or len(set(key)) < FEWEST_CHARACTERS_IN_KEY
    return is_short or bool(KEY_FROM_AN_EXAMPLE.search(key))


# --- Running them ---------------------------------------------------------------------------------


def found_by(*checks: Check) -> list[CheckMessage]:
    """Return the findings of these checks that are not silenced."""
    return [message for check in checks for message in check() if not message.is_silenced()]


def check_settings() -> list[CheckMessage]:
    """Run the checks that need no connection."""
    return run_checks(tags=[SETTINGS])


def check_services() -> list[CheckMessage]:
    """Run the checks of all servers."""
    return run_checks(tags=[SERVICES], include_deployment_checks=True)


def log_at_start(**_: Any) -> None:
    """Log findings as a worker starts. It continues: accepted orders have to be written."""
    for message in found_by(check_settings, check_services):
        logger.log(message.level, "%s: %s %s", message.id, message.msg, message.hint)
