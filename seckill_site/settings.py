"""Settings of the site, read from the environment only.

The names are the contract of ``docs/settings.md``. Our own settings start with ``SECKILL_`` and
name their unit. Nothing here exists only in production.
"""

import os
import re
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _
from redis.backoff import NoBackoff
from redis.retry import Retry

from seckill_site.broker.messages import publish_options, task_queue
from seckill_site.redis.address import checked_address, is_rabbitmq, kombu_address

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()

SECRET_KEY = env.str("SECRET_KEY")
SECRET_KEY_FALLBACKS = env.list("SECRET_KEY_FALLBACKS", default=[])
DEBUG = env.bool("DEBUG", default=False)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])

# --- Our own -------------------------------------------------------------------------------------

SECKILL_KICK_MS = env.int("SECKILL_KICK_MS", default=5_000)
"""The time that one published fulfil task has before another may be published."""

SECKILL_SWEEP_PAUSE_MS = env.int("SECKILL_SWEEP_PAUSE_MS", default=10_000)
"""The longest pause between sweeps of a sale whose oldest pending entry does not move."""

SECKILL_BEHIND_MS = env.int("SECKILL_BEHIND_MS", default=30_000)
"""While the oldest pending entry is older than this, nobody is accepted who would wait as long for
a row at the worker's present pace, and nobody at all while it makes no progress. 0: no limit."""

SECKILL_ORDERS_PER_ADDRESS = env.int("SECKILL_ORDERS_PER_ADDRESS", default=30)
"""The most new orders of a sale from one address in 1,000 seconds; a sale may say otherwise. 0: any
number."""

SECKILL_ORDERS_PER_ACCOUNT = env.int("SECKILL_ORDERS_PER_ACCOUNT", default=5)
"""The most new orders of a sale by one account in 1,000 seconds, however many of them end; one more
for each further unit that the sale's limit allows. 0: any number."""

SECKILL_LEDGER_REPLICAS = env.int("SECKILL_LEDGER_REPLICAS", default=0)
"""An order is accepted only once this many replicas of the ledger know of it; 0 waits for none."""

SECKILL_LEDGER_REPLICAS_MS = env.int("SECKILL_LEDGER_REPLICAS_MS", default=200)
"""The longest an order request waits for these replicas."""

if SECKILL_LEDGER_REPLICAS < 0:
    raise ImproperlyConfigured("SECKILL_LEDGER_REPLICAS is negative. Without replicas, it is 0.")
# 0 would wait for ever. Who comes just after a burst waits for its replicas and then for its own;
# a connection waits for 1 s.
if not 1 <= SECKILL_LEDGER_REPLICAS_MS <= 450:
    raise ImproperlyConfigured("SECKILL_LEDGER_REPLICAS_MS is not between 1 and 450.")

SECKILL_SWEEP_AGE_MS = env.int("SECKILL_SWEEP_AGE_MS", default=2_000)
"""A pending entry older than this is swept: its sale's fulfil task is sent again."""

if SECKILL_SWEEP_AGE_MS < 1:
    raise ImproperlyConfigured("SECKILL_SWEEP_AGE_MS is less than 1: beat sweeps that often.")

try:
    SECKILL_LEDGER_DAYS = env.int("SECKILL_LEDGER_DAYS", default=7)
    if not 1 <= SECKILL_LEDGER_DAYS <= 3650:
        raise ValueError
except ValueError:
    text = "SECKILL_LEDGER_DAYS is not a whole number of days between 1 and 3650."
    raise ImproperlyConfigured(text) from None
"""How long after a sale and its waiting list its ledger leaves Redis."""

SECKILL_BATCH_UNITS = env.int("SECKILL_BATCH_UNITS", default=500)
"""The most pending entries that one transaction makes into orders."""

SECKILL_WORK_MS = env.int("SECKILL_WORK_MS", default=1_000)
"""The time after which a fulfil task hands over to a new one, so no sale monopolizes a worker.

Much shorter than the kick: otherwise its messages would expire behind one long task.
"""

SECKILL_LEASE_MS = env.int("SECKILL_LEASE_MS", default=1_500)
"""Lease of the sale's lock and the user-key locks, renewed while their holder lives.

A sale waits this long after a worker has died while holding its lock.
"""

SECKILL_MAX_TRIES = env.int("SECKILL_MAX_TRIES", default=3)
"""A pending entry that failed alone this many times, a second apart, is set aside."""

SECKILL_PUBLISH_TIMEOUT_MS = env.int("SECKILL_PUBLISH_TIMEOUT_MS", default=300)
"""The longest a publish waits for the broker; the sweep resends what was not sent."""

SECKILL_PUBLISH_PAUSE_MS = env.int("SECKILL_PUBLISH_PAUSE_MS", default=2_000)
"""The time for which a process avoids the broker after a failed publish (a circuit breaker)."""

SECKILL_TOKEN_GRACE_MS = 10 * 60 * 1000
"""A purchase token is valid until this long after its sale's end (fixed by the HTTP contract)."""

SECKILL_DJANGO_THREADS = env.int("SECKILL_DJANGO_THREADS", default=4)
"""The threads of a web process in which Django answers."""

SECKILL_DJANGO_WAITING = env.int("SECKILL_DJANGO_WAITING", default=200)
"""The most requests of a web process that wait for such a thread; more are answered 503."""

SECKILL_HASHES_AT_ONCE = env.int("SECKILL_HASHES_AT_ONCE", default=1)
"""The passwords that a web process hashes at once; as many wait, and more are answered 429."""

if SECKILL_HASHES_AT_ONCE < 1:
    raise ImproperlyConfigured("SECKILL_HASHES_AT_ONCE is less than 1: nobody could sign in.")

HTTPS_ONLY = env.bool("SECKILL_HTTPS_ONLY", default=False)
"""Whether the site is reached over HTTPS alone, through a proxy."""

SECKILL_TRUSTED_PROXIES = env.list("SECKILL_TRUSTED_PROXIES", default=[])
"""Addresses of the proxies whose ``X-Forwarded-For`` names the client."""

try:
    SECKILL_UNLIMITED_NETWORKS = [
        ip_network(text)
        for text in env.list("SECKILL_UNLIMITED_NETWORKS", default=["127.0.0.0/8", "::1/128"])
        # A proxy that is not trusted makes everybody a client of this machine.
        if not HTTPS_ONLY or "SECKILL_UNLIMITED_NETWORKS" in os.environ
    ]
except ValueError as error:
    raise ImproperlyConfigured(f"SECKILL_UNLIMITED_NETWORKS: {error}.") from error
"""Networks whose addresses have no limit per address: load tests and rehearsals come from there."""

SECKILL_REQUESTS_PER_ADDRESS = env.int("SECKILL_REQUESTS_PER_ADDRESS", default=3_000)
"""The most requests of an address in a minute, apart from what lies in memory. 0: any number, here
and in the next four."""

SECKILL_REQUESTS_PER_ACCOUNT = env.int("SECKILL_REQUESTS_PER_ACCOUNT", default=600)
"""The most requests of an account in a minute, apart from public pages and orders."""

SECKILL_SIGN_UPS_PER_ADDRESS = env.int("SECKILL_SIGN_UPS_PER_ADDRESS", default=20)
"""The most attempts of an address to sign up in an hour."""

SECKILL_SIGN_INS_PER_ADDRESS = env.int("SECKILL_SIGN_INS_PER_ADDRESS", default=100)
"""The most attempts of an address to sign in, over all account names, in ten minutes."""

SECKILL_RESETS_PER_ADDRESS = env.int("SECKILL_RESETS_PER_ADDRESS", default=20)
"""The most attempts of an address to reset a password in an hour."""

SECKILL_TEXTS_PER_ADDRESS = env.int("SECKILL_TEXTS_PER_ADDRESS", default=100)
"""The most codes that are sent to phones for an address in a day, over all numbers; 0: any."""

SECKILL_MAP_URL = env.str("SECKILL_MAP_URL", default="")
"""The address of a map's search, with ``{place}`` for what is searched; without it, no link."""

# What is empty from here to the invitation, owners set on a page (docs/adr/0040).
SECKILL_SHOP_NAME = env.str("SECKILL_SHOP_NAME", default="")
SECKILL_SHOP_NAME_EN = env.str("SECKILL_SHOP_NAME_EN", default="")
"""The name of the shop, for readers of Chinese and of English. A voucher without a merchant is of
a merchant with the first of them."""

SECKILL_SHOP_COLOUR = env.str("SECKILL_SHOP_COLOUR", default="")
"""The colour of buttons and prices; what needs more contrast is derived from it."""

SECKILL_SHOP_LOGO = env.str("SECKILL_SHOP_LOGO", default="")
"""The path of the logo, a PNG, WebP or JPEG; without one, the shop shows a flash."""

SECKILL_SHOP_CONTACT = env.str("SECKILL_SHOP_CONTACT", default="")
"""How buyers reach the shop: an e-mail address, a phone number or the address of a page."""

SECKILL_SHOP_IMPRINT = env.str("SECKILL_SHOP_IMPRINT", default="")
SECKILL_SHOP_IMPRINT_EN = env.str("SECKILL_SHOP_IMPRINT_EN", default="")
"""The company behind the shop, such as its ICP licence, in one line; or the address of a page."""

SECKILL_SHOP_TERMS = env.str("SECKILL_SHOP_TERMS", default="")
SECKILL_SHOP_TERMS_EN = env.str("SECKILL_SHOP_TERMS_EN", default="")
"""The terms of the shop: the address of a page, or the path of a text file that /terms/ shows."""

SECKILL_SHOP_INVITATION = env.str("SECKILL_SHOP_INVITATION", default="")
SECKILL_SHOP_INVITATION_EN = env.str("SECKILL_SHOP_INVITATION_EN", default="")
"""What the mail that invites a member of staff says first."""

SECKILL_SHOP_TIME_ZONE = env.str("SECKILL_SHOP_TIME_ZONE", default="Asia/Shanghai")
"""The time zone in which pages and the admin show times; they are stored in UTC."""

SECKILL_LAB = env.bool("SECKILL_LAB", default=False)
"""Whether the runnable six steps (``lab/``) are installed, with their tables and pages."""

SILENCED_SYSTEM_CHECKS = [
    # Whether other hosts of the domain have HTTPS, only its owner knows.
    "security.W005",
    "security.W021",
    *env.list("SECKILL_SILENCED_CHECKS", default=[]),
]
"""Ids of checks whose message is known and accepted (``docs/checks.md``)."""

# --- Django --------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "seckill_site",
    "accounts",
    "vouchers",
    "orders",
    "api",
    "backoffice",
    "locks.django",
    "backoffice.apps.BackOfficeAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.usersessions",
    "django.contrib.humanize",
    "csp",
    "captcha",
    "django.forms",  # its templates, so that ours are found beside them
]
FORM_RENDERER = "django.forms.renderers.TemplatesSetting"
if SECKILL_LAB:
    INSTALLED_APPS.append("lab")

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "seckill_site.web.middleware.site_guard",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "seckill_site.web.request_rates.RequestRates",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "accounts.way_back.WayBackMiddleware",
    "accounts.hashing.TooManyMiddleware",
    "accounts.second_factor.StaffSecondFactorMiddleware",
    "backoffice.activity.activity_middleware",
]

SECKILL_FRONT_DOOR = [
    "orders.web.front_door.order",
    "orders.web.front_door.receipt",
    "orders.web.me_front_door.me",
    "orders.web.me_front_door.token",
    "orders.web.front_door.unknown_sale",
    "orders.web.room_front_door.room",
    "vouchers.web.front_door.live",
    "seckill_site.front_door.health.healthz",
    "seckill_site.front_door.health.readyz",
    "seckill_site.front_door.unknown_paths.unknown_path",
]
"""The coroutines that may answer a request before Django does, in this order."""

SECKILL_SHARED_PAGES = "orders.web.front_door.is_shared_page"
"""The function that says whether a page is the same for everybody, so that memory may answer."""

SECKILL_AT_STOP = [
    "orders.web.front_door.drain_publisher",
    "orders.audience.refusal_log.flush_refusals",
    "vouchers.inventory.request_stats.flush_request_counts",
]
"""What a process of the front door finishes before it ends, each in a thread."""

ROOT_URLCONF = "seckill_site.urls"
WSGI_APPLICATION = "seckill_site.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# --- Database ------------------------------------------------------------------------------------


SECKILL_DATABASE_TIMEOUT_S = env.int("SECKILL_DATABASE_TIMEOUT_S", default=5)
"""The longest a statement waits for the database; ``manage.py`` waits longer."""


def database_options(engine: str) -> dict[str, Any]:
    """Return the connection options of this engine that the locking depends on."""
    if engine.endswith("mysql"):
        return {
            "charset": "utf8mb4",
            "connect_timeout": 3,
            # A database that is stopped, not gone, would otherwise hold a thread forever.
            "read_timeout": SECKILL_DATABASE_TIMEOUT_S,
            "write_timeout": SECKILL_DATABASE_TIMEOUT_S,
            "isolation_level": "read committed",
            # Only MariaDB reads the comment: a stopped worker must not block a row for everybody.
            "init_command": "SET SESSION innodb_lock_wait_timeout = 3, "
            "sql_mode = 'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'"
            "/*M!100300 , idle_transaction_timeout = 10 */",
        }
    return {
        # SQLite has no row locks: writers are serialised from their first statement on.
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }


DATABASES: dict[str, dict[str, Any]] = {"default": env.db_url("DATABASE_URL")}
DATABASES["default"]["OPTIONS"] = {
    **database_options(DATABASES["default"]["ENGINE"]),
    **DATABASES["default"].get("OPTIONS", {}),
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.mysql":
    DATABASES["default"]["ENGINE"] = "seckill_site.mysql"
DATABASES["default"]["CONN_MAX_AGE"] = 60
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Redis ---------------------------------------------------------------------------------------

REDIS_URL = env.str("REDIS_URL")
CACHE_URL = env.str("CACHE_URL")
_LEDGER = checked_address("REDIS_URL", REDIS_URL)
_CACHE = checked_address("CACHE_URL", CACHE_URL)

if _LEDGER.database == _CACHE.database:
    # django-redis would also give both the same connections, with the cache's options.
    raise ImproperlyConfigured(
        "CACHE_URL and REDIS_URL name the same database: clearing the cache would clear the sales. "
        "Give the ledger a database number of its own."
    )
CACHES = {
    "default": {
        "BACKEND": "seckill_site.redis.lossy_cache.LossyCache",
        "LOCATION": _CACHE.location,
        "OPTIONS": {
            "CONNECTION_FACTORY": "seckill_site.redis.address.ConnectionFactory",
            "SERIALIZER": "django_redis.serializers.json.JSONSerializer",
            "CONNECTION_POOL_CLASS": "seckill_site.redis.watched_connections.WatchedConnections",
            "SOCKET_CONNECT_TIMEOUT": 0.5,
            "SOCKET_TIMEOUT": 1,
            # A cache may be missing. The ledger may not, so this option stands only here.
            "IGNORE_EXCEPTIONS": True,
        },
    },
    # Ledger and locks, used through the raw client only. Never IGNORE_EXCEPTIONS here: it would
    # turn an outage into an answer. No retries either: the callers decide whether to ask again.
    "ledger": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": _LEDGER.location,
        "OPTIONS": {
            "CONNECTION_FACTORY": "seckill_site.redis.address.ConnectionFactory",
            "CONNECTION_POOL_CLASS": "seckill_site.redis.watched_connections.WatchedConnections",
            "SOCKET_CONNECT_TIMEOUT": 0.5,
            "SOCKET_TIMEOUT": 1,
            "CONNECTION_POOL_KWARGS": {
                "decode_responses": True,
                # Bytes that are no text come from a mistyped command, and must stop nobody.
                "encoding_errors": "surrogateescape",
                "retry": Retry(NoBackoff(), 0),
            },
        },
    },
}

# --- Accounts of buyers -------------------------------------------------------------------------

SECKILL_UNPAID_ORDERS = env.int("SECKILL_UNPAID_ORDERS", default=5)
"""The number of unpaid orders at which an account gets no more purchase tokens; 0: no cap."""

SECKILL_CANCELLATIONS_PER_HOUR = env.int("SECKILL_CANCELLATIONS_PER_HOUR", default=10)
"""The most orders that a buyer may cancel within an hour; 0: no cap."""

# --- Payment -------------------------------------------------------------------------------------

SECKILL_PAYMENT_PROVIDERS = env.list(
    "SECKILL_PAYMENT_PROVIDERS", default=["orders.payments.sandbox.Sandbox"] if DEBUG else []
)
_PAGES_OF = {
    "orders.payments.stripe_checkout.StripeCheckout": ["https://checkout.stripe.com"],
    "orders.payments.alipay.Alipay": ["https://*.alipay.com", "https://*.alipaydev.com"],
    "orders.payments.wechat_pay.WeChatPay": ["https://wx.tenpay.com"],
}
SECKILL_PAYMENT_ORIGINS = env.list("SECKILL_PAYMENT_ORIGINS", default=[]) or [
    page for path in SECKILL_PAYMENT_PROVIDERS for page in _PAGES_OF.get(path, [])
]
SECKILL_STRIPE_SECRET_KEY = env.str("SECKILL_STRIPE_SECRET_KEY", default="")
SECKILL_STRIPE_WEBHOOK_SECRETS = env.list("SECKILL_STRIPE_WEBHOOK_SECRETS", default=[])
SECKILL_STRIPE_URL = env.str("SECKILL_STRIPE_URL", default="https://api.stripe.com")
SECKILL_ALIPAY_APP_ID = env.str("SECKILL_ALIPAY_APP_ID", default="")
SECKILL_ALIPAY_PRIVATE_KEY = env.str("SECKILL_ALIPAY_PRIVATE_KEY", default="", multiline=True)
SECKILL_ALIPAY_PUBLIC_KEYS = env.list("SECKILL_ALIPAY_PUBLIC_KEYS", default=[])
SECKILL_ALIPAY_URL = env.str("SECKILL_ALIPAY_URL", default="https://openapi.alipay.com/gateway.do")
SECKILL_WECHAT_APP_ID = env.str("SECKILL_WECHAT_APP_ID", default="")
SECKILL_WECHAT_MERCHANT_ID = env.str("SECKILL_WECHAT_MERCHANT_ID", default="")
SECKILL_WECHAT_CERTIFICATE_SERIAL = env.str("SECKILL_WECHAT_CERTIFICATE_SERIAL", default="")
SECKILL_WECHAT_PRIVATE_KEY = env.str("SECKILL_WECHAT_PRIVATE_KEY", default="", multiline=True)
SECKILL_WECHAT_API_V3_KEY = env.str("SECKILL_WECHAT_API_V3_KEY", default="")
SECKILL_WECHAT_PUBLIC_KEYS = env.dict("SECKILL_WECHAT_PUBLIC_KEYS", default={})
SECKILL_WECHAT_URL = env.str("SECKILL_WECHAT_URL", default="https://api.mch.weixin.qq.com")
SECKILL_SANDBOX_KEY = env.str("SECKILL_SANDBOX_KEY", default=SECRET_KEY)
SECKILL_SANDBOX_KEY_FALLBACKS = env.list(
    "SECKILL_SANDBOX_KEY_FALLBACKS", default=SECRET_KEY_FALLBACKS
)

# --- Mail ----------------------------------------------------------------------------------------

SECKILL_SITE_URL = env.str("SECKILL_SITE_URL", default="http://127.0.0.1:8000").rstrip("/")
"""The address of this site, of which every absolute address is built; never of a request's Host."""

SECKILL_REHEARSAL_URL = env.str("SECKILL_REHEARSAL_URL", default=SECKILL_SITE_URL).rstrip("/")
"""The address of the web server for a rehearsal's crowd; the workers send its requests."""

SECKILL_MAIL_FROM = env.str("SECKILL_MAIL_FROM", default="")
"""The sender of mails; owners may set it on a page."""

DEFAULT_FROM_EMAIL = SECKILL_MAIL_FROM or "noreply@localhost"  # of mails that are not the shop's
EMAIL_TIMEOUT = 5  # seconds; SMTP, too, must not hold a thread for ever
vars().update(env.email_url("SECKILL_MAIL_URL", default="consolemail://"))

SECKILL_NOTICE_CHANNELS = env.list(
    "SECKILL_NOTICE_CHANNELS",
    default=["orders.lifecycle.outbox.Mail", "orders.lifecycle.outbox.Text"],
)
"""Classes that tell readers of sales; the first that can reach a reader does."""

SECKILL_REMIND_BEFORE_S = env.int("SECKILL_REMIND_BEFORE_S", default=600)
"""How long before the start of a sale its reminders are sent."""

if SECKILL_REMIND_BEFORE_S < 1:
    raise ImproperlyConfigured("SECKILL_REMIND_BEFORE_S is less than 1: no reminder would be sent.")

# --- Webhooks ------------------------------------------------------------------------------------

SECKILL_WEBHOOK_HTTP = env.bool("SECKILL_WEBHOOK_HTTP", default=False)
"""Whether webhooks may have an address without TLS: for development."""

try:
    SECKILL_WEBHOOK_NETWORKS = [
        ip_network(text) for text in env.list("SECKILL_WEBHOOK_NETWORKS", default=[])
    ]
except ValueError as error:
    raise ImproperlyConfigured(f"SECKILL_WEBHOOK_NETWORKS: {error}.") from error
"""Networks that webhooks may reach although they are not public."""

# --- Celery --------------------------------------------------------------------------------------

CELERY_BROKER_URL = env.str("CELERY_BROKER_URL")
_kombu_url, _kombu_options = kombu_address(CELERY_BROKER_URL)
# Celery prefers the environment to CELERY_BROKER_URL here, but not to these.
CELERY_BROKER_READ_URL = CELERY_BROKER_WRITE_URL = _kombu_url
CELERY_BROKER_HEARTBEAT = 5
"""Seconds; a worker takes RabbitMQ for gone after two of them without a word."""

CELERY_BROKER_CHANNEL_ERROR_RETRY = True  # a right that is missing ends no worker
# Its queue is named after the host, and RabbitMQ gives it to one connection alone.
CELERY_WORKER_ENABLE_REMOTE_CONTROL = not is_rabbitmq()
CELERY_TASK_PUBLISH_RETRY = not is_rabbitmq()  # beat tries again by itself, at all addresses
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_TIME_LIMIT = 90
CELERY_TASK_SOFT_TIME_LIMIT = 60
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_CONSUMER = "seckill_site.broker.consumer:Consumer"
CELERY_BEAT_SCHEDULER = "seckill_site.broker.schedule:MonotonicScheduler"
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
    "visibility_timeout": 120,
    "unacked_restore_interval": 1,  # pauses of messages end as precisely as this
    "unacked_restore_throttle": 1,
    **_kombu_options,
    # From here on those of RabbitMQ.
    "connect_timeout": 2,
    "read_timeout": 5,
    "write_timeout": 5,
    "confirm_publish": True,
}
CELERY_DB_REUSE_MAX = 10**9  # ``seckill_site/celery.py`` closes connections, not Celery
SECKILL_QUORUM_QUEUES = env.bool("SECKILL_QUORUM_QUEUES", default=False)
"""Whether the queues of RabbitMQ are kept on several nodes."""

if SECKILL_QUORUM_QUEUES and not is_rabbitmq():
    raise ImproperlyConfigured(
        "SECKILL_QUORUM_QUEUES needs an address of RabbitMQ in CELERY_BROKER_URL."
    )

CELERY_TASK_QUEUES = [
    task_queue(it, is_quorum=SECKILL_QUORUM_QUEUES) for it in ("celery", "payments", "webhooks")
]
"""A worker without ``--queues`` takes from all. With one for each, no server of others delays an
order."""

_CALLS_PROVIDERS = (
    "expire_being_paid",
    "confirm_payments",
    "poll_payments",
    "finish_refunds",
    "settle_payments",
    "work_at_job",  # a bulk refund calls a provider for each order
)
CELERY_TASK_ROUTES = {
    **{f"orders.tasks.{it}": {"queue": "payments"} for it in _CALLS_PROVIDERS},
    "api.tasks.*": {"queue": "webhooks"},
}
_EVERY_SECONDS = {
    "sweep": SECKILL_SWEEP_AGE_MS / 1000,
    "watch_ledger": 2.0,
    "expire": 2.0,
    "advance_draws": 2.0,
    "store_visits": 2.0,
    "drop_stale_facts": 2.0,
    "look_ahead": 10.0,
    "resume_jobs": 10.0,
    "resume_rehearsals": 10.0,
    "restore_lines": 10.0,
    "reconcile": 10.0,
    "store_tallies": 10.0,
    "tell_buyers": 5.0,
    "send_notices": 5.0,
    "expire_being_paid": 2.0,
    "poll_payments": 5.0,
    "finish_refunds": 5.0,
    "refund_unused": 15.0,
    "note_last_days": 600.0,
    "sum_days": 600.0,
    "settle_payments": 1800.0,
    "sweep_long_over": 300.0,
    "remove_ledgers": 300.0,
    "delete_ended_sessions": 3600.0,
    "delete_old_refusals": 3600.0,
    "delete_old_rows": 3600.0,
    "send_webhooks": 2.0,
    "delete_old_deliveries": 3600.0,
}
"""Tasks of one queue and interval share a message and run in this order."""

_TASKS_OF_API = ("send_webhooks", "delete_old_deliveries")
CELERY_BEAT_SCHEDULE = {
    name: {
        "task": f"{'api' if name in _TASKS_OF_API else 'orders'}.tasks.{name}",
        "schedule": seconds,
        "options": publish_options(once=True),  # without workers, one of each waits
    }
    for name, seconds in _EVERY_SECONDS.items()
}

# --- Accounts ------------------------------------------------------------------------------------

SESSION_ENGINE = "seckill_site.sessions"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "voucher-list"
LOGOUT_REDIRECT_URL = "voucher-list"
CSRF_FAILURE_VIEW = "seckill_site.web.errors.csrf_failure"
AUTHENTICATION_BACKENDS = [
    "accounts.backends.AccountBackend",
    "django.contrib.auth.backends.ModelBackend",  # of sessions from before allauth
]
PASSWORD_HASHERS = ["accounts.hashing.BoundedHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}Validator"}
    for name in ("MinimumLength", "NumericPassword", "CommonPassword", "UserAttributeSimilarity")
]
CAPTCHA_LENGTH = 5
CAPTCHA_FONT_SIZE = 36
CAPTCHA_IMAGE_SIZE = (200, 64)
CAPTCHA_TIMEOUT = 10  # minutes
ACCOUNT_ADAPTER = "accounts.adapter.AccountAdapter"
ACCOUNT_FORMS = {
    "login": "accounts.forms.LoginForm",
    "signup": "accounts.forms.SignUpForm",
    "request_login_code": "accounts.forms.LoginCodeForm",
    "confirm_login_code": "accounts.forms.ConfirmCodeForm",
    "verify_phone": "accounts.forms.VerifyPhoneForm",
    "change_password": "accounts.forms.ChangePasswordForm",
    "reset_password": "accounts.forms.ResetPasswordForm",
    "change_phone": "accounts.forms.ChangePhoneForm",
}
ACCOUNT_LOGIN_METHODS = {"username", "email", "phone"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "email", "phone", "password1", "password2"]
ALLAUTH_USER_CODE_FORMAT = {"numeric": True, "dashed": False, "length": 6}
ACCOUNT_EMAIL_VERIFICATION = "optional"
ACCOUNT_EMAIL_UNKNOWN_ACCOUNTS = False  # an address that nobody confirmed gets no mail
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_EMAIL_SUBJECT_PREFIX = ""
ACCOUNT_MAX_EMAIL_ADDRESSES = 3
ACCOUNT_LOGIN_BY_CODE_ENABLED = True
ACCOUNT_LOGIN_BY_CODE_TIMEOUT = 300
ACCOUNT_LOGIN_BY_CODE_SUPPORTS_RESEND = 2
ACCOUNT_PHONE_VERIFICATION_TIMEOUT = 300
ACCOUNT_PHONE_VERIFICATION_SUPPORTS_RESEND = 2
ACCOUNT_LOGIN_ON_PASSWORD_RESET = True
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_LOGOUT_ON_PASSWORD_CHANGE = False  # other sessions end: each carries the password's hash
ACCOUNT_RATE_LIMITS = {
    # SECKILL_SIGN_INS_PER_ADDRESS and the like bound an address over all names.
    "login": None,
    "signup": None,
    "reset_password_from_key": None,
    "login_failed": "5/6m/key",  # an account from one address
    "wrong_codes": "10/d/key",  # an account, wherever they are entered
    # What accounts.forms counts: a client's requests for a code to one name, and to all names.
    "code_of_client": "3/10m/key",
    "codes_of_client": "20/m/key",
    # What accounts.adapter counts: each text to a phone, those that are sent again too.
    "texts_to_phone": "20/10m/key",
    "texts_to_phone_of_client": "5/10m/key",
    "texts_of_client": f"{SECKILL_TEXTS_PER_ADDRESS}/d/key" if SECKILL_TEXTS_PER_ADDRESS else None,
    # A mail address or number, whoever asks.
    "request_login_code": "12/10m/key",
    "reset_password": "12/10m/key",
    "verify_phone": "12/10m/key",
}
MFA_ADAPTER = "accounts.second_factor.SecondFactorAdapter"
MFA_FORMS = {
    "authenticate": "accounts.forms.SecondFactorForm",
    "reauthenticate": "accounts.forms.SecondFactorAgainForm",
    "add_webauthn": "accounts.forms.AddKeyForm",
    "edit_webauthn": "accounts.forms.EditKeyForm",
}
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_RATE_LIMITS = {"webauthn_login": None}  # SECKILL_SIGN_INS_PER_ADDRESS bounds these too
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_ALLOW_UNVERIFIED_EMAIL = True  # an account needs no address
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = DEBUG  # http://localhost

SECKILL_STAFF_SECOND_FACTOR = env.bool("SECKILL_STAFF_SECOND_FACTOR", default=False)
"""Whether staff needs a second factor for the admin and the counter."""

SECKILL_SMS_BACKEND = env.str("SECKILL_SMS_BACKEND", default="accounts.phones.ConsoleBackend")
"""The class that sends texts to phones."""

# --- Pages ---------------------------------------------------------------------------------------

LANGUAGE_CODE = "zh-hans"
LANGUAGES = [("zh-hans", _("Simplified Chinese")), ("en", _("English"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
TIME_ZONE = SECKILL_SHOP_TIME_ZONE
CELERY_TIMEZONE = "UTC"

STATIC_URL = "static/"
STATIC_ROOT = env.path("STATIC_ROOT", default=str(BASE_DIR / "staticfiles"))
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "seckill_site.static_storage.StaticStorage"},
}
WHITENOISE_KEEP_ONLY_HASHED_FILES = True


def origin_of(url: str) -> list[str]:
    """Return the origin of an address, if it has one."""
    match = re.match(r"https?://[^/?#]+", url)
    return [match[0]] if match else []


CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
        # A buyer under another of ALLOWED_HOSTS pays and returns under the site's own address.
        "form-action": ["'self'", *origin_of(SECKILL_SITE_URL), *SECKILL_PAYMENT_ORIGINS],
    }
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS_ONLY
if HTTPS_ONLY:
    # Browsers take a cookie of this name from this very host and over HTTPS only.
    SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "__Host-sessionid", "__Host-csrftoken"
    SECURE_HSTS_SECONDS = 365 * 24 * 60 * 60
SECURE_SSL_REDIRECT = HTTPS_ONLY
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]  # probed from inside the network
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS_ONLY else None

LOG_FORMAT = env.str("SECKILL_LOG_FORMAT", default="text")
_LOG_LINES = {"text": "LogLine", "json": "JsonLine"}
if LOG_FORMAT not in _LOG_LINES:
    raise ImproperlyConfigured("SECKILL_LOG_FORMAT is neither text nor json.")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"()": f"seckill_site.log_lines.{_LOG_LINES[LOG_FORMAT]}"},
    },
    "filters": {
        "with_reference": {"()": "seckill_site.web.errors.WithReference"},
        "one_short_line": {"()": "seckill_site.log_lines.OneShortLine"},
        "outage": {"()": "seckill_site.log_lines.OutageInOneLine"},
    },
    "handlers": {
        "console": {"class": "seckill_site.log_lines.Console", "formatter": "line"},
        "refusals": {
            "class": "seckill_site.log_lines.Console",
            "formatter": "line",
            "filters": ["one_short_line"],
        },
    },
    "root": {"handlers": ["console"], "level": env.str("SECKILL_LOG_LEVEL", default="INFO")},
    "loggers": {
        "django.request": {"level": "ERROR", "filters": ["with_reference"]},
        # A request from an unknown host, one that is too large, or suspicious in another way.
        "django.security": {"handlers": ["refusals"], "propagate": False},
        # A line for each sweep, every two seconds, would bury what happens to orders.
        "celery.beat": {"level": "WARNING"},
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING", "filters": ["outage"]},
        "stripe": {"level": "WARNING"},  # a line for each call
    },
}
