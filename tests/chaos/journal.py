"""Where everyone writes down what happened, and what the locks guard: files, because the writers may be killed."""

import fcntl
import json
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from holdfast.machine import boottime
from support.history import Event


class Journal:
    """One line per event, which is out of the process when `note` returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, event: Event) -> None:
        os.write(self._file, (json.dumps(event) + "\n").encode())

    def close(self) -> None:
        os.close(self._file)


class Reader:
    """The journal while it is written."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open("rb")
        self._events: list[Event] = []
        self._rest = b""
        self._grants = 0
        self._held: dict[str, float] = {}

    def events(self) -> list[Event]:
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for event in (Event(*json.loads(line)) for line in lines):
            self._events.append(event)
            self._grants += event.kind == "granted"
            if event.kind in ("asked", "granted", "held"):
                self._held.setdefault(event.name, 0.0)
                self._held[event.name] = max(self._held[event.name], event.at if event.kind != "asked" else 0.0)
        return self._events

    def all_held_since(self, moment: float) -> bool:
        """Whether someone has had each of the locks after this moment."""
        self.events()
        return all(at > moment for at in self._held.values())

    def grants(self) -> int:
        self.events()
        return self._grants

    def close(self) -> None:
        self._file.close()


class Tally(NamedTuple):
    """What a register says in the end."""

    plain: int = 0
    plain_writes: int = 0
    fence: int = 0
    fenced: int = 0
    fenced_writes: int = 0
    overran: int = 0
    """Plain writes by someone whose lease ended meanwhile: they may have undone another's."""

    @property
    def lost(self) -> int:
        """Updates that someone made while it held the lock, and that are not there."""
        return 0 if self.overran else max(0, self.plain_writes - self.plain)

    @property
    def lost_behind_the_fence(self) -> int:
        return max(0, self.fenced_writes - self.fenced)


class Register:
    """Two numbers that are read, and written one larger a while later.

    The plain one believes everyone: only exclusion keeps its updates. The fenced one refuses tokens smaller than one
    that it has seen, when reading as well as when writing: it keeps its updates although exclusion be broken, as long
    as tokens are right. Each thread and task opens a register of its own, so that `flock` tells them apart.
    """

    _FORMAT = struct.Struct("6q")

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)

    def read_plain(self) -> int:
        return self.tally().plain

    def write_plain(self, value: int) -> None:
        os.pwrite(self._file, struct.pack("q", value), 0)

    def wrote_plain(self, in_time: bool) -> None:
        with self._alone():
            tally = self.tally()
            at = Tally._fields.index("plain_writes" if in_time else "overran")
            os.pwrite(self._file, struct.pack("q", tally[at] + 1), 8 * at)

    def read_fenced(self, token: int) -> int | None:
        """None if the token is stale."""
        with self._alone():
            tally = self.tally()
            if token < tally.fence:
                return None
            os.pwrite(self._file, struct.pack("q", token), 8 * Tally._fields.index("fence"))
            return tally.fenced

    def write_fenced(self, token: int, value: int) -> None:
        with self._alone():
            tally = self.tally()
            if token >= tally.fence:
                record = struct.pack("3q", token, value, tally.fenced_writes + 1)
                os.pwrite(self._file, record, 8 * Tally._fields.index("fence"))

    def tally(self) -> Tally:
        data = os.pread(self._file, self._FORMAT.size, 0)
        return Tally(*self._FORMAT.unpack(data.ljust(self._FORMAT.size, b"\0")))

    def close(self) -> None:
        os.close(self._file)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def now() -> float:
    return boottime()
