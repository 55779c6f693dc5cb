"""Where everyone writes down what happened, and what the locks guard: files, because the writers may be killed."""

import fcntl
import json
import os
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from gripfast.machine import boottime
from gripfast_lab.sim.history import Event


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
        self._grants: Counter[str] = Counter()
        """By process."""
        self._held: dict[str, float] = {}
        self._holders: set[str] = set()

    def events(self) -> list[Event]:
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for event in (Event(*json.loads(line)) for line in lines):
            self._events.append(event)
            if event.kind == "granted":
                self._grants[event.who.partition("/")[0]] += 1
            if event.kind in ("asked", "granted", "held"):
                self._held.setdefault(event.name, 0.0)
                self._held[event.name] = max(self._held[event.name], event.at if event.kind != "asked" else 0.0)
            if event.kind in ("granted", "held"):
                self._holders.add(event.who)
            elif event.kind != "fault":
                self._holders.discard(event.who)
        return self._events

    def all_held_since(self, moment: float) -> bool:
        """Whether someone has had each of the locks after this moment."""
        self.events()
        return all(at > moment for at in self._held.values())

    def holders(self) -> set[str]:
        """Who holds something, as far as is noted. Each holds one thing at a time."""
        self.events()
        return self._holders

    def grants(self, process: str | None = None) -> int:
        """Of all, or of one."""
        self.events()
        return self._grants.total() if process is None else self._grants[process]

    def close(self) -> None:
        self._file.close()


class _File:
    """Each thread and task opens one of its own, so that `flock` tells them apart."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)

    def close(self) -> None:
        os.close(self._file)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


class Tally(NamedTuple):
    """What a plain register says in the end."""

    value: int = 0
    writes: int = 0
    overran: int = 0
    """Writes by someone whose lease ended meanwhile: they may have undone another's."""

    @property
    def lost(self) -> int:
        """Updates that someone made while it held the lock, and that are not there."""
        return 0 if self.overran else max(0, self.writes - self.value)


class Plain(_File):
    """A number that is read, and written one larger a while later. It believes everyone: only exclusion keeps it."""

    _FORMAT = struct.Struct("3q")

    @classmethod
    def of(cls, folder: Path, name: str) -> "Plain":
        return cls(folder / f"plain-{name}")

    def read(self) -> int:
        return self.tally().value

    def write(self, value: int) -> None:
        os.pwrite(self._file, struct.pack("q", value), 0)

    def wrote(self, in_time: bool) -> None:
        with self._alone():
            tally = self.tally()
            at = Tally._fields.index("writes" if in_time else "overran")
            os.pwrite(self._file, struct.pack("q", tally[at] + 1), 8 * at)

    def tally(self) -> Tally:
        data = os.pread(self._file, self._FORMAT.size, 0)
        return Tally(*self._FORMAT.unpack(data.ljust(self._FORMAT.size, b"\0")))


class Fenced(_File):
    """The same behind a fence, which refuses tokens smaller than one that it has seen, in reading as in writing.

    It keeps its updates although exclusion be broken, as long as tokens are right. The file is the list of all that was
    accepted: what is written, and what the history says of it, are one and the same, whenever the writer is killed.
    """

    _RECORD = struct.Struct("d3q96s")
    """When, token, value read, value written, who. Never across two pages, so never in halves."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path)
        self._name = name

    @classmethod
    def of(cls, folder: Path, name: str) -> "Fenced":
        return cls(folder / f"fenced-{name}", name)

    def read(self, who: str, token: int) -> int | None:
        """None if the token is stale."""
        with self._alone():
            fence, value = self._latest()
            if token < fence:
                return None
            if token > fence:
                self._append(who, token, value, value)
            return value

    def write(self, who: str, token: int, read: int, value: int) -> None:
        with self._alone():
            if token >= self._latest()[0]:
                self._append(who, token, read, value)

    def writes(self) -> list[Event]:
        """All that were accepted."""
        data = os.pread(self._file, os.fstat(self._file).st_size, 0)
        records = self._RECORD.iter_unpack(data)
        return [
            Event(at, who.rstrip(b"\0").decode(), self._name, "wrote", token=token, note=f"{read} {value}")
            for at, token, read, value, who in records
            if value != read
        ]

    def _latest(self) -> tuple[int, int]:
        """The fence, and the value."""
        end = os.fstat(self._file).st_size
        if not end:
            return 0, 0
        _, token, _, value, _ = self._RECORD.unpack(os.pread(self._file, self._RECORD.size, end - self._RECORD.size))
        return token, value

    def _append(self, who: str, token: int, read: int, value: int) -> None:
        record = self._RECORD.pack(now(), token, read, value, who.encode())
        os.pwrite(self._file, record, os.fstat(self._file).st_size)


def now() -> float:
    return boottime()
