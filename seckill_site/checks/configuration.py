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
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register, run_checks
from django.db import connection
from django.utils.module_loading import import_string

from seckill_site.celery import app
from seckill_site.checks.services import SERVICES, Check, dotted, numbers

logger = logging.getLogger(__name__)

SETTINGS = "seckill"

SHORTEST_KEY = 32
FEWEST_CHARACTERS_IN_KEY = 10
KEY_FROM_AN_EXAMPLE = re.compile("insecure|change.?me|secret.?key|example", re.IGNORECASE)
SANDBOX = "orders.payments.sandbox.Sandbox"
CONSOLE_SMS = "accounts.phones.ConsoleBackend"
LOCAL_HOST = re.compile(r"(.*\.)?localhost|127(\.\d+){3}|\[::1\]")
TRIED_VERSIONS = {"redis": ((6, 4), (9, 0)), "django-redis": ((7, 0), (8, 0))}
"""The versions that fit the pinned packages, from the first up to but excluding the second."""

# --- Settings: no connection needed ---------------------------------------------------------------


@register(SETTINGS)
def check_ledger_options(**_: Any) -> Iterator[CheckMessage]:
    """Find options that would hide an outage or repeat a call."""
    options = settings.CACHES["ledger"].get("OPTIONS", {})
    everywhere = getattr(settings, "DJANGO_REDIS_IGNORE_EXCEPTIONS", False)
    if options.get("IGNORE_EXCEPTIONS", everywhere):
        yield Error(
            "The ledger's connection ignores exceptions. An outage would look like an answer.",
            hint="Take IGNORE_EXCEPTIONS out of CACHES['ledger'].",
            id="seckill.E001",
        )
    retry = options.get("CONNECTION_POOL_KWARGS", {}).get("retry")
    if retry is None or retry.get_retries() != 0:
        yield Error(
            "The ledger's connection retries by itself. A dead Redis would hold every request.",
            hint="Give CACHES['ledger'] the pool argument retry=Retry(NoBackoff(), 0).",
            id="seckill.E002",
        )


@register(SETTINGS)
def check_broker_options(**_: Any) -> Iterator[CheckMessage]:
    """Find options that would let a task hang, get lost or run twice at once."""
    options = app.conf.broker_transport_options
    missing = {"socket_timeout", "socket_connect_timeout"} - {n for n in options if options[n]}
    if missing:
        yield Error(
            f"The broker has no {' and no '.join(sorted(missing))}. A dead one would hang workers.",
            hint="Set both in CELERY_BROKER_TRANSPORT_OPTIONS, in seconds.",
            id="seckill.E003",
        )
    if not app.conf.task_acks_late:
        yield Error(
            "Tasks are acknowledged before they are done. Those of a killed worker are lost.",
            hint="Set CELERY_TASK_ACKS_LATE to True.",
            id="seckill.E004",
        )
    if not 0 < (app.conf.task_time_limit or 0) < options.get("visibility_timeout", 0):
        yield Error(
            "A task may run longer than the broker waits for it. It would be delivered twice.",
            hint="Set CELERY_TASK_TIME_LIMIT, and a visibility_timeout above it in "
            "CELERY_BROKER_TRANSPORT_OPTIONS.",
            id="seckill.E005",
        )


@register(SETTINGS)
def check_payment_paths(**_: Any) -> Iterator[CheckMessage]:
    """Find payment providers that do not exist, such as one under its old path."""
    if not settings.SECKILL_PAYMENT_PROVIDERS:
        yield Error(
            "SECKILL_PAYMENT_PROVIDERS names no payment provider. Nobody could pay.",
            hint=f"Name the class of one. {SANDBOX} moves no money; it has to be named, too.",
            id="seckill.E009",
        )
    for path in settings.SECKILL_PAYMENT_PROVIDERS:
        try:
            provider = import_string(path)
            for problem in getattr(provider, "problems", tuple)():
                yield Error(
                    f"{problem} Nobody could pay with {path}.",
                    hint="Set it as docs/payments/ says, or take the provider out of "
                    "SECKILL_PAYMENT_PROVIDERS.",
                    id="seckill.E019",
                )
        except ImportError as error:
            yield Error(
                f"SECKILL_PAYMENT_PROVIDERS names {path}, which cannot be imported. {error}",
                hint=f"Name a class by its path. The sandbox is {SANDBOX}.",
                id="seckill.E008",
            )


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
        yield Error(
            f"SECKILL_SITE_URL is {url!r}, which is not the address of a site. Mails, the payment "
            "provider and its returning buyers would be sent nowhere.",
            hint="Set it to the address that buyers use: SECKILL_SITE_URL=https://shop.example",
            id="seckill.E017",
        )


@register(SETTINGS)
def check_versions(**_: Any) -> Iterator[CheckMessage]:
    """Find client libraries that do not fit each other or are untested."""
    hint = "Install requirements.lock: python -m pip install --requirement requirements.lock"
    for name, (first, end) in TRIED_VERSIONS.items():
        if not first <= numbers(version(name)) < end:
            text = f"{name} {version(name)} does not fit. Tried: {dotted(first)} to {dotted(end)}"
            yield Error(f"{text}, the last not included.", hint=hint, id="seckill.E006")
    if numbers(version("kombu")) != numbers(version("celery")):
        text = f"kombu {version('kombu')} is not the one of celery {version('celery')}."
        yield Error(text, hint=hint, id="seckill.E006")


@register(SETTINGS)
def check_debug(**_: Any) -> Iterator[CheckMessage]:
    """Find a site in debug mode that strangers can reach."""
    public = [host for host in settings.ALLOWED_HOSTS if not LOCAL_HOST.fullmatch(host)]
    if settings.DEBUG and (public or settings.HTTPS_ONLY or settings.SECKILL_TRUSTED_PROXIES):
        yield Warning(
            "DEBUG is on for a site that others can reach. Error pages show settings and code.",
            hint="Set DEBUG=false, or ALLOWED_HOSTS to local names alone.",
            id="seckill.W001",
        )


# --- Settings of a deployment ---------------------------------------------------------------------


@register(SETTINGS, deploy=True)
def check_secret_keys(**_: Any) -> Iterator[CheckMessage]:
    """Find weak keys; the fallbacks count too, because they verify signatures."""

    def is_weak(key: str) -> bool:
        is_short = len(key) < SHORTEST_KEY or len(set(key)) < FEWEST_CHARACTERS_IN_KEY
        return is_short or bool(KEY_FROM_AN_EXAMPLE.search(key))

    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    if not settings.DEBUG and any(is_weak(key) for key in keys):
        yield Error(
            "SECRET_KEY or one of its fallbacks can be guessed. It signs sessions and tokens.",
            hint='Make one: python -c "import secrets; print(secrets.token_urlsafe(50))"',
            id="seckill.E007",
        )


@register(SETTINGS, deploy=True)
def check_site_url_is_set(**_: Any) -> Iterator[CheckMessage]:
    """Find a deployment whose links and callbacks would lead to the default, this machine."""
    if not settings.DEBUG and not os.environ.get("SECKILL_SITE_URL"):
        yield Error(
            "SECKILL_SITE_URL is not set. Mails, the payment provider and its returning buyers "
            f"would be sent to {settings.SECKILL_SITE_URL}.",
            hint="Set it to the address that buyers use: SECKILL_SITE_URL=https://shop.example",
            id="seckill.E018",
        )


@register(SETTINGS, deploy=True)
def check_trusted_proxies(**_: Any) -> Iterator[CheckMessage]:
    """Find a site behind a proxy whose word about its clients does not count."""
    if not settings.DEBUG and settings.HTTPS_ONLY and not settings.SECKILL_TRUSTED_PROXIES:
        yield Error(
            "SECKILL_TRUSTED_PROXIES is not set. All visitors would share the address of the "
            "proxy, and its limits.",
            hint="Set it to the addresses from which the proxy connects: "
            "SECKILL_TRUSTED_PROXIES=127.0.0.1",
            id="seckill.E027",
        )


@register(SETTINGS, deploy=True)
def check_failpoint(**_: Any) -> Iterator[CheckMessage]:
    """Find an armed failpoint."""
    if not settings.DEBUG and os.environ.get("FAILPOINT"):
        yield Warning(
            "FAILPOINT is set. This process will fail on purpose.",
            hint="Take FAILPOINT out of the environment: it is for tests.",
            id="seckill.W002",
        )


@register(SETTINGS, deploy=True)
def check_database_engine(**_: Any) -> Iterator[CheckMessage]:
    """Find SQLite, which serves one machine only."""
    if not settings.DEBUG and connection.vendor == "sqlite":
        yield Warning(
            "The database is SQLite. It serves one machine and one writer at a time.",
            hint="For more, set DATABASE_URL to a MariaDB: mysql://user:password@host/name",
            id="seckill.W003",
        )


@register(SETTINGS, deploy=True)
def check_payment_providers(**_: Any) -> Iterator[CheckMessage]:
    """Find the payment sandbox, which charges nobody."""
    if not settings.DEBUG and SANDBOX in settings.SECKILL_PAYMENT_PROVIDERS:
        yield Warning(
            "The payment sandbox is on. Vouchers are paid for with nobody's money.",
            hint="Set SECKILL_PAYMENT_PROVIDERS to real providers, "
            "without orders.payments.sandbox.Sandbox.",
            id="seckill.W004",
        )


@register(SETTINGS, deploy=True)
def check_second_factor(**_: Any) -> Iterator[CheckMessage]:
    """Find staff that signs in with a password alone."""
    if not settings.DEBUG and not settings.SECKILL_STAFF_SECOND_FACTOR:
        yield Warning(
            "SECKILL_STAFF_SECOND_FACTOR is off. A stolen password opens the admin.",
            hint="Set SECKILL_STAFF_SECOND_FACTOR=true.",
            id="seckill.W005",
        )


@register(SETTINGS, deploy=True)
def check_sms_backend(**_: Any) -> Iterator[CheckMessage]:
    """Find texts to phones that only a log gets, with the codes in them."""
    if not settings.DEBUG and settings.SECKILL_SMS_BACKEND == CONSOLE_SMS:
        yield Warning(
            "Texts to phones are only printed. Whoever enters a number waits for a code, "
            "and whoever reads the log has it.",
            hint="Name the class of a provider in SECKILL_SMS_BACKEND: docs/accounts.md.",
            id="seckill.W006",
        )


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
