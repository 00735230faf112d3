"""Look up known vulnerabilities of the locked packages, where PyPI's advisories can be reached.

Exit with 1 only if there is one that ``ignored-advisories.txt`` does not name.
"""

import argparse
import json
import subprocess
import sys
import urllib.request
from http.client import HTTPException
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IGNORED = Path(__file__).with_name("ignored-advisories.txt")
ADVISORIES = "https://pypi.org/pypi/django/3.0/json"
"""A release with known vulnerabilities: a mirror may answer with packages and no advisories."""

ANSWER_S, LOOK_UP_S = 3, 60


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lock", type=Path, default=ROOT / "requirements.lock")
    parser.add_argument("--advisories", default=ADVISORIES, help="address to try first")
    options = parser.parse_args()
    if not can_reach(options.advisories):
        say("left out: the advisories of PyPI cannot be reached")
        return 0
    command = [
        *(sys.executable, "-m", "pip_audit", "--requirement", str(options.lock)),
        *("--require-hashes", "--disable-pip", "--progress-spinner", "off", "--timeout", "5"),
        *(f"--ignore-vuln={it}" for it in ignored(IGNORED.read_text())),
        *("--format", "json"),
    ]
    try:
        said = subprocess.run(
            command, capture_output=True, text=True, timeout=LOOK_UP_S, check=False
        )
    except subprocess.TimeoutExpired:
        say(f"left out: the look-up took more than {LOOK_UP_S} s")
        return 0
    if not said.stdout:  # it prints results or nothing; an error is no vulnerability
        say(f"left out: {said.stderr.strip()[-500:]}")
        return 0
    return report(json.loads(said.stdout))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def can_reach(url: str) -> bool:
    """Return whether the advisories of a release that has some are there."""
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
            return bool(json.load(answer).get("vulnerabilities"))
    except (OSError, ValueError, HTTPException):
        return False


def ignored(text: str) -> list[str]:
    """Return the advisories that the list names.

    :raises ValueError: one has no reason.
    """
    lines = [it.split(maxsplit=1) for it in text.splitlines() if it and not it.startswith("#")]
    for line in lines:
        if len(line) < 2:
            raise ValueError(f"{line[0]} is ignored without a reason")
    return [line[0] for line in lines]


def report(advisories: dict[str, list[dict[str, object]]]) -> int:
    """Print the vulnerabilities; return the exit status."""
    packages = advisories["dependencies"]
    vulnerable = [it for it in packages if it.get("vulns")]
    for package in vulnerable:
        for advisory in package["vulns"]:  # type: ignore[attr-defined]
            fixed = ", ".join(advisory["fix_versions"]) or "no release"
            say(f"{package['name']} {package['version']}: {advisory['id']}, fixed in {fixed}")
    say(f"{len(vulnerable)} of {len(packages)} packages have a known vulnerability")
    return int(bool(vulnerable))


if __name__ == "__main__":
    sys.exit(main())
