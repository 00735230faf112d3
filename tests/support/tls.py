"""A certificate that a test makes, and requests over TLS by a client that is not ours."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

SHOP = "shop.example"


def make_certificate(directory: Path) -> Path:
    """Make a certificate of the shop's name, with its key beside it, and return its path."""
    path = directory / f"{SHOP}.pem"
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", f"/CN={SHOP}"]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-addext", f"subjectAltName=DNS:{SHOP}"]
    command += ["-keyout", str(path.with_suffix(".key")), "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


class Request(NamedTuple):
    """A request: its path, further lines of a configuration of curl, and a file for its answer."""

    path: str
    lines: Sequence[str] = ()
    answer: str = "/dev/null"


class Said(NamedTuple):
    """What curl says of an answer; the status is 000 if there was none."""

    status: str
    version: str
    seconds: str


def curl(
    port: int, requests: Sequence[Request], *, version: str, certificate: Path, rate: str = "1000/s"
) -> list[Said]:
    """Send requests to an nginx one after the other, on a connection that they share."""
    own = [f'cacert = "{certificate}"', f'resolve = "{SHOP}:{port}:127.0.0.1"', 'noproxy = "*"']
    own += ["silent", f"http{version}", "max-time = 60"]
    own += [r'write-out = "%{response_code} %{http_version} %{time_total}\n"']
    url = f"https://{SHOP}:{port}"
    sections = [
        "\n".join([f'url = "{url}{it.path}"', f'output = "{it.answer}"', *own, *it.lines])
        for it in requests
    ]
    done = subprocess.run(
        ["curl", "--rate", rate, "--config", "-"],
        input="\nnext\n".join(sections),
        capture_output=True,
        text=True,
        check=False,
    )
    said = [Said(*line.split()) for line in done.stdout.splitlines()]
    assert len(said) == len(requests), done.stderr
    return said
