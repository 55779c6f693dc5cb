"""Traps that need a store which can fail: the embedded one, in both colours, on a file that the test can spoil."""

import inspect
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

import gripfast
from support.colours import COLOURS, World, play


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    play(pyfuncitem.obj, {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters})
    return True


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "locks.db"


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, database: Path) -> World:
    return World(f"sqlite:///{database}?request_timeout=0.1&connect_patience=0.2", COLOURS[request.param])


@pytest.fixture
def occupied(database: Path) -> Callable[[], AbstractContextManager[None]]:
    return lambda: _writing_to(database)


@contextmanager
def _writing_to(database: Path) -> Iterator[None]:
    """Another program writes to the database for as long as this lasts: the store can not be asked."""
    connection = sqlite3.connect(database, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()


@pytest.fixture
def broken(world: World, occupied: Callable[[], AbstractContextManager[None]]) -> Iterator[World]:
    """A world whose store can not be asked."""
    with gripfast.connect(world.url) as client, client.lock("other job"):
        pass
    with occupied():
        yield world
