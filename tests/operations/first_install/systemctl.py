#!/usr/bin/python3
"""A stand-in for systemctl where no systemd runs: it starts what the unit files say, by hand.

Of a unit it knows what ``deploy/`` and Debian's packages use: drop-ins, templates, environment,
user, runtime directories, ``ExecStartPre``, ``ExecStart`` and the message that a service is ready.
A unit that does not start is an error, and the command's exit status 1.
"""

import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

PLACES = [Path("/etc/systemd/system"), Path("/lib/systemd/system")]
PIDS, LOGS = Path("/run/units"), Path("/var/log/units")
START_S = 120
TEMPORARY = re.compile(r"^[dD]\s+(/run/\S+)\s+(\d+)\s+(\w+)\s+(\w+)", re.MULTILINE)
LITERAL = re.compile(r"([A-Za-z_]\w*)=('[^']*'|[^\s'\"\\]*)", re.ASCII)


def read_unit(name):
    """Return the settings of a unit and its drop-ins: name -> values."""
    base, _, instance = name.removesuffix(".service").partition("@")
    names = [f"{base}@{instance}.service"] if "@" in name else [f"{base}.service"]
    if instance:
        names.insert(0, f"{base}@.service")
    files = [place / it for it in names for place in PLACES if (place / it).is_file()][:1]
    if not files:
        sys.exit(f"Unit {name} not found.")
    for it in names:
        for place in PLACES:
            files += sorted((place / f"{it}.d").glob("*.conf"))
    found: defaultdict[str, list[str]] = defaultdict(list)
    for file in files:
        for line in file.read_text().replace("\\\n", " ").splitlines():
            key, sign, value = line.partition("=")
            if sign and not line.startswith(("#", ";")):
                value = value.replace("%%", "\0").replace("%i", instance).replace("\0", "%")
                found[key] = [*found[key], value] if value else []
    return found


def environment_of(unit):
    """Return the variables of a unit, as systemd reads them."""
    environ = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    for value in unit["Environment"]:
        for word in shlex.split(value):
            name, _, environ[name] = word.partition("=")
    for value in unit["EnvironmentFile"]:
        file = Path(value.lstrip("-"))
        if value.startswith("-") and not file.exists():
            continue
        for line in file.read_text().splitlines():
            if line.strip() and not line.startswith(("#", ";")):
                match = LITERAL.fullmatch(line.strip())
                if not match:
                    sys.exit(f"{file}: a line that this stand-in cannot read")
                environ[match[1]] = match[2].strip("'")
    return environ


def start(name):
    """Start a unit, and wait until it says that it is ready, if it is of that type."""
    unit = read_unit(name)
    environ = environment_of(unit)
    user = pwd.getpwnam(unit["User"][-1]) if unit["User"] else pwd.getpwuid(0)
    environ.update(HOME=user.pw_dir, USER=user.pw_name, LOGNAME=user.pw_name)
    make_directories(unit, user)
    how = manner_of(name, unit, environ, user)
    for command in unit["ExecStartPre"]:
        done = subprocess.run(words_of(command, environ), check=False, **how)
        if done.returncode and not command.startswith("-"):
            failed(name)
    kind = (unit["Type"] or ["simple"])[-1]
    (command,) = unit["ExecStart"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        if kind == "notify":
            address = f"{PIDS}/{name}.ready"
            Path(address).unlink(missing_ok=True)
            ready.bind(address)
            os.chmod(address, 0o777)
            environ["NOTIFY_SOCKET"] = address
        process = subprocess.Popen(words_of(command, environ), **how)
        (PIDS / f"{name}.pid").write_text(str(process.pid))
        if (kind == "notify" and not is_ready(process, ready)) or (
            kind == "forking" and process.wait(START_S)
        ):
            failed(name)


def manner_of(name, unit, environ, user):
    """Return how a process of a unit runs: the arguments of Popen."""
    for directory in (PIDS, LOGS):
        directory.mkdir(exist_ok=True)
    log = (LOGS / f"{name}.log").open("ab")
    return {
        "cwd": (unit["WorkingDirectory"] or ["/"])[-1],
        "env": environ,
        "stdin": subprocess.DEVNULL,
        "stdout": log,
        "stderr": log,
        "start_new_session": True,
        "user": user.pw_uid,
        "group": user.pw_gid,
        "extra_groups": os.getgrouplist(user.pw_name, user.pw_gid),
    }


def is_ready(process, ready):
    """Wait until a process says that it is ready; return False if it ended or takes too long."""
    ready.settimeout(0.2)
    until = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < until:
        try:
            if b"READY=1" in ready.recv(4096):
                return True
        except TimeoutError:
            continue
    return False


def make_directories(unit, user):
    for name in " ".join(unit["RuntimeDirectory"]).split():
        Path("/run", name).mkdir(parents=True, exist_ok=True)
        shutil.chown(Path("/run", name), user.pw_uid, user.pw_gid)
    for file in Path("/usr/lib/tmpfiles.d").glob("*.conf"):
        for path, *owner in TEMPORARY.findall(file.read_text()):
            if owner[1] == user.pw_name:
                Path(path).mkdir(exist_ok=True)
                shutil.chown(path, owner[1], owner[2])
                os.chmod(path, int(owner[0], 8))


def words_of(command, environ):
    filled = re.sub(r"\$\{(\w+)\}", lambda it: environ.get(it[1], ""), command.lstrip("-+!"))
    words = shlex.split(filled)
    whole = {f"${name}": shlex.split(value) for name, value in environ.items()}
    return [part for word in words for part in whole.get(word, [word])]


def failed(name):
    sys.stderr.write((LOGS / f"{name}.log").read_text(errors="replace")[-4000:])
    sys.exit(f"Job for {name} failed.")


def stop(name):
    pid = PIDS / f"{name}.pid"
    if not pid.exists():
        return
    number = int(pid.read_text())
    pid.unlink()
    try:
        os.kill(number, signal.SIGTERM)
        while Path(f"/proc/{number}/cmdline").read_bytes():  # empty once it is a zombie
            time.sleep(0.05)
    except (ProcessLookupError, FileNotFoundError):
        pass
    for directory in " ".join(read_unit(name)["RuntimeDirectory"]).split():
        shutil.rmtree(Path("/run", directory), ignore_errors=True)


def list_units(pattern):
    """Return the lines of the units that run."""
    running = [it.stem for it in sorted(PIDS.glob(f"{pattern}.pid"))]
    return [f"{it}.service loaded active running\n" for it in running]


def show(name):
    """Return the number of a unit's main process, the only property that is asked for."""
    return (PIDS / f"{name}.pid").read_text()


QUERIES = {"list-units": list_units, "show": show, "is-active": show}


def main():
    options = [it for it in sys.argv[1:] if it.startswith("--")]
    verb, *names = [it for it in sys.argv[1:] if not it.startswith("--")]
    names = [it.removesuffix(".service") for it in names]
    if verb in QUERIES:
        sys.stdout.writelines(QUERIES[verb](names[-1]))
        return
    if verb in ("daemon-reload", "set-property", "set-environment", "unset-environment"):
        return
    for name in names:
        read_unit(name)
        if verb in ("stop", "restart") or (verb == "disable" and "--now" in options):
            stop(name)
        if verb in ("start", "restart") or (verb == "enable" and "--now" in options):
            start(name)


main()
