"""A real Prometheus beside a real shop: each fault calls somebody within a minute.

The faults come one after the other, in one shop. Each is held until its alert fires, and the alert
ends once it is over. Grafana is not to be had from Debian: its queries are asked here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep
from typing import Any
from urllib.parse import quote

import pytest
import requests
import yaml
from django.db import connection
from django.utils import timezone
from redis.connection import parse_url

from orders.models import Payment, PaymentStatus, VoucherOrder
from orders.payments.service import start_payment
from tests.concurrency.sales import (
    accepted_ids,
    assert_the_sum_is_right,
    crowd_of,
    make_sale,
    order_all,
    order_requests,
    wait_until_quiet,
)
from tests.support.patience import running_s, wait_for
from tests.support.proxy import FaultProxy, redis_server
from tests.support.stack import Process, Stack, Web, free_port
from tests.support.stand_ins.stripe import KEY, SECRET, StripeStandIn

pytestmark = [pytest.mark.operations, pytest.mark.usefixtures("row_locks")]

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
LIMIT_S = 60
"""An alert fires within this time, and ends within it after the fault."""

QUIET_S = 120
"""What else a fault has caused ends within this time."""

BUYERS, STOCK = 2_000, 500


class Prometheus:
    """A Prometheus with the configuration of ``deploy/``, but for its targets."""

    def __init__(self, directory: Path, target: str) -> None:
        config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
        config["rule_files"] = [str(DEPLOY / "prometheus/alerts.yml")]
        config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
        path, port = directory / "prometheus.yml", free_port()
        path.write_text(yaml.safe_dump(config))
        self.url = f"http://127.0.0.1:{port}/api/v1"
        self._log = (directory / "prometheus.log").open("wb")
        self._popen = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={path}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def close(self) -> None:
        self._popen.terminate()
        self._popen.wait(30)
        self._log.close()

    def ask(self, expression: str) -> list[dict[str, Any]]:
        try:
            answer = requests.get(f"{self.url}/query", {"query": expression}, timeout=30)
        except requests.ConnectionError:  # it has not started yet
            return []
        if answer.status_code == 503:  # it has not read its configuration yet
            return []
        answer.raise_for_status()
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return found

    def now_s(self) -> float:
        return float(self.ask("vector(time())")[0]["value"][1])

    def firing(self) -> set[tuple[str, str]]:
        """Return the alerts that fire, each with the value of its first own label."""
        alerts = self.ask('ALERTS{alertstate="firing"}')
        own = ("part", "name", "provider", "work", "why", "clock")
        found = [(it["metric"], next((n for n in own if n in it["metric"]), "")) for it in alerts]
        return {(it["alertname"], it.get(name, "")) for it, name in found}


@dataclass
class Fault:
    """Something that goes wrong, and the alert that calls somebody."""

    name: str
    alert: tuple[str, str]
    begin: Callable[[], object]
    end: Callable[[], object]
    meanwhile: Callable[[], object] = field(default=lambda: None)


@dataclass
class Shop:
    """The shop, the lines to its servers, and its Prometheus."""

    web: Web
    worker: Process
    beat: Process
    metrics: Web
    lines: dict[str, FaultProxy]
    stripe: StripeStandIn
    prometheus: Prometheus


@pytest.fixture
def shop(stack: Stack, tmp_path: Path, settings: Any) -> Iterator[Shop]:
    to = connection.settings_dict
    account = f"{quote(to['USER'])}:{quote(to['PASSWORD'])}"
    database = to["OPTIONS"].get("unix_socket") or (to["HOST"], int(to["PORT"] or 3306))
    urls = {"redis": settings.REDIS_URL, "broker": settings.CELERY_BROKER_URL}
    with ExitStack() as open_until:
        stripe = StripeStandIn()
        open_until.callback(stripe.close)
        stripe.configure(settings)
        settings.SECKILL_PAYMENT_PROVIDERS = [stripe.path]
        host, port = stripe.url.removeprefix("http://").split(":")
        upstreams = {
            "redis": redis_server(urls["redis"]),
            "broker": redis_server(urls["broker"]),
            "database": database,
            "stripe": (host, int(port)),
        }
        lines = {
            name: open_until.enter_context(FaultProxy(upstream, remember=False))
            for name, upstream in upstreams.items()
        }

        def through(name: str) -> str:
            return lines[name].url(int(parse_url(urls[name]).get("db", 0)), like=urls[name])

        environ = {
            "REDIS_URL": through("redis"),
            "CELERY_BROKER_URL": through("broker"),
            "DATABASE_URL": f"mysql://{account}@127.0.0.1:{lines['database'].port}/{to['NAME']}",
            "SECKILL_PAYMENT_PROVIDERS": stripe.path,
            "SECKILL_PAYMENT_ORIGINS": "https://checkout.stripe.com",
            "SECKILL_STRIPE_SECRET_KEY": KEY,
            "SECKILL_STRIPE_WEBHOOK_SECRETS": SECRET,
            "SECKILL_STRIPE_URL": f"http://127.0.0.1:{lines['stripe'].port}",
        }
        units = tmp_path / "units"

        def unit(name: str) -> dict[str, Any]:
            (units / name).mkdir(parents=True)
            return {**environ, "PROMETHEUS_MULTIPROC_DIR": str(units / name)}

        with stack.together():
            web = stack.web(**unit("web-8000"))
            worker = stack.worker(**unit("worker"))
            beat = stack.beat(**unit("beat"))
            metrics = stack.metrics(units, "--shop", **environ)
        prometheus = Prometheus(tmp_path, f"127.0.0.1:{metrics.port}")
        open_until.callback(prometheus.close)
        try:
            yield Shop(web, worker, beat, metrics, lines, stripe, prometheus)
        finally:
            for line in lines.values():
                line.heal()
            for process in (worker, beat):
                process.resume()


def pay_for(order: VoucherOrder) -> str:
    """Send a buyer to the provider, and return the reference of the payment."""
    site = "https://shop.example"
    urls: dict[str, Any] = {"return_url": f"{site}/back", "notify_url": f"{site}/notify"}
    start_payment(order_id=order.pk, now=timezone.now(), **urls)
    return str(Payment.objects.get(order=order).reference)


def ask_at_once() -> None:
    """Let the shop ask about all open payments, as it does when their buyers are back."""
    Payment.objects.filter(status=PaymentStatus.OPEN).update(ask_at=timezone.now(), asked=0)


def test_an_evening_raises_no_alert_and_each_fault_its_own(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    prometheus = shop.prometheus
    wait_for(lambda: prometheus.ask("seckill_heartbeat_age_seconds{name='queue:celery'}"))
    wait_for(lambda: prometheus.ask("sum(rate(seckill_loop_lag_seconds_count[20s])) > 0"))
    wait_for(lambda: not prometheus.firing(), what="a quiet start")
    began_at = prometheus.now_s()

    orders = sell_an_evening(shop)
    check_dashboard(prometheus)
    check_size(prometheus)
    wait_for(lambda: prometheus.now_s() > began_at + LIMIT_S)
    seconds = int(prometheus.now_s() - began_at)
    raised = prometheus.ask(f'max_over_time(ALERTS{{alertstate="firing"}}[{seconds}s])')
    assert [it["metric"]["alertname"] for it in raised] == []

    for order in orders[:5]:
        pay_for(order)
    rows = [measure(shop, fault) for fault in faults_of(shop)]
    table = ["| fault | alert | fires after | ends after |", "| --- | --- | ---: | ---: |"]
    for fault, fires_s, ends_s in rows:
        table.append(f"| {fault.name} | {fault.alert[0]} | {fires_s:.0f} s | {ends_s:.0f} s |")
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(table) + "\n")
    late = [fault.name for fault, *times in rows if max(times) > LIMIT_S]
    assert not late


def sell_an_evening(shop: Shop) -> list[VoucherOrder]:
    """Let 2,000 buyers come; one pays. Return orders that nobody pays."""
    sale = make_sale(stock=STOCK, ends_in_s=3_600)
    tokens = crowd_of(sale, count=BUYERS)
    answers = order_all(order_requests(sale, tokens), url=shop.web.url, connections=64)
    assert len(accepted_ids(answers)) == STOCK
    wait_until_quiet(sale)
    assert_the_sum_is_right(sale, ordered=STOCK)
    first, *others = VoucherOrder.objects.filter(seckill_voucher=sale, live=True).order_by("pk")
    shop.stripe.pay(pay_for(first))
    wait_for(lambda: VoucherOrder.objects.get(pk=first.pk).status == "paid", what="the payment")
    return others


def check_dashboard(prometheus: Prometheus) -> None:
    """Each query of the dashboard has data after a real sale."""
    dashboard = json.loads((DEPLOY / "grafana/seckill.json").read_text())
    queries = [it["expr"] for panel in dashboard["panels"] for it in panel.get("targets", ())]
    assert len(queries) > 15
    for query in queries:
        wait_for(lambda query=query: prometheus.ask(query), what=query)  # type: ignore[misc]


def check_size(prometheus: Prometheus) -> None:
    (scraped,) = prometheus.ask("scrape_samples_scraped")
    assert int(scraped["value"][1]) <= 1_000


def faults_of(shop: Shop) -> list[Fault]:
    def silence(name: str, what: str, alert: tuple[str, str], **more: Any) -> Fault:
        return Fault(what, alert, shop.lines[name].stall, shop.lines[name].heal, **more)

    worker, beat = shop.worker, shop.beat
    nobody = ("NobodyTakesFromQueue", "queue:celery")
    return [
        silence("redis", "ledger away", ("ServerAway", "redis")),
        silence("database", "database away", ("DatabaseTakesNoOrders", "")),
        silence("broker", "broker away", ("ServerAway", "broker")),
        Fault("workers stopped", nobody, worker.pause, worker.resume),
        Fault("beat stopped", ("BeatSilent", ""), beat.pause, beat.resume),
        silence("stripe", "provider silent", ("ProviderSilent", "stripe"), meanwhile=ask_at_once),
    ]


def measure(shop: Shop, fault: Fault) -> tuple[Fault, float, float]:
    """Hold a fault until its alert fires; return how long that took, and until it ended."""

    def seconds_until(is_so: Callable[[], bool]) -> float:
        since = running_s()
        while not is_so() and running_s() < since + QUIET_S:
            fault.meanwhile()
            sleep(0.5)
        return running_s() - since

    fault.begin()
    try:
        fires_s = seconds_until(lambda: fault.alert in shop.prometheus.firing())
    finally:
        fault.end()
    ends_s = seconds_until(lambda: fault.alert not in shop.prometheus.firing())
    wait_for(lambda: not shop.prometheus.firing(), what="quiet", seconds=QUIET_S)
    return fault, fires_s, ends_s
