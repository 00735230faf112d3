"""Several instances of the shop behind nginx, as ``deploy/`` has them, on one machine.

An instance is what one application machine of ``deploy/`` runs: a web server for what costs
no thread, another for the rest, and a worker. nginx runs ``deploy/nginx.conf`` with other addresses
and paths, and without TLS.
"""

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from servers import ROOT, CannotRun, celery, free_port, granian, part, tail, web_answers

CONFIGURATION = ROOT / "deploy" / "nginx.conf"
ANSWERS = "answers.log"
START_S = 120.0
HEAD = Path(__file__).with_name("nginx_head.conf").read_text()


class Nginx:
    """nginx with that configuration, before the web servers on these ports.

    ``port`` stands for that of TLS, and ``plain`` for port 80. Only with a ``certificate`` does it
    speak TLS; the key is beside it and ends with ``.key``.
    """

    def __init__(
        self,
        directory: Path,
        *,
        orders: Sequence[int],
        rest: Sequence[int],
        certificate: Path | None = None,
    ) -> None:
        self.directory, self._certificate = directory, certificate
        self.port, self.plain = free_port(), free_port()
        self._servers = {"8000": orders, "8001": rest}

    def prepare(self, text: str = "") -> list[str]:
        """Return the command that starts it; ``text`` takes the place of the configuration.

        :raises CannotRun: nginx is not installed.
        """
        program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        if not program:
            raise CannotRun("no nginx: as root, run apt-get install nginx-light")
        self.directory.mkdir(parents=True, exist_ok=True)
        user = "user root;" if os.geteuid() == 0 else ""
        head = HEAD.format(directory=self.directory, user=user, answers=ANSWERS)
        config = self.directory / "nginx.conf"
        config.write_text(f"{head}{self._adapted(text or CONFIGURATION.read_text())}}}\n")
        return [program, "-p", str(self.directory), "-c", str(config)]

    def _adapted(self, text: str) -> str:
        for number, ports in self._servers.items():
            listed = re.compile(rf"(?:^ *server 10\.0\.0\.\d+:{number}\b(.*)\n)+", re.MULTILINE)
            addresses = listed.search(text)
            assert addresses, f"no server for port {number}"
            servers = "".join(f"    server 127.0.0.1:{port}{addresses[1]}\n" for port in ports)
            text = listed.sub(servers, text)
        for own, port in ((443, self.port), (80, self.plain)):
            text = re.sub(rf"\blisten {own}\b", f"listen 127.0.0.1:{port}", text)
        if it := self._certificate:
            text = text.replace("/etc/ssl/shop.example.pem", str(it))
            text = text.replace("/etc/ssl/private/shop.example.key", str(it.with_suffix(".key")))
        else:
            text = re.sub(r"^ *ssl_(certificate|reject).*\n", "", text, flags=re.MULTILINE)
            names = "server_name shop.example 127.0.0.1 localhost;"
            text = text.replace("server_name shop.example;", names).replace(" ssl http2", "")
        text = text.replace("/srv/seckill/deploy", str(ROOT / "deploy"))
        return text.replace("/var/cache/nginx/seckill", f"{self.directory}/cache")


@contextmanager
def instances(count: int, directory: Path, settings: Mapping[str, str]) -> Iterator[Path]:
    """Run so many instances, beat, and nginx before them; yield the file that describes them.

    It has nginx's ``url`` and ``log``, and for each of the ``instances`` the sessions of its
    processes, by the address to which nginx sends orders. A line of the log starts with the address
    that answered (``-``: none did), and 1 if the request had been sent to another one before.

    :raises CannotRun: one of them does not start.
    """
    environ = {
        **os.environ,
        **settings,
        "SECKILL_LOG_LEVEL": "INFO",
        "SECKILL_TRUSTED_PROXIES": "127.0.0.1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore:You're running the worker with superuser privileges",
    }
    commands = celery()
    with ExitStack() as stack:

        def start(name: str, command: Sequence[str], *options: str) -> tuple[Path, int]:
            log = directory / f"{name}.log"
            output = stack.enter_context(log.open("wb"))
            popen = {"cwd": ROOT, "env": environ, "stdout": output, "stderr": output}
            process = part(name, command, "--may-end", *options, **popen)
            return log, stack.enter_context(process).pid

        directory.mkdir()
        webs, logs, sessions = [], [], {}
        for number in range(1, count + 1):
            orders, rest = free_port(), free_port()
            name = f"instance-{number}"
            started = [
                start(f"{name}-orders", [sys.executable, "-m", *granian("127.0.0.1", orders)]),
                start(f"{name}-rest", [sys.executable, "-m", *granian("127.0.0.1", rest)]),
                start(
                    f"{name}-worker",
                    [sys.executable, "-m", *commands["worker"], "--hostname", f"{name}@%h"],
                ),
            ]
            webs.append((orders, rest))
            logs.append(started[-1][0])
            sessions[f"127.0.0.1:{orders}"] = [pid for _, pid in started]
        start("beat", [sys.executable, "-m", *commands["beat"]])
        nginx = Nginx(
            directory / "nginx", orders=[it for it, _ in webs], rest=[it for _, it in webs]
        )
        start("nginx", nginx.prepare(), "--stop", "SIGQUIT")
        ports = [nginx.port, *(port for pair in webs for port in pair)]
        _wait(ports, logs, directory)
        described = directory / "instances.json"
        log = str(nginx.directory / ANSWERS)
        url = f"http://127.0.0.1:{nginx.port}"
        described.write_text(json.dumps({"url": url, "log": log, "instances": sessions}))
        yield described


def _wait(ports: Sequence[int], logs: Sequence[Path], directory: Path) -> None:
    """Wait until all web servers respond and all workers consume."""
    deadline = time.monotonic() + START_S
    while not (all(map(web_answers, ports)) and all(b" ready." in it.read_bytes() for it in logs)):
        if time.monotonic() > deadline:
            ends = [f"{log.name}: {tail(log, 5)}" for log in directory.glob("*.log")]
            raise CannotRun("\n".join(["an instance did not start", *ends]))
        time.sleep(0.05)
