"""The files in which processes count, summed by whoever shows them.

Note [Room for counts]
~~~~~~~~~~~~~~~~~~~~~~
Counting must never stop a process or refuse an order. Each process counts in files of its own,
which it maps into its memory. If a mapped file has holes and the disk is full, the next count ends
the process: SIGBUS, which no ``except`` catches. So a file gets all its blocks before it is mapped.
A process whose directory has no room for them, or cannot be written to, counts in memory, and
shows its own counts alone. If only its child finds no room, the child counts in its files, too:
some of those counts overwrite each other. ``docs/adr/0051`` says what becomes of ended processes.
"""

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.multiprocess import MultiProcessCollector

FILE_BYTES = 128 * 1024
"""The size of a file of counts: several times what all of them take, so that none has to grow."""

KINDS = ("counter", "histogram")


class CountFiles:
    """The files of this process: Note [Room for counts]."""

    def __init__(self, directory: Path) -> None:
        """Make them.

        :raises OSError: there is no room, or no such directory.
        """
        self.directory, self._owner = directory, 0
        self._make_room()

    def owner(self) -> int:
        """Return whose files this process counts in: its own, or without room its parent's."""
        if self._owner != os.getpid():
            with suppress(OSError):
                self._make_room()
        return self._owner

    def _make_room(self) -> None:
        paths = [self.directory / f"{kind}_{os.getpid()}.db" for kind in KINDS]
        try:
            for path in paths:
                _allocate(path)
        except OSError:
            for path in paths:  # an empty one could not be read
                with suppress(OSError):
                    path.unlink()
            raise
        self._owner = os.getpid()
        with suppress(Exception), (self.directory / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            sum_ended(self.directory)  # or else the next process does


def _allocate(path: Path) -> None:
    with path.open("ab") as file:
        os.posix_fallocate(file.fileno(), 0, FILE_BYTES)


def sum_ended(directory: Path) -> None:
    """Add the files of ended processes to those of process 0."""
    for kind in KINDS:
        total, new = directory / f"{kind}_0.db", directory / f"{kind}.new"
        ended = [it for it in directory.glob(f"{kind}_*.db") if not _lives(it)]
        if len(ended) < 2:
            continue
        new.unlink(missing_ok=True)
        _allocate(new)
        file = MmapedDict(str(new))  # type: ignore[no-untyped-call]
        paths = map(str, ended)
        for metric in MultiProcessCollector.merge(paths, accumulate=False):  # type: ignore[no-untyped-call]
            for it in metric.samples:
                labels = list(it.labels), list(it.labels.values())
                key = mmap_key(metric.name, it.name, *labels, metric.documentation)
                file.write_value(key, it.value, 0.0)  # type: ignore[no-untyped-call]
        file.close()  # type: ignore[no-untyped-call]
        new.replace(total)
        for path in set(ended) - {total}:
            path.unlink()


def _lives(path: Path) -> bool:
    pid = int(path.stem.rpartition("_")[2])
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return pid > 0


def counts_in(directory: Path) -> Iterable[Metric]:
    """Return the counts of all processes of a directory, ended ones included.

    :raises Exception: the directory or a file in it cannot be read.
    """
    collector = MultiProcessCollector(None, str(directory))  # type: ignore[no-untyped-call]
    before, found = set[Path](), list[Metric]()
    while before != (before := set(directory.glob("*.db"))):  # none was added to another meanwhile
        with suppress(FileNotFoundError):
            found = list(collector.collect())  # type: ignore[no-untyped-call]
    return found
