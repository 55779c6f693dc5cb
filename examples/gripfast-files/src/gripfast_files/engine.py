"""The engine: each name has a file, and a request holds a lock of the system (`flock`) while it reads and writes.

A file outlives its holders, so that tokens grow. It is replaced as a whole, so a process that is killed leaves the old
one or the new one. Times are those of the boot clock; after another boot no holder lives, and every lock is free.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from gripfast.core import rules
from gripfast.core.ports import Broken, Claim, Granted, Hold, LockInfo, Loss, Page, Taken
from gripfast.errors import StoreUnavailable
from gripfast.machine import boot_id, hostname, shared_boottime, wall_us
from gripfast.stores.inboxes import Inboxes
from gripfast_files.spec import CAPABILITIES

PAUSE = 0.001
"""Seconds between two attempts to get the system's lock."""
PAGE = 100


class Row(NamedTuple):
    """What the file of a name says."""

    name: str
    token: int = 0
    owner: str | None = None
    expires: float = 0.0
    boot: str = ""
    since_us: int = 0
    label: str | None = None
    host: str = ""
    pid: int = 0
    broken: str | None = None
    """The owner that was force-released last, so that its holder can find out why it lost the lock."""
    note: str | None = None
    """What this owner is told about it."""

    @property
    def is_held(self) -> bool:
        return self.owner is not None and self.boot == boot_id() and self.expires > shared_boottime()

    def freed(self) -> Row:
        return self._replace(owner=None)

    def gone_because(self, owner: str) -> Loss | None:
        """Why this owner does not have the lock; None if it has."""
        if self.owner == owner:
            return None if self.is_held else "expired"
        if self.broken != owner:
            return "taken"
        return "broken" if self.note is None else Broken(self.note)

    def info(self) -> LockInfo | None:
        """What `inspect()` shows; None if nobody holds the lock."""
        if self.owner is None or not self.is_held:
            return None
        since, left = datetime.fromtimestamp(self.since_us / 1_000_000, UTC), self.expires - shared_boottime()
        return LockInfo(self.name, self.owner, self.token, self.label, self.host, self.pid, since, left, waiters=0)


class FilesEngine:
    capabilities = CAPABILITIES

    def __init__(self, folder: Path, pace: float, request_timeout: float) -> None:
        self.inboxes = Inboxes()
        self._folder = folder
        self._pace = pace
        self._timeout = request_timeout

    def claim(self, claim: Claim) -> Granted | Taken:
        """A repeated claim of the holder is granted again, with the same token."""
        with self._alone():
            row = self._read(claim.name)
            if not row.is_held:
                row = self._given(row, claim)
            if row.owner != claim.owner:
                return Taken(row.info(), row.token, again_in=self._pace)
            self._write(row._replace(expires=shared_boottime() + claim.ttl))
            return Granted(row.token, claim.ttl)

    def renew(self, holds: Sequence[Hold]) -> Sequence[Loss | None]:
        with self._alone():
            return [self._renew(hold) for hold in holds]

    def release(self, hold: Hold) -> Loss | None:
        with self._alone():
            row = self._read(hold.name)
            if row.owner != hold.owner:
                return row.gone_because(hold.owner)
            self._write(row.freed())
            return None

    def abandon(self, holds: Sequence[Hold]) -> None:
        for hold in holds:
            self.release(hold)

    def inspect(self, name: str) -> LockInfo | None:
        with self._alone():
            return self._read(name).info()

    def page(self, prefix: str, after: str | None) -> Page:
        with self._alone():
            infos = [info for path in self._folder.glob("*.json") if (info := _row_in(path).info()) is not None]
        infos = [info for info in infos if info.name.startswith(prefix) and (after is None or info.name > after)]
        infos = sorted(infos, key=lambda info: info.name)[:PAGE]
        return Page(infos, infos[-1].name if len(infos) == PAGE else None)

    def force_release(self, name: str, note: str | None = None) -> bool:
        with self._alone():
            row = self._read(name)
            if row.is_held:
                self._write(row.freed()._replace(broken=row.owner, note=note))
            return row.is_held

    def vouch(self, hold: Hold, pid: int) -> None:
        """Nobody looks at processes here: a holder that died keeps its lock until its ttl is over."""

    def close(self) -> None:
        """Nothing is kept open."""

    def _given(self, row: Row, claim: Claim) -> Row:
        now_us = wall_us()
        return row._replace(
            token=rules.next_token(row.token, now_us),
            owner=claim.owner,
            boot=boot_id(),
            since_us=now_us,
            label=claim.label,
            host=hostname(),
            pid=os.getpid(),
        )

    def _renew(self, hold: Hold) -> Loss | None:
        row = self._read(hold.name)
        reason = row.gone_because(hold.owner)
        if reason is None:
            self._write(row._replace(expires=shared_boottime() + hold.ttl))
        return reason

    # -- files ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else reads or writes in the folder meanwhile."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with open(self._folder / "lock", "ab") as file:
                self._await_turn(file.fileno())
                try:
                    yield
                finally:
                    fcntl.flock(file, fcntl.LOCK_UN)  # closing is not enough: a child that was forked has it open, too
        except (OSError, ValueError) as error:
            raise StoreUnavailable(f"the folder {self._folder} can't be used: {error}") from error

    def _await_turn(self, descriptor: int) -> None:
        until = shared_boottime() + self._timeout
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if shared_boottime() > until:
                    raise
            time.sleep(PAUSE)

    def _read(self, name: str) -> Row:
        path = self._path(name)
        return _row_in(path) if path.exists() else Row(name)

    def _write(self, row: Row) -> None:
        path = self._path(row.name)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(row._asdict()), encoding="utf-8")
        new.replace(path)

    def _path(self, name: str) -> Path:
        """By a hash: names may be longer than those of files, and have slashes in them."""
        return self._folder / f"{hashlib.sha256(name.encode()).hexdigest()}.json"


def _row_in(path: Path) -> Row:
    return Row(**json.loads(path.read_text(encoding="utf-8")))
