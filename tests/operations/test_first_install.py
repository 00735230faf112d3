"""The first chapter of ``deploy/README.md``, typed as it stands on a bare Debian 12.

``mmdebstrap`` makes the system, whose packages are kept in ``.run`` for further runs. A stand-in
for systemctl runs the units, because no systemd runs there. The session has processes and a network
of its own, so ports of this machine may be taken and nothing is left behind.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.debian import OWN_NETWORK, Host, as_reached_from_here, bare_debian
from tests.support.stack import ROOT

pytestmark = [
    pytest.mark.operations,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.geteuid() != 0, reason="a root file system is made as root"),
]

HERE = Path(__file__).with_name("first_install")
README = (ROOT / "deploy/README.md").read_text(encoding="utf-8")
CACHE = ROOT / ".run/first-install"
ORIGIN = "https://git.example/seckill.git"

FETCHING = ("Packages", "The program")
"""What is fetched from elsewhere; the rest needs no network."""


def sections(chapter: str) -> dict[str, str]:
    """Return the commands of each section of a chapter."""
    text = re.search(rf"^## {chapter}\n(.*?)(?=^## )", README, re.DOTALL | re.MULTILINE)
    assert text
    parts = re.split(r"^### (.*)\n", text[1], flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    return {
        title: "".join(re.findall(r"^```sh\n(.*?)^```$", part, re.DOTALL | re.MULTILINE))
        for title, part in found.items()
    }


COMMANDS = sections("One host")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A Debian with the packages of the chapter, and this checkout at the address it names."""
    kept = CACHE / f"{hashlib.sha256(COMMANDS['Packages'].encode()).hexdigest()[:16]}.tar"
    root = tmp_path_factory.mktemp("host")
    host = Host(root)
    if kept.exists():
        subprocess.run(["tar", "-xf", kept, "-C", root], check=True)
        as_reached_from_here(root)
    else:
        bare_debian(root)
        as_reached_from_here(root)
        host.do(COMMANDS["Packages"])
        CACHE.mkdir(parents=True, exist_ok=True)
        for old in CACHE.glob("*.tar"):
            old.unlink()
        part = kept.with_suffix(".part")
        subprocess.run(
            ["tar", "--exclude=./var/cache/apt/*", "-cf", part, "-C", root, "."], check=True
        )
        part.rename(kept)
    stand_in = root / "usr/local/bin/systemctl"
    stand_in.write_bytes((HERE / "systemctl.py").read_bytes())
    stand_in.chmod(0o755)
    for name in ("buyer.py", "memory.py"):
        (root / "root" / name).write_bytes((HERE / name).read_bytes())
    git = ["git", "-C", str(ROOT)]
    uncommitted = subprocess.run([*git, "stash", "create"], check=True, capture_output=True)
    commit = uncommitted.stdout.decode().strip() or "HEAD"
    copy = root / "root/origin.git"
    subprocess.run(["git", "init", "--quiet", "--bare", "-b", "main", copy], check=True)
    subprocess.run([*git, "push", "--quiet", str(copy), f"{commit}:refs/heads/main"], check=True)
    (root / "etc/gitconfig").write_text(
        f'[url "/root/origin.git"]\n\tinsteadOf = {ORIGIN}\n[safe]\n\tdirectory = *\n'
    )
    yield host
    subprocess.run(["rm", "-rf", "--one-file-system", root], check=True)


def test_every_command_of_one_host_runs_until_a_voucher_is_paid(host: Host) -> None:
    """And a release goes out without a page that fails, and an outage writes no traceback."""
    host.do("".join(COMMANDS[it] for it in FETCHING))

    others = [text for title, text in COMMANDS.items() if title not in (*FETCHING, RELEASE)]
    session = ["cd /srv/seckill", *others, PURCHASE, MEMORY]
    session += [PROBE, COMMANDS[RELEASE], ENOUGH, WITHOUT_STAND_IN, PROBE, RESTART, ENOUGH]
    session += [OUTAGE]
    said = host.do("\n".join(session), network=OWN_NETWORK)
    found = dict(line.split("=", 1) for line in said.splitlines() if line.startswith("FOUND_"))
    sys.stderr.write(f"{found} {PROBED.findall(said)}\n")

    ready, receipt = json.loads(found["FOUND_ready"]), json.loads(found["FOUND_receipt"])
    parts = ("database", "redis", "broker", "orders", "checks")
    assert (ready["ready"], {ready[it] for it in parts}) == (True, {"ok"})
    assert receipt["status"] == "paid"
    assert len(receipt["code"]) == 19
    table = README.partition("### Memory\n")[2].partition("\n###")[0]
    documented = sum(int(it) for it in re.findall(r"\| (\d+) \|$", table, re.MULTILINE))
    assert 0.7 < sum(json.loads(found["FOUND_memory"]).values()) / documented < 1.3
    during_release, control = (json.loads(it) for it in PROBED.findall(said))
    assert set(during_release) <= {"200", "503"}
    assert during_release["200"] > 20
    # None, unless the machine stands still for longer than nginx waits for both ports.
    assert during_release.get("503", 0) < control["503"] / 10
    assert found["FOUND_tracebacks"] == "0"


RELEASE = "A release"

PURCHASE = """
echo '127.0.0.1 localhost shop.example' >/etc/hosts
sale=$(.venv/bin/python manage.py create_sale --title Cake --stock 1 --begins-in 0 --ends-in 3600 |
    tail -n 1)
receipt=$(.venv/bin/python /root/buyer.py buy "$sale")
echo "FOUND_receipt=$receipt"
echo "FOUND_ready=$(curl --silent --header 'Host: shop.example' http://127.0.0.1:8001/readyz)"
"""
MEMORY = """
echo "FOUND_memory=$(.venv/bin/python /root/memory.py)"
"""
PROBE = """
rm -f /root/enough
.venv/bin/python /root/buyer.py look "$sale" >/root/looked &
probe=$!
until test -s /root/looked; do sleep 0.1; done
"""
ENOUGH = """
touch /root/enough
wait $probe
echo "PROBED=$(tail -n 1 /root/looked)"
"""
PROBED = re.compile(r"^PROBED=(.*)$", re.MULTILINE)
WITHOUT_STAND_IN = """
sed -i '/ backup;/d' /etc/nginx/conf.d/seckill.conf
nginx -s reload
"""
RESTART = """
systemctl restart seckill-web@8000
curl --fail --silent --retry 30 --retry-connrefused --retry-delay 1 --header 'Host: shop.example' \
    http://127.0.0.1:8000/healthz
"""
OUTAGE = """
log=/var/log/units/seckill-worker.log
systemctl stop mariadb
until test "$(grep -c 'raised unexpected: .*OperationalError' $log)" -ge 5; do sleep 0.2; done
echo "FOUND_tracebacks=$(grep -c '^Traceback' $log || true)"
"""
