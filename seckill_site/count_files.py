"""The files in which processes count, summed by whoever shows them.

Note [Room for counts]
~~~~~~~~~~~~~~~~~~~~~~
Counting must never stop a process or refuse an order. Each process counts in files of its own,
which it maps into its memory. If a mapped file has holes and the disk is full, the next count ends
the process: SIGBUS, which no ``except`` catches. So a file gets all its blocks before it is mapped.
A process whose directory has no room for them, or cannot be written to, counts in memory, and
shows its own counts alone. If only its child finds no room, the child counts in its files, too:
some of those counts overwrite each other.

Note [Counts of the dead]
~~~~~~~~~~~~~~~~~~~~~~~~~
A counter must not fall when a child process ends, and files must not pile up. So each new process
adds the files of ended ones into one, that of process 0. A reader and this sum lock each other out.
A process that is killed in that very moment leaves some counts twice, never less. There are no
gauges in these files: one of an ended process would stay.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from prometheus_client.core import Metric
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.multiprocess import MultiProcessCollector

FILE_BYTES = 128 * 1024
"""The size of a file of counts: several times what all of them take, so that none has to grow."""

KINDS = ("counter", "histogram")
LOCK = "lock"
READER_WAITS_S = 0.5


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
        with suppress(Exception):  # the next process tries again
            sum_ended(self.directory)


def _allocate(path: Path) -> None:
    with path.open("ab") as file:
        os.posix_fallocate(file.fileno(), 0, FILE_BYTES)


def sum_ended(directory: Path) -> None:
    """Add up the files of ended processes: Note [Counts of the dead]."""
    with _locked(directory, fcntl.LOCK_EX, wait_s=0) as is_alone:
        for kind in KINDS if is_alone else ():
            ended = [it for it in directory.glob(f"{kind}_*.db") if not _lives(it)]
            if len(ended) > 1:
                _sum(ended, directory / f"{kind}_0.db")


def _sum(ended: list[Path], total: Path) -> None:
    metrics = MultiProcessCollector.merge(  # type: ignore[no-untyped-call]
        [str(it) for it in ended], accumulate=False
    )
    new = total.with_suffix(".new")
    new.unlink(missing_ok=True)
    _allocate(new)
    file = MmapedDict(str(new))  # type: ignore[no-untyped-call]
    for metric in metrics:
        for it in metric.samples:
            names, values = list(it.labels), list(it.labels.values())
            key = mmap_key(metric.name, it.name, names, values, metric.documentation)
            file.write_value(key, it.value, 0.0)  # type: ignore[no-untyped-call]
    file.close()  # type: ignore[no-untyped-call]
    new.replace(total)
    for path in ended:
        if path != total:
            path.unlink()


def _lives(path: Path) -> bool:
    number = path.stem.rpartition("_")[2]
    if not number.isdecimal() or number == "0":
        return number != "0"
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def _locked(directory: Path, how: int, *, wait_s: float) -> Iterator[bool]:
    """Try to take the lock of a directory; yield whether that worked."""
    until, flags = monotonic() + wait_s, os.O_RDONLY | (os.O_CREAT if how == fcntl.LOCK_EX else 0)
    try:
        file = os.open(directory / LOCK, flags, 0o644)
    except OSError:  # nobody has summed anything here yet
        yield False
        return
    try:
        is_held = _try_lock(file, how)
        while not is_held and monotonic() < until:
            sleep(0.01)
            is_held = _try_lock(file, how)
        yield is_held
    finally:
        os.close(file)  # which unlocks it


def _try_lock(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def counts_in(directory: Path) -> Iterable[Metric]:
    """Return the counts of all processes of a directory, ended ones included.

    :raises Exception: the directory or a file in it cannot be read.
    """
    with _locked(directory, fcntl.LOCK_SH, wait_s=READER_WAITS_S):
        collector = MultiProcessCollector(None, str(directory))  # type: ignore[no-untyped-call]
        return list(collector.collect())  # type: ignore[no-untyped-call]
