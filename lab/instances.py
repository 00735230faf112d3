"""The instances of the shop behind nginx that a crowd race buys from, and of which it kills one.

``script/race --instances`` starts them (``script/lib/instances.py``) and names their description in
the environment.
"""

import http.client
import json
import os
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from lab.steps.step import Answer
from vouchers.inventory.keys import LedgerUnavailable

DESCRIPTION = "SECKILL_LAB_INSTANCES"
"""The variable of the environment that names the description."""

TIMEOUT_S = 30.0

REFUSALS = {"sold_out": Answer.SOLD_OUT, "already_ordered": Answer.ALREADY_ORDERED}
TRY_AGAIN = (429, 503)
NOT_ANSWERED = ("502", "504", "-")
"""What nginx notes of a server that gave no answer."""


class NoInstances(Exception):
    """Nothing has started instances for this race."""


@dataclass(frozen=True)
class Instance:
    """One instance: where nginx sends orders, and the sessions of all its processes."""

    address: str
    sessions: Sequence[int]

    def kill(self) -> None:
        """Kill all processes at once, as a power cut does."""
        while pids := list(self._processes()):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _processes(self) -> Iterator[int]:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended
                state, _, _, session, *_ = stat.read_text().rpartition(")")[2].split()
                if int(session) in self.sessions and state != "Z":
                    yield int(stat.parent.name)


@dataclass(frozen=True)
class Front:
    """nginx before the instances; its log says which of them answered what."""

    url: str
    log: str
    instances: Sequence[Instance]

    @classmethod
    def started(cls) -> "Front":
        """Return what was started for this race.

        :raises NoInstances: nothing was.
        """
        if not (path := os.environ.get(DESCRIPTION)):
            raise NoInstances("--instances wants instances behind nginx: script/race starts them")
        found = json.loads(Path(path).read_text())
        return cls(found["url"], found["log"], [Instance(**it) for it in found["instances"]])

    def buy(self, *, sale_id: int, user_id: int, token: str) -> Answer:
        """Press the button of the page: send an order request through nginx.

        :raises LedgerUnavailable: no answer; press again with the same token, as the page does.
        """
        nginx = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=TIMEOUT_S)
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        # Each buyer has an address of its own, so nginx limits each alone.
        headers["Race-Buyer"] = ".".join(map(str, (10, *(user_id % 2**24).to_bytes(3))))
        try:
            path = f"/vouchers/{sale_id}/orders/"
            nginx.request("POST", path, json.dumps({"token": token}), headers)
            with nginx.getresponse() as response:
                status, body = response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException) as error:
            raise LedgerUnavailable(f"no answer through nginx: {error!r}") from error
        finally:
            nginx.close()
        if status == http.client.ACCEPTED:
            return Answer.QUEUED
        return Answer.BUSY if status in TRY_AGAIN else REFUSALS[body["code"]]

    def answered(self, sale_id: int) -> tuple[list[int], int]:
        """Return how many order requests of a sale each instance answered, by nginx's log.

        And how many had been sent to another one before, which gave no answer.
        """
        counts, sent_on = dict.fromkeys((it.address for it in self.instances), 0), 0
        for line in Path(self.log).read_text().splitlines():
            addresses, statuses, _, request = line.split("|", 3)
            if f" /vouchers/{sale_id}/orders/ " not in request:
                continue
            *before, last = re.split(" : |, ", addresses)
            if re.split(" : |, ", statuses)[-1] not in NOT_ANSWERED and last in counts:
                counts[last] += 1
                sent_on += bool(before)
        return list(counts.values()), sent_on
