"""The instances of the shop behind nginx of a crowd race, which kills one of them.

``script/race --instances`` starts them (``script/lib/instances.py``).
"""

import json
import os
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from glob import iglob
from itertools import chain
from pathlib import Path
from typing import Any, Self

from backoffice.rehearsal.http_client import NO_ANSWER, Address, send_all
from lab.steps.step import Answer
from vouchers.inventory.keys import LedgerUnavailable

DESCRIPTION = "SECKILL_LAB_INSTANCES"
REFUSALS = {"sold_out": Answer.SOLD_OUT, "already_ordered": Answer.ALREADY_ORDERED}


def are_described() -> bool:
    """Say whether instances are running: ``script/race`` starts and describes them."""
    return DESCRIPTION in os.environ


@dataclass(frozen=True)
class Front:
    """nginx: its URL, its log, and the sessions of each instance by where it answers orders."""

    url: str
    log: str
    instances: Mapping[str, Sequence[int]]

    @classmethod
    def started(cls) -> Self:
        """Return what was started for this race, which the environment names."""
        return cls(**json.loads(Path(os.environ[DESCRIPTION]).read_text()))

    def buy(self, *, sale_id: int, user_id: int, token: str) -> Answer:
        """Press the button of the page, from an address of the buyer's own.

        :raises LedgerUnavailable: no answer; press again with the same token, as the page does.
        """
        nginx, path = Address.of(self.url), f"/vouchers/{sale_id}/orders/"
        buyer = {"Race-Buyer": ".".join(map(str, (10, *(user_id % 2**24).to_bytes(3))))}
        press = nginx.request("POST", path, {"token": token}, buyer)
        answer = send_all([press], address=nginx, connections=1, timeout_s=30)[0]
        if answer.status == NO_ANSWER:
            raise LedgerUnavailable(f"no answer: {answer.body}")
        is_accepted = answer.status == 202
        return Answer.QUEUED if is_accepted else REFUSALS.get(answer.body["code"], Answer.BUSY)

    def kill_first(self) -> None:
        """Kill all processes of the first instance, as a power cut does."""
        sessions, processes = next(iter(self.instances.values())), "/proc/[0-9]*"
        for path in chain(iglob(processes), iglob(processes)):  # one may be forked meanwhile
            with suppress(ProcessLookupError):
                if os.getsid(pid := int(path.rpartition("/")[2])) in sessions:
                    os.kill(pid, signal.SIGKILL)

    def figures(self, sale_id: int) -> dict[str, Any]:
        """Return what nginx's log says, for a verdict."""
        lines = [it.split() for it in Path(self.log).read_text().splitlines()]
        presses = [it[:2] for it in lines if it[-2] == f"/vouchers/{sale_id}/orders/"]
        counts = Counter(answered_by for answered_by, _ in presses)
        sent_on = sum(is_sent_on == "1" for _, is_sent_on in presses)
        return {"answered": [counts[it] for it in self.instances], "sent_on": sent_on}
