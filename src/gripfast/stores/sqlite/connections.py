"""Connections to the database file: opened on demand, used by one request at a time, a few of them kept for the next.

A request that fails takes its connection with it: what is kept is always clean. There is no mutex here that an
interrupt could leave locked; taking and putting back are single steps of a deque.

SQLite forbids carrying connections across a fork, and keeps per-file state in the process that a child would inherit
with them. So before a fork requests are held up, those under way end, and all connections are closed; parent and
child open new ones.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from gripfast.errors import StoreUnavailable
from gripfast.interrupts.living import Living
from gripfast.machine import boottime
from gripfast.stores import layout
from gripfast.stores.layout import OtherLayout
from gripfast.stores.sqlite import files, protocol, scripts

_log = logging.getLogger("gripfast.sqlite")

T = TypeVar("T")

FORK_PATIENCE = 2.0
"""Seconds that a fork waits for requests under way."""

BUSY_PAUSE, BUSY_PAUSE_MAX = 0.0001, 0.001
"""Seconds between two tries on a locked file. SQLite's own start at ten times what a transaction takes here."""

IDLE_MAX = 8
"""Connections that are kept without being used; one more for each request that waits until it may try again."""

SURPLUS_MAX = 2 * IDLE_MAX
"""Connections that were closed and whose files SQLite may still keep open."""

LOOK_AT_FILE = 1.0
"""Seconds between two looks whether the file is still the one that is open."""


class _Connection(sqlite3.Connection):
    """Can be referred to weakly, which the library's own can't."""

    inode: tuple[int, int] | None = None
    """Of the file it was opened on."""


class Connections:
    def __init__(self, path: Path, synchronous: str, request_timeout: float) -> None:
        self._path = path
        self._name = str(path)
        self._synchronous = synchronous
        self._request_timeout = request_timeout
        self._idle: deque[_Connection] = deque()
        self._all: Living[_Connection] = Living()
        self._movers: set[object] = set()
        """Connections are being opened or closed, which takes locks: no fork may come."""
        self._retrying: set[object] = set()
        self._surplus = 0
        self._inode: tuple[int, int] | None = None
        self._look_again_at = 0.0
        self._is_closed = False
        self._is_held_up = False
        self._was_busy = False
        """When it was forked, in spite of having waited."""
        self._may_go_on = threading.Event()
        _pools.add(self)

    def run(self, work: Callable[..., T], *args: object) -> T:
        """Do `work(connection, *args)`, again while someone else has the file locked, for one request time-out."""
        try:
            return self._run_once(work, args)
        except sqlite3.Error as error:
            if not protocol.is_busy(error):
                raise protocol.explain(error, self._name) from error
        return self._run_again(work, args)

    def _run_again(self, work: Callable[..., T], args: tuple[object, ...]) -> T:
        with _member_of(self._retrying):
            return self._run_until_free(work, args)

    def _run_until_free(self, work: Callable[..., T], args: tuple[object, ...]) -> T:
        ends, pause = boottime() + self._request_timeout, BUSY_PAUSE
        while True:
            time.sleep(pause * (0.5 + os.urandom(1)[0] / 256))
            pause = min(1.3 * pause, BUSY_PAUSE_MAX)
            try:
                return self._run_once(work, args)
            except sqlite3.Error as error:
                if not protocol.is_busy(error) or boottime() >= ends:
                    raise protocol.explain(error, self._name) from error

    def _run_once(self, work: Callable[..., T], args: tuple[object, ...]) -> T:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._open()
        # Taken first, then looked: a fork looks the other way round, so one of the two sees the other.
        if self._is_held_up or boottime() >= self._look_again_at:
            connection = self._exchange(connection)
        try:
            result = work(connection, *args)
        except sqlite3.Error as error:
            self._keep_if_clean(connection, error)
            raise
        except BaseException:
            self._close(connection)
            raise
        self._keep(connection)
        return result

    def _keep(self, connection: _Connection) -> None:
        """Unless there are enough, or the file was replaced meanwhile. Threads that return at once may keep one too
        many; the next that return make up for it."""
        if connection.inode != self._inode:
            self._close(connection)
        elif len(self._idle) < IDLE_MAX + len(self._retrying):
            self._idle.append(connection)
        else:
            self._close(connection)
            self._surplus += 1
        if self._surplus >= SURPLUS_MAX:
            self._close_files()

    def _close_files(self) -> None:
        """A closed connection's file stays open while any other of this process has locks on it, as all have that are
        open. So when many were closed and none is in use, the idle ones are closed as well."""
        if not self._is_busy():
            self._surplus = 0
            self.close()

    def close_for_good(self) -> None:
        """Requests that are still under way close their connections themselves."""
        self._is_closed = True
        self._inode = None
        self.close()

    def close(self) -> None:
        while self._idle:
            self._close(self._idle.pop())

    def _exchange(self, connection: _Connection) -> _Connection:
        """Wait while a fork is under way; open anew if the file was deleted or replaced: others see the new one."""
        while self._is_held_up or not self._is_same_file():
            self._idle.append(connection)
            if self._is_held_up:
                self._may_go_on.wait()
            else:
                self.close()
            connection = self._open()
        return connection

    def _is_same_file(self) -> bool:
        self._look_again_at = boottime() + LOOK_AT_FILE
        return self._is_closed or self._inode == _inode_of(self._name)

    def _keep_if_clean(self, connection: _Connection, error: sqlite3.Error) -> None:
        """A request that found the file locked has done nothing: its connection is as good as before."""
        if protocol.is_busy(error) and not connection.in_transaction:
            self._keep(connection)
        else:
            self._close(connection)

    def _close(self, connection: _Connection) -> None:
        with _member_of(self._movers):
            connection.close()

    def _open(self) -> _Connection:
        while True:
            with _member_of(self._movers):
                if not self._is_held_up:
                    return self._open_now()
            self._may_go_on.wait()

    def _open_now(self) -> _Connection:
        if self._name in _poisoned:
            raise StoreUnavailable(
                f"embedded store {self._name}: the parent process was forked while another thread was in a request "
                "that did not end, so this child can't use the file. Start child processes with spawn or forkserver, "
                "or fork before the first use of the store"
            )
        files.prepare(self._path)
        inode = _inode_of(self._name)
        # Never made by SQLite, which would let others read it: if it was deleted just now, this fails.
        connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw",
            uri=True,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            factory=_Connection,
        )
        self._all.add(connection)
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            self._check_schema(connection)
        except BaseException:
            connection.close()
            raise
        connection.inode = inode
        if not self._is_closed:
            self._inode, self._look_again_at = inode, boottime() + LOOK_AT_FILE
        _log.info("opened %s", self._name)
        return connection

    def _check_schema(self, connection: sqlite3.Connection) -> None:
        if connection.execute(scripts.has_schema).fetchone() is None:
            connection.execute(scripts.begin)
            for statement in scripts.schema:
                connection.execute(statement)
            connection.execute(scripts.write_layout, (layout.SQLITE,))
            connection.execute(scripts.commit)
        row = connection.execute(scripts.read_layout).fetchone()
        found = row[0] if row else None
        if found != layout.SQLITE:
            raise OtherLayout(*layout.refusal(self._name, str(found), layout.SQLITE, "another file").args)

    def before_fork(self) -> None:
        self._may_go_on.clear()
        self._is_held_up = True
        ends = boottime() + FORK_PATIENCE
        while self._is_busy() and boottime() < ends:
            time.sleep(0.0005)
        self.close()
        self._was_busy = self._is_busy() or bool(self._idle)

    def after_fork(self, in_child: bool) -> None:
        if in_child:
            if self._was_busy:
                _poisoned.add(self._name)
                _inherited.extend(self._idle)
                self._idle.clear()
            self._movers.clear()
            self._retrying.clear()
            self._may_go_on = threading.Event()  # threads that are not here may hold the old one's mutex
        self._is_held_up = False
        self._may_go_on.set()

    def _is_busy(self) -> bool:
        idle = list(self._idle)
        return bool(self._movers) or any(each not in idle and _is_open(each) for each in self._all)


@contextlib.contextmanager
def _member_of(group: set[object]) -> Iterator[None]:
    """Counted as long as it lasts, without a mutex."""
    me = object()
    group.add(me)
    try:
        yield
    finally:
        group.discard(me)


def _is_open(connection: _Connection) -> bool:
    try:
        return connection.total_changes >= 0
    except sqlite3.ProgrammingError:
        return False


def _inode_of(path: str) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


_inherited: list[_Connection] = []
"""Connections of the parent process: never to be used or closed here."""

_poisoned: set[str] = set()
"""Files with requests under way when this process was forked: what SQLite knows of them here is wrong."""

_pools: Living[Connections] = Living()


_forking = [threading.Lock()]
"""Two threads that fork at the same time must not end each other's pause."""


def _before_fork() -> None:
    _forking[0].acquire()
    for pool in _pools:
        pool.before_fork()


def _after_fork(in_child: bool) -> None:
    for pool in _pools:
        pool.after_fork(in_child)
    if in_child:
        _forking[0] = threading.Lock()
    else:
        _forking[0].release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(False),
        after_in_child=lambda: _after_fork(True),
    )
