"""Run one command as a part of a run. It and its children end with this process or before it.

If it ends by itself, it is started again where that is asked for, as systemd does for the units.

honcho and ``scratch.py`` start each part through this wrapper, because neither tracks a part's own
children. It adopts the processes that the command abandons (it is a subreaper), kills them at the
end, and gets a signal from the kernel when its parent dies (even by ``kill -9``).
"""

import argparse
import ctypes
import fcntl
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LONGEST_WAIT_FOR_OTHERS = 12  # seconds: a little more than the grace of the others
PAUSE_S = 1.0  # before it is started again
MOST_STARTS, WITHIN_S = 5, 10.0  # then it does not run at all

libc = ctypes.CDLL(None)


def main() -> int:
    arguments = parse_arguments()
    # From here on SIGTERM stays pending until awaited, so it cannot come between two steps.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    die_with_parent(signal.SIGTERM)
    give_way(arguments.nice)
    held = [path.open("w") for path in arguments.hold]
    for lock in held:
        fcntl.flock(lock, fcntl.LOCK_SH)
    while arguments.once and not arguments.once.exists():
        if is_asked_to_end(0.1):
            return 0
    try:
        return run(arguments)
    finally:
        kill_children()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hold", type=Path, action="append", default=[], help="share this lock")
    parser.add_argument("--after", type=Path, help="stop only when nobody holds this lock")
    parser.add_argument("--once", type=Path, help="start only once this file exists")
    parser.add_argument("--again-once", type=Path, help="start it again if this file exists")
    parser.add_argument("--stop", default="SIGTERM", help="the signal that the command ends by")
    parser.add_argument("--grace", type=float, default=10, help="seconds until it is killed")
    parser.add_argument("--may-end", action="store_true", help="its end is no fault")
    parser.add_argument("--nice", type=int, default=0, help="how far it gives way to other parts")
    parser.add_argument("name")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="or in PART_COMMAND")
    arguments = parser.parse_args()
    arguments.command = arguments.command or shlex.split(os.environ.pop("PART_COMMAND"))
    return arguments


def give_way(nice: int) -> None:
    """Let other parts go first. Each is a session, and most kernels share among sessions."""
    os.nice(nice)  # for containers and the other kernels
    with suppress(OSError):
        for _ in range(nice and 50):
            with suppress(BlockingIOError):  # from ordinary users it takes ten of these a second
                Path("/proc/self/autogroup").write_text(str(nice))
                return
            time.sleep(0.1)


def run(arguments: argparse.Namespace) -> int:
    """Run the command to its end, also that of a later start, and return its exit status."""
    starts: deque[float] = deque(maxlen=MOST_STARTS)
    while True:
        starts.append(time.monotonic())
        code, is_asked = run_once(arguments)
        if is_asked or arguments.may_end:
            return code
        is_looping = len(starts) == MOST_STARTS and time.monotonic() - starts[0] < WITHIN_S
        goes_on = arguments.again_once and arguments.again_once.exists() and not is_looping
        say(arguments.name, code, "it is started again" if goes_on else "all stop")
        if not goes_on:
            return code or 1
        kill_children()  # they would hold its port
        until = time.monotonic() + PAUSE_S
        while (left_s := until - time.monotonic()) > 0:
            if is_asked_to_end(left_s):
                return code


def run_once(arguments: argparse.Namespace) -> tuple[int, bool]:
    """Run the command to its end; return its exit status, and whether it was asked to end."""
    stop = signal.Signals[arguments.stop]
    child = subprocess.Popen(
        arguments.command,
        process_group=0,  # its own, because honcho signals the whole group of this process
        preexec_fn=lambda: prepare_child(stop),
    )
    while is_running(child):
        if is_asked_to_end(1):
            if arguments.after:
                wait_for_others(arguments.after)
            child.send_signal(stop)
            with suppress(subprocess.TimeoutExpired):
                return status_of(child.wait(arguments.grace)), True
            return status_of(-signal.SIGKILL), True  # by kill_children
    return status_of(child.returncode), False


def say(name: str, code: int, so: str) -> None:
    with suppress(OSError):  # nobody may be left to read it
        sys.stdout.write(f"{name} ended by itself (exit status {code}), so {so}\n")
        sys.stdout.flush()


def is_running(child: subprocess.Popen[bytes]) -> bool:
    """Return whether the command runs; reap the adopted processes that ended before it."""
    look = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while (ended := os.waitid(os.P_ALL, 0, look)) and ended.si_pid != child.pid:
        os.waitpid(ended.si_pid, 0)
    return child.poll() is None


def prepare_child(stop: signal.Signals) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    die_with_parent(stop)


def die_with_parent(signum: signal.Signals) -> None:
    libc.prctl(PR_SET_PDEATHSIG, signum)


def is_asked_to_end(seconds: float) -> bool:
    """Wait at most this long for a signal; return whether it asks for the end."""
    came = signal.sigtimedwait({signal.SIGTERM, signal.SIGCHLD}, seconds)
    return came is not None and came.si_signo == signal.SIGTERM


def wait_for_others(path: Path) -> None:
    """Wait until the parts that need this one have ended: their locks end with them."""
    deadline = time.monotonic() + LONGEST_WAIT_FOR_OTHERS
    with path.open("w") as lock:
        while time.monotonic() < deadline:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(0.05)


def status_of(code: int) -> int:
    """Return an exit status as a shell reports it."""
    return code if code >= 0 else 128 - code


def kill_children() -> None:
    """Kill all children that are left; this process adopts and then kills theirs."""
    while pids := list(children()):
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)


def children() -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(")")[2].split()[1]
        except OSError:  # it has ended meanwhile
            continue
        if int(parent) == os.getpid():
            yield int(stat.parent.name)


if __name__ == "__main__":
    sys.exit(main())
