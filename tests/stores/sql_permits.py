"""What tests of semaphores and read/write locks on SQL servers share."""

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from stores.sql_troubles import database_of
from support.sql_process import SqlServer
from support.waiting import until

LIMIT = 3


def rows(server: SqlServer, url: str, name: str, table: str = "gripfast_permit_waiter") -> int:
    """Of this name."""
    found = server.execute(f"SELECT count(*) FROM {table} WHERE name = %s", _key(url, name), database=database_of(url))
    return int(found[0][0])


def await_queue(server: SqlServer, url: str, name: str, count: int) -> None:
    """Until so many are queued, some of them in processes that have just been started."""
    until(lambda: rows(server, url, name) == count, within=30)


def waiting_sessions(server: SqlServer, url: str, name: str) -> set[int]:
    """By which the server knows whether those who are queued are alive."""
    asked = "SELECT session FROM gripfast_permit_waiter WHERE name = %s"
    return {int(row[0]) for row in server.execute(asked, _key(url, name), database=database_of(url))}


def _key(url: str, name: str) -> str:
    return dict(parse_qsl(urlsplit(url).query)).get("prefix", "") + name


def give_way(times: int) -> None:
    for _ in range(times):
        os.sched_yield()


class Believers:
    """Of one name, in this process: never more of them than permits, and no slot twice."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._slots: set[int] = set()
        self.most = 0
        self.count = 0

    @contextlib.contextmanager
    def among(self, lease: Any) -> Iterator[None]:
        mine = set(lease.slots)
        with self._guard:
            assert not mine & self._slots, (mine, self._slots)
            self._slots |= mine
            self.most = max(self.most, len(self._slots))
            self.count += 1
        try:
            yield
        finally:
            with self._guard:
                self._slots -= mine


@contextlib.contextmanager
def waiting_for(acquire: Any) -> Iterator[list[Any]]:
    """Calls it on another thread; at the end it has got it."""
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(acquire()))
    thread.start()
    yield got
    thread.join(30.0)
    assert got
