"""The product uses the private parts of libraries that ADR 0034 lists, no others, and unchanged."""

from __future__ import annotations

import ast
import hashlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "docs/adr/0034-a-private-part-of-a-library-earns-its-place.md"

PARTS = {
    "accounts/adapter.py": """
        allauth.account.adapter:DefaultAccountAdapter._get_login_attempts_cache_key 58a617b4
        allauth.account.adapter:DefaultAccountAdapter._delete_login_attempts_cached_email 8ef85bf1
    """,
    "accounts/backends.py": """
        allauth.account.auth_backends:AuthenticationBackend._authenticate 88a7fc28
        allauth.account.auth_backends:AuthenticationBackend._check_password 6bde421c
    """,
    "accounts/codes.py": """
        allauth.core.ratelimit:_impl 94accd83
    """,
    "accounts/forms.py": """
        allauth.account.forms:BaseSignupForm._clean_phone ce467fc7
    """,
    "accounts/web/views.py": """
    allauth.account.views:ConfirmLoginCodeView._process -
    allauth.account.views:flows.login_by_code.LoginCodeVerificationProcess.generate_code 9a4312a4
    allauth.account.views:flows.login_by_code.LoginCodeVerificationProcess.initiate 5aeb96b5
    """,
    "orders/placing/signer.py": """
        django.core.signing:Signer.signature 8d0c8889
        django.core.signing:base64_hmac a8aa203e
        django.utils.crypto:salted_hmac 8ff2a089
    """,
    "script/lib/supervisor.py": """
        honcho.manager:Manager.loop 1a921f8f
        honcho.manager:Manager._start b93592d9
        honcho.manager:Manager._all_started ef666ad1
        honcho.manager:Manager._processes -
        honcho.manager:Manager._process_ctor -
        honcho.manager:Manager._system_print ba8828cb
    """,
    "seckill_site/broker/consumer.py": """
        celery.worker.consumer.consumer:Consumer.Blueprint 4e66e379
        celery.worker.consumer.consumer:Consumer.create_task_handler 292c5a68
        celery.worker.consumer.consumer:Consumer.on_decode_error e3538c58
        celery.worker.consumer.consumer:Consumer.ensure_connected 3f79cf3b
    """,
    "seckill_site/broker/schedule.py": """
        celery.beat:Scheduler._ensure_connected 94344cda
    """,
    "seckill_site/broker/transport.py": """
        kombu.transport.redis:Channel._brpop_read c4251869
        kombu.transport.redis:Channel._connparams e9a42950
        kombu.transport.redis:Channel._new_queue a4d66079
        kombu.transport.redis:Channel._put 1c0cf974
        kombu.transport.redis:Channel._queue_bind 29b73e02
        kombu.transport.redis:Channel.conn_or_acquire 25883cac
        kombu.transport.redis:QoS.append 35c655f6
        kombu.transport.redis:QoS.ack 1bc15a4d
        kombu.transport.redis:QoS.reject 747a0243
        kombu.transport.redis:QoS.restore_visible d4a4a40a
        kombu.transport.redis:QoS.restore_by_tag 58e161d8
        kombu.transport.virtual.base:Channel._lookup 82b0e601
        kombu.transport.virtual.base:QoS._delivered -
        kombu.transport.virtual.base:QoS.ack 0714292b
    """,
    "seckill_site/celery.py": """
        celery.worker.components:Beat.create 4688b72e
    """,
    "seckill_site/metrics.py": """
        prometheus_client.values:MultiProcessValue 8077cd2c
    """,
    "seckill_site/redis/address.py": """
        redis.connection:AbstractConnection.connect_check_health 6d69f8fe
        redis.asyncio.connection:AbstractConnection.connect_check_health 5cfa2c49
    """,
    "seckill_site/redis/lossy_cache.py": """
        allauth.core.internal.ratelimit:cache_lock 0aebc9c1
    """,
    "seckill_site/mysql/overlap.py": """
        MySQLdb.connections:Connection.query 65881aae
    """,
    "seckill_site/sessions.py": """
        django.contrib.sessions.backends.base:SessionBase._validate_session_key f7f22922
        django.contrib.sessions.backends.base:SessionBase._session_key -
        django.contrib.sessions.backends.db:SessionStore._get_session_from_db 775c8d22
    """,
    "seckill_site/redis/watched_connections.py": """
        redis.connection:AbstractConnection.connect_check_health 6d69f8fe
    """,
}
"""The parts that each file uses, and the digest of their source; none of an attribute."""

NAMED = [
    (path, *line.split()) for path, lines in PARTS.items() for line in lines.strip().splitlines()
]


@pytest.mark.parametrize(("path", "part", "digest"), NAMED, ids=[part for _, part, _ in NAMED])
def test_private_part_is_as_it_was(path: str, part: str, digest: str) -> None:
    owner, name = re.fullmatch(r"(.+)[.:](\w+)", part).groups()  # type: ignore[union-attr]
    holder = pkgutil.resolve_name(owner)
    if digest == "-":
        now = "-" if re.search(rf"\b{name} = ", inspect.getsource(holder)) else "gone"
    else:
        now = digest_of(getattr(holder, name)) if hasattr(holder, name) else "gone"
    assert now == digest, (
        f"{release_of(part)} has changed {part}, on which {path} relies: read it, run the tests "
        f"that docs/adr/0034 names beside it, then put {now!r} here."
    )


def digest_of(function: Any) -> str:
    return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:8]


def release_of(part: str) -> str:
    names = packages_distributions().get(re.split(r"[.:]", part)[0], [])
    return " ".join(f"{name} {version(name)}" for name in names)


def test_record_names_each_private_part() -> None:
    text = RECORD.read_text(encoding="utf-8")
    wanted = {path for path, *_ in NAMED} | {last_name(part) for _, part, _ in NAMED}
    assert [it for it in sorted(wanted) if f"`{it}`" not in text] == []


def last_name(part: str) -> str:
    return re.split(r"[.:]", part)[-1]


# --- That there are no others ---------------------------------------------------------------------

PRODUCT = {"accounts", "api", "backoffice", "bench", "lab", "locks", "orders", "script"}
PRODUCT |= {"seckill_site", "vouchers"}
OURS = PRODUCT | {it.stem for it in (ROOT / "script/lib").glob("*.py")}
DOCUMENTED = {"_asdict", "_default_manager", "_exit", "_fields", "_meta", "_replace", "_save"}
DOCUMENTED |= {"_make", "_state", "_typeshed"}
"""Python and Django document these names."""


@pytest.mark.slow
def test_product_uses_no_other_private_part() -> None:
    listed = {(path, last_name(part)) for path, part, _ in NAMED}
    found = set()
    for path in (it for folder in PRODUCT for it in (ROOT / folder).rglob("*.py")):
        names = private_parts(ast.parse(path.read_text(encoding="utf-8")))
        found |= {(path.relative_to(ROOT).as_posix(), it) for it in names if is_private(it)}
    assert found - listed == set(), f"do without it, or list it in PARTS and in {RECORD.name}"
    unused = {(path, name) for path, name in listed - found if is_private(name)}
    assert unused == set(), f"not used any more: take it out of PARTS and of {RECORD.name}"


def is_private(name: str) -> bool:
    hidden = name.startswith("_") and not name.endswith("__") and name not in DOCUMENTED
    return hidden or name == "internal"


def private_parts(tree: ast.Module) -> Iterator[str]:
    """Yield the names of others that a module imports, reads, or shares with a library's class."""
    nodes = list(ast.walk(tree))
    own = names_in(tree) | {
        it.attr for it in nodes if isinstance(it, ast.Attribute) and isinstance(it.ctx, ast.Store)
    }
    imports = dict(imports_of(nodes))
    for node in nodes:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.value or node) in imports:
            imports[ast.unparse(node.target)] = imports[ast.unparse(node.value or node)]
    for origin in imports.values():
        yield from origin.split(".")
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr not in own:
            yield node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
            yield from (str(it.value) for it in node.args if isinstance(it, ast.Constant))
        elif isinstance(node, ast.ClassDef):
            source = "".join(source_of(ast.unparse(it), imports) for it in node.bases)
            yield from (it for it in names_in(node) if re.search(rf"\b{it}\b", source))


def imports_of(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield each name that is imported from a library, and where it is from."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] not in OURS:
            yield from ((it.asname or it.name, f"{node.module}.{it.name}") for it in node.names)
        elif isinstance(node, ast.Import):
            yield from ((it.asname or it.name, it.name) for it in node.names)


def names_in(node: ast.AST) -> set[str]:
    """Return the functions and classes that it defines, and the attributes of ``self``."""
    names = set()
    for it in ast.walk(node):
        if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(it.name)
        elif isinstance(it, ast.Attribute) and ast.unparse(it.value) in ("self", "cls", "super()"):
            names.add(it.attr)
    return names


def source_of(base: str, imports: Mapping[str, str]) -> str:
    """Return the source of the installed modules that a base class comes from."""
    base = base.partition("[")[0]
    module, _, name = base.rpartition(".")
    origin = f"{imports[module]}.{name}" if module in imports else imports.get(base)
    found = pkgutil.resolve_name(origin) if origin else object
    modules = [sys.modules[it.__module__] for it in getattr(found, "__mro__", ())]
    files = [Path(getattr(it, "__file__", None) or "") for it in modules]
    return "".join(it.read_text(encoding="utf-8") for it in files if "site-packages" in it.parts)
