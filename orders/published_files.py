"""Files for anybody to check a sale with: a head of lines ``# name: value``, then the list."""

import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from seckill_site.process_memory import Memory

V = TypeVar("V")

KEPT_FILES = 16
"""The files that a process keeps: each is 0.8 MB, compressed, for 100,000 entries."""

LARGEST_BYTES = 64 * 1024 * 1024

HASH = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


class MalformedRecord(Exception):
    """The text is not what it should be; the message says where it is wrong."""


class CompressedFiles(Memory[str, V]):
    """Compressed files by their tags; one thread at a time makes one, which takes a second."""

    def __init__(self) -> None:
        super().__init__(most=KEPT_FILES)

    def forget(self) -> None:
        super().forget()
        self._making = threading.Lock()

    def of(self, tag: str, make: Callable[[], V]) -> V:
        """Return the file of this tag, which ``make`` makes if it is new."""
        file = self.last(tag)
        if file is None:
            with self._making:
                file = self.last(tag) or make()
                self.keep(tag, file)
        return file


def read_head(
    lines: Sequence[str], names: Sequence[str], *, numbers: Sequence[str], maybe: str = ""
) -> dict[str, str]:
    """Return the values that a file begins with; what is no number is a hash, ``maybe`` empty.

    :raises MalformedRecord: they are not there.
    """
    head: dict[str, str] = {}
    for number, name in enumerate(names):
        start = f"# {name}:"
        if number >= len(lines) or not lines[number].startswith(start):
            raise MalformedRecord(f"line {number + 1} does not start with '{start}'")
        head[name] = lines[number].removeprefix(start).strip()
    for name, value in head.items():
        if name in numbers and not _NUMBER.fullmatch(value):
            raise MalformedRecord(f"'{name}' is not a number")
        if name not in numbers and not HASH.fullmatch(value) and (name != maybe or value):
            raise MalformedRecord(f"'{name}' is not 64 hexadecimal digits")
    return head


def read_file(path: Path) -> str:
    """Return the text of a file that somebody has downloaded.

    :raises MalformedRecord: it cannot be read.
    """
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise MalformedRecord(f"{path} is larger than any record")
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeError) as error:
        raise MalformedRecord(f"{path} cannot be read: {error}") from error


def sale_of(text: str) -> int | None:
    """Return the id of a sale that a command got; None if it is the path of a file."""
    is_id = re.fullmatch("[1-9][0-9]{0,17}", text) and not Path(text).exists()
    return int(text) if is_id else None
