"""A bare Debian 12 in a root file system, made by ``mmdebstrap`` and run without a container."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

CONFIGURED = re.compile(r"PIP_|UV_|SSL_CERT_|(HTTPS?|ALL|NO)_PROXY$", re.IGNORECASE)
"""Variables that say how this machine reaches package indexes."""

OWN_NETWORK = "ip link set lo up && exec"


class Host:
    """A root file system, and what is run in it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, script: str, *, network: str = "exec") -> subprocess.CompletedProcess[str]:
        """Run a script in a session of its own, whose processes end with it."""
        (self.root / "root/session").write_text(script)
        inside = (
            f"mount -t proc proc {self.root}/proc && mount --rbind /dev {self.root}/dev && "
            f"{network} chroot {self.root} /bin/bash -eE -o pipefail /root/session"
        )
        names = ["--net"] if network == OWN_NETWORK else []
        return subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", *names, "sh", "-c", inside],
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
            | {"HOME": "/root", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
            | configured(),
            capture_output=True,
            text=True,
            check=False,
        )

    def do(self, script: str, *, network: str = "exec") -> str:
        """Run a script that has to succeed; return what it printed."""
        done = self.run(script, network=network)
        assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
        return done.stdout


def configured() -> dict[str, str]:
    """Return the variables that say how this machine reaches package indexes."""
    return {name: value for name, value in os.environ.items() if CONFIGURED.match(name)}


def bare_debian(target: Path) -> None:
    """Make a bare Debian 12 that fetches packages as this machine does."""
    known = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    of_debian = re.compile(r"(?<![\w-])bookworm(?![\w-])")
    sources = [str(it) for it in known if it.is_file() and of_debian.search(it.read_text())]
    options = [
        f"--setup-hook=cp {it} $1/etc/apt/apt.conf.d/"
        for it in Path("/etc/apt/apt.conf.d").glob("*")
        if "Proxy" in it.read_text() or "Verify-Peer" in it.read_text()
    ]
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", *options, "bookworm"]
    subprocess.run([*command, str(target), *sources], check=True, capture_output=True)


def as_reached_from_here(root: Path) -> None:
    """Let pip and TLS be configured as on this machine, and forbid packages to start services."""
    for file in (Path("/etc/pip.conf"), *Path("/usr/local/share/ca-certificates").glob("*.crt")):
        if file.exists():
            target = root / file.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    for name in ("resolv.conf", "hosts"):
        (root / "etc" / name).write_bytes((Path("/etc") / name).read_bytes())
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
