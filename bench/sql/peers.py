"""Other libraries' locks on SQL servers, each as its documentation shows it. All of them are advisory locks.

They keep no lease: a lock is held until its session ends. None has tokens, so none writes anything. SQLAlchemy is
given the driver that Gripfast uses.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any

from bench.locks import Lock, Make
from bench.sql.wire import is_postgres

PATIENCE = 60
"""Seconds; for libraries that must be told how long to wait."""


@contextmanager
def tooz(url: str) -> Iterator[Callable[[str], Lock]]:
    """It connects anew for every acquisition."""
    coordination = importlib.import_module("tooz.coordination")
    coordinator = coordination.get_coordinator(url, b"bench")
    coordinator.start()
    try:
        yield lambda name: coordinator.get_lock(f"tooz:{name}".encode())
    finally:
        coordinator.stop()


@contextmanager
def engine(url: str) -> Iterator[Any]:
    scheme = "postgresql+psycopg" if is_postgres(url) else "mysql+pymysql"
    made = importlib.import_module("sqlalchemy").create_engine(f"{scheme}:{url.partition(':')[2]}")
    try:
        yield made
    finally:
        made.dispose()


@contextmanager
def pals(url: str) -> Iterator[Callable[[str], Lock]]:
    with engine(url) as made:
        locker = importlib.import_module("pals").Locker(
            "bench", create_engine_callable=lambda: made, acquire_timeout_default=PATIENCE * 1000
        )
        yield locker.lock


class Dlock:
    """sqlalchemy-dlock's lock belongs to a connection of the caller's, which comes from the engine's pool."""

    def __init__(self, made: Any, name: str) -> None:
        self._engine = made
        self._create: Any = importlib.import_module("sqlalchemy_dlock").create_sadlock
        self._name = name
        # MariaDB knows no wait without an end: told to wait for ever, this library fails there.
        self._options = {} if made.name == "postgresql" else {"contextual_timeout": PATIENCE}
        self._held = ExitStack()

    def acquire(self) -> object:
        connection = self._held.enter_context(self._engine.connect())
        return self._held.enter_context(self._create(connection, self._name, **self._options))

    def __enter__(self) -> object:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._held.close()


@contextmanager
def sqlalchemy_dlock(url: str) -> Iterator[Callable[[str], Lock]]:
    with engine(url) as made:
        yield lambda name: Dlock(made, f"dlock:{name}")


DLOCK = "sqlalchemy-dlock"
POSTGRES_PEERS = (
    Make("tooz", tooz, ("tooz", "psycopg2-binary")),
    Make("pals", pals, ("pals", "psycopg")),
    Make(DLOCK, sqlalchemy_dlock, ("sqlalchemy-dlock", "psycopg")),
)
MARIA_PEERS = (
    Make("tooz", tooz, ("tooz", "PyMySQL")),
    Make(DLOCK, sqlalchemy_dlock, ("sqlalchemy-dlock", "PyMySQL")),
)
