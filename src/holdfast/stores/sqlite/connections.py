"""Connections to the database file: opened on demand, used by one request at a time, kept for the next.

A request that fails in any way takes its connection with it: what is kept is always clean. There is no mutex here
that an interrupt could leave locked; taking and putting back are single steps of a deque.

SQLite forbids carrying connections across a fork, and keeps per-file state in the process that a child would inherit
with them. So before a fork, requests are held up, those under way end, and all connections are closed; parent and
child open new ones.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.machine import boottime
from holdfast.stores.sqlite import files, protocol, scripts

T = TypeVar("T")

FORK_PATIENCE = 2.0
"""Seconds that a fork waits for requests under way."""


class Connections:
    def __init__(self, path: Path, synchronous: str, request_timeout: float) -> None:
        self._path = path
        self._name = str(path)
        self._synchronous = synchronous
        self._request_timeout = request_timeout
        self._idle: deque[sqlite3.Connection] = deque()
        self._inode: tuple[int, int] | None = None
        self._busy: set[object] = set()
        self._may_run = threading.Event()
        self._may_run.set()
        _pools.add(self)

    def run(self, work: Callable[..., T], *args: object) -> T:
        """Do `work(connection, *args)`, again while someone else has the file locked, for one request time-out."""
        ends = boottime() + self._request_timeout
        tries = 0
        while True:
            try:
                return self._run_once(work, args)
            except sqlite3.Error as error:
                if not protocol.is_busy(error) or boottime() >= ends:
                    raise protocol.explain(error, self._name) from error
            # SQLite's own busy handler starts at a millisecond, ten times what a transaction takes here.
            time.sleep(min(0.005, 0.0001 * 1.5**tries) * random.uniform(0.5, 1.5))
            tries += 1

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _run_once(self, work: Callable[..., T], args: tuple[object, ...]) -> T:
        me = object()
        self._enter(me)
        try:
            connection = self._take()
            try:
                result = work(connection, *args)
            except BaseException:
                connection.close()
                raise
            self._idle.append(connection)
            return result
        finally:
            self._busy.discard(me)

    def _enter(self, me: object) -> None:
        """Busy first, then look: a fork looks the other way round, so one of the two sees the other."""
        self._busy.add(me)
        while not self._may_run.is_set():
            self._busy.discard(me)
            self._may_run.wait()
            self._busy.add(me)
        if self._name in _poisoned:
            raise StoreUnavailable(
                f"embedded store {self._path}: this process was forked while a request of another thread hung in the "
                "database; start it with another method (spawn, forkserver), or fork before using the store"
            )

    def _take(self) -> sqlite3.Connection:
        if self._inode != _inode_of(self._name):  # deleted or replaced: what is open is no longer what others open
            self.close()
        try:
            return self._idle.pop()
        except IndexError:
            return self._open()

    def _open(self) -> sqlite3.Connection:
        files.prepare(self._path)
        inode = _inode_of(self._name)
        connection = sqlite3.connect(self._name, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            self._check_schema(connection)
        except BaseException:
            connection.close()
            raise
        self._inode = inode
        return connection

    def _check_schema(self, connection: sqlite3.Connection) -> None:
        if connection.execute(scripts.has_schema).fetchone() is None:
            connection.execute(scripts.begin)
            for statement in scripts.schema:
                connection.execute(statement)
            connection.execute(scripts.commit)
        row = connection.execute(scripts.schema_version).fetchone()
        version = row[0] if row else None
        if version != scripts.SCHEMA_VERSION:
            raise ConfigurationError(
                f"{self._path} has schema {version}, this Holdfast knows {scripts.SCHEMA_VERSION}: "
                "a newer version made it; upgrade Holdfast here, or use another file"
            )

    def before_fork(self) -> None:
        self._may_run.clear()
        ends = boottime() + FORK_PATIENCE
        while self._busy and boottime() < ends:
            time.sleep(0.0005)
        self.close()

    def after_fork(self, in_child: bool) -> None:
        if in_child:
            if self._busy:
                _poisoned.add(self._name)
            self._busy.clear()
            self._may_run = threading.Event()  # threads that are not here may hold the old one's mutex
        self._may_run.set()


def _inode_of(path: str) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


_poisoned: set[str] = set()
"""Files with requests of the parent's other threads under way when this process was forked: SQLite's state of them is
unusable here."""

_pools: weakref.WeakSet[Connections] = weakref.WeakSet()


def _before_fork() -> None:
    for pool in list(_pools):
        pool.before_fork()


def _after_fork(in_child: bool) -> None:
    for pool in list(_pools):
        pool.after_fork(in_child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(False),
        after_in_child=lambda: _after_fork(True),
    )
