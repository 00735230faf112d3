"""A stand-in for ``docker compose`` where no container engine runs, and a visit to its shop.

It starts the services of ``compose.yaml`` in the order that they ask for. Those of the shop run in
the image's root file system: with the image's user, environment, entry point and health check, and
with what the service says of volumes, temporary file systems and rights. The servers of others are
Debian's programs with the options of their service. All share the network of this session, in which
each name is a loopback address, so the session needs a network of its own.

Usage: compose.py FILE IMAGE ROOT DIRECTORY; prints what it found as JSON.
"""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "script" / "lib"))

from servers import MariaDB  # noqa: E402

BUYER = ROOT / "tests/operations/first_install/buyer.py"
START_S = 240
VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}|\$(\$)")


def interpolated(text):
    """Fill in the variables of a Compose file: their defaults, because nothing sets them."""
    return VARIABLE.sub(lambda it: it[3] or os.environ.get(it[1], it[2]), text)


def until(condition, what):
    deadline = time.monotonic() + START_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"waited in vain: {what}")
        time.sleep(0.1)


class Shop:
    """The services of a Compose file."""

    def __init__(self, file, image, root, directory):
        self.services = yaml.safe_load(interpolated(file.read_text()))["services"]
        self.image, self.root, self.directory = image, root, directory
        self.processes = {}
        others = [name for name, it in self.services.items() if "build" not in it]
        self.addresses = {name: f"127.0.1.{number}" for number, name in enumerate(others, 1)}
        own = [name for name in self.services if name not in others]
        hosts = [f"127.0.0.1 localhost {' '.join(own)}"]
        hosts += [f"{address} {name}" for name, address in self.addresses.items()]
        (directory / "hosts").write_text("\n".join([*hosts, ""]))

    def up(self):
        """Start every service once what it depends on is as it asks for."""
        waiting = list(self.services)
        while waiting:
            name = next(it for it in waiting if not self._missing(it, waiting))
            waiting.remove(name)
            for other, it in self.services[name].get("depends_on", {}).items():
                self._wait(other, it["condition"])
            self.start(name)
        for name in self.services:
            if name != "prepare":
                self._wait(name, "service_healthy")

    def _missing(self, name, waiting):
        return set(self.services[name].get("depends_on", {})) & set(waiting)

    def start(self, name):
        if name in self.addresses:
            self.processes[name] = self._start_server(name)
            return
        service, config = self.services[name], self.image
        entrypoint = service.get("entrypoint", config["Entrypoint"])
        words = [*entrypoint, *service.get("command", config["Cmd"])]
        how = self._container(name, words)
        self.processes[name] = subprocess.Popen(**how, **self._log(name))

    def _log(self, name):
        log = (self.directory / f"{name}.log").open("ab")
        return {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}

    def _start_server(self, name):
        service, address = self.services[name], self.addresses[name]
        place = self.directory / name
        place.mkdir(exist_ok=True)
        command = service["command"]
        if "mariadb" in service["image"]:
            user, password, database = (
                service["environment"][f"MARIADB_{it}"] for it in ("USER", "PASSWORD", "DATABASE")
            )
            options = [*command, "--skip-networking=0", f"--bind-address={address}"]
            server = MariaDB(place, options=options)
            server.grants = (
                f"CREATE USER {user}@'%' IDENTIFIED BY '{password}';\n"
                f"GRANT ALL ON {database}.* TO {user}@'%';\n"
            )
            command = server.prepare()
        else:
            command = [*command, "--bind", address]
        return subprocess.Popen(command, cwd=place, **self._log(name))

    def _container(self, name, words):
        """Return how a command runs in a container of its own, as arguments of Popen."""
        service, config = self.services[name], self.image
        user, group = config["User"].split(":")
        given = ["--reuid", user, "--regid", group, "--clear-groups"]
        if "ALL" in service.get("cap_drop", []):
            given += ["--inh-caps=-all", "--bounding-set=-all"]
        if "no-new-privileges:true" in service.get("security_opt", []):
            given += ["--no-new-privs"]
        inside = ["set -e", *self._mounts(service), f'exec chroot {self.root} "$@"']
        names = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        within = ["setpriv", *given, "env", f"--chdir={config['WorkingDir']}", *words]
        return {
            "args": [*names, "sh", "-c", "\n".join(inside), name, *within],
            "env": dict(it.split("=", 1) for it in config["Env"]) | service["environment"],
        }

    def _mounts(self, service):
        root = self.root
        yield f"mount --bind {root} {root}"
        if service.get("read_only"):
            yield f"mount -o remount,bind,ro {root}"
        yield f"mount -t proc proc {root}/proc"
        yield f"mount --rbind /dev {root}/dev"
        yield f"mount --bind {self.directory}/hosts {root}/etc/hosts"
        for path in service.get("tmpfs", []):  # root's, with the mode of what it hides
            mode = stat.S_IMODE(Path(f"{root}{path}").stat().st_mode)
            yield f"mount -t tmpfs -o mode={mode:o} tmpfs {root}{path}"
        for volume in service.get("volumes", []):
            name, path, *read_only = volume.split(":")
            kept = self.directory / f"volume-{name}"
            if not kept.exists():  # an empty volume takes over what the image has there
                subprocess.run(["cp", "--archive", f"{root}{path}", kept], check=True)
            yield f"mount --bind {kept} {root}{path}"
            if read_only:
                yield f"mount -o remount,bind,ro {root}{path}"

    def _wait(self, name, condition):
        process = self.processes[name]
        if condition == "service_completed_successfully":
            until(lambda: process.poll() is not None, f"{name} ends")
            if process.returncode:
                self.give_up(name)
        elif condition == "service_healthy":
            until(lambda: self.is_healthy(name) or self._has_ended(name), f"{name} is healthy")

    def _has_ended(self, name):
        return self.processes[name].poll() is not None and self.give_up(name)

    def give_up(self, name):
        log = (self.directory / f"{name}.log").read_text(errors="replace")
        sys.exit(f"{name} ended:\n{log[-6000:]}")

    def is_healthy(self, name):
        if name in self.addresses:
            port = 3306 if "mariadb" in self.services[name]["image"] else 6379
            with socket.socket() as connection:
                return connection.connect_ex((self.addresses[name], port)) == 0
        check = self.services[name].get("healthcheck") or self.image["Healthcheck"]
        if check.get("disable"):
            return self.processes[name].poll() is None
        return self.run(name, *check["Test"][1:]).returncode == 0

    def run(self, name, *words):
        """Run a command beside a service; return what it said."""
        how = self._container(name, words)
        return subprocess.run(**how, capture_output=True, text=True, check=False)

    def stop(self):
        """Stop the shop's processes politely; return the exit status of each."""
        own = {it: self.processes[it] for it in self.processes if it not in self.addresses}
        for process in own.values():
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            if process.poll() is None:
                os.kill(int(children.read_text()), signal.SIGTERM)
        return {name: process.wait(timeout=START_S) for name, process in own.items()}


RIGHTS = """
echo "user $(id -u)"
awk '/NoNewPrivs|CapBnd/ { print $1, $2 }' /proc/self/status
awk '$2 == "/" { print "root", substr($4, 1, 2) }' /proc/self/mounts
touch /var/lib/seckill/key 2>&1 | grep -o 'Read-only file system'
"""


def answer_of(url):
    """Return the status and the headers of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers


def without_ledger(shop, url, sale):
    """Take the ledger away; return what the probes and buyers are told until it is back."""
    shop.processes["ledger"].kill()
    until(lambda: answer_of(f"{url}/readyz")[0] == 503, "the shop is not ready")
    status, headers = answer_of(f"{url}/vouchers/{sale}/live/")
    found = [shop.is_healthy("web"), status, "Retry-After" in headers]
    shop.start("ledger")
    until(lambda: answer_of(f"{url}/readyz")[0] == 200, "the shop is ready again")
    return found


def visit(shop):
    """Sell a voucher of a new sale; return what was found."""
    shop.up()
    made = shop.run("web", *shop.image["Entrypoint"], "create_sale", *CAKE)
    if made.returncode:
        sys.exit(made.stderr)
    sale = made.stdout.split()[-1]
    url = shop.services["web"]["environment"]["SECKILL_SITE_URL"]
    buyer = [sys.executable, str(BUYER), "buy", sale]
    bought = subprocess.run(
        buyer, env={**os.environ, "SHOP": url}, capture_output=True, text=True, check=False
    )
    if bought.returncode:
        sys.exit(bought.stderr)
    unsafe = shop.run("web", "env", "SECKILL_SITE_URL=", *shop.image["Entrypoint"], "web")
    rights = shop.run("web", "bash", "-c", RIGHTS).stdout.splitlines()
    return {
        "receipt": json.loads(bought.stdout),
        "ready": answer_of(f"{url}/readyz")[0],
        "without_ledger": without_ledger(shop, url, sale),
        "rights": rights,
        "accounts": (shop.directory / "prepare.log").read_text(),
        "unsafe": unsafe.stderr,
        "statuses": shop.stop(),
    }


CAKE = ("--title", "Cake", "--stock", "1", "--begins-in", "0", "--ends-in", "3600")

if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    compose, image, root, directory = map(Path, sys.argv[1:])
    config = json.loads(image.read_text())
    sys.stdout.write(json.dumps(visit(Shop(compose, config, root, directory))))
