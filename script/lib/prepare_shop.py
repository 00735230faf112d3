"""Bring the embedded shop's data up to date and become its worker.

Loading Django takes most of the time, so it is loaded once: a fork prepares tables, static files
and demo, so the memory it needs goes with it. If no migration and no static file has changed,
these are not collected again, and the web server loads meanwhile.

Usage: prepare_shop.py FILE ACCOUNTS -m MODULE...; creates FILE when everything is ready, and goes
on as ``python -m MODULE...``. A worker that is started again finds FILE there, and only works.
ACCOUNTS gets the demo's accounts, and ``embedded.py`` removes it when it has shown the passwords.
"""

import gc
import json
import os
import runpy
import shutil
import sys
from pathlib import Path

import django
from django.core.management import CommandError, call_command
from django.db import OperationalError
from embedded import ROOT, is_current, state_of_clone
from servers import CannotRun, wait_for, write_private

sys.path.insert(0, str(ROOT))


def main(done: Path, accounts: Path, command: list[str]) -> None:
    if done.exists():
        os.execv(sys.executable, [sys.executable, "-m", *command])
    django.setup()
    child = os.fork()
    if child == 0:
        prepare(accounts)
        return
    if status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        sys.exit(status)
    done.touch()
    sys.argv = command
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)


def prepare(accounts: Path) -> None:
    is_new = not is_current(accounts.parent)

    def begin(step: int, what: str) -> None:
        if is_new:  # it takes some seconds
            sys.stdout.write(f"[{'#' * step}{'.' * (4 - step)}] {what} ...\n")

    begin(1, "static files")
    if is_new:
        shutil.rmtree(os.environ["STATIC_ROOT"], ignore_errors=True)
        call_command("collectstatic", interactive=False, verbosity=0)
    wait_for(os.environ["REDIS_URL"], os.environ["DATABASE_URL"])
    begin(2, "tables")
    gc.disable()  # migrations make and drop so many classes that it took a fifth of their time
    call_command("migrate", interactive=False, verbosity=0)
    begin(3, "roles")
    call_command("make_roles", verbosity=0, skip_checks=False)
    begin(4, "demo")
    prepare_demo(accounts)
    accounts.with_name("state").write_text(state_of_clone())


def prepare_demo(accounts: Path) -> None:
    """Make the demo or renew it, and write its accounts with the passwords nobody has seen yet."""
    from django.utils import timezone

    from backoffice.demo.service import demo_accounts, make_demo, set_demo_face

    set_demo_face()
    made = make_demo(now=timezone.now().replace(microsecond=0))
    if made is None:
        call_command("demo", renew=True)
    known = json.loads(accounts.read_text()) if accounts.exists() else {}
    unseen = made.passwords if made else known
    names = {name: unseen.get(name) for name in demo_accounts()}
    write_private(accounts, json.dumps(names))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[4:])
    except (CannotRun, CommandError, OperationalError, OSError) as reason:
        sys.exit(str(reason))
