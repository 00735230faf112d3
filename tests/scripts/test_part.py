"""The wrapper of ``script/lib/part.py``: what a part runs with."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.faults.private import script_library

PR_CAPBSET_DROP, CAP_SYS_ADMIN = 24, 21
SAY = """
import os, pathlib
group = pathlib.Path("/proc/self/autogroup")
print(os.nice(0), group.read_text().split()[-1] if group.exists() else "")
"""
ENABLED = Path("/proc/sys/kernel/sched_autogroup_enabled")


def drop_privilege() -> None:
    """Be treated as an ordinary user by the kernel, which limits how often they may ask."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN)


def test_parts_that_start_together_all_give_way() -> None:
    servers = script_library("servers")
    _, level = servers.BEHIND
    command, popen = [sys.executable, "-c", SAY], {"stdout": subprocess.PIPE, "text": True}
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                servers.part(
                    "some", command, *options, "--may-end", preexec_fn=drop_privilege, **popen
                )
            )
            for options in ((), servers.BEHIND, servers.BEHIND, servers.BEHIND)
        ]
        usual, *behind = [it.communicate()[0].split() for it in started]

    own, has_groups = os.nice(0), ENABLED.exists()
    assert usual == ([str(own), "0"] if has_groups else [str(own)])
    lower = str(min(19, own + int(level)))
    assert behind == [[lower, level] if has_groups else [lower]] * 3
