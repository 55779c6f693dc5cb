"""Traps that need a store which can fail: the embedded one, in both colours, on a file that the test can spoil."""

import inspect
from pathlib import Path

import pytest

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
    return World(f"sqlite:///{database}?request_timeout=0.2&connect_patience=0.5", COLOURS[request.param])


@pytest.fixture
def broken(world: World, database: Path) -> World:
    """A world whose store can not be asked."""
    database.write_bytes(b"this is not a database, whatever its name says\n" * 100)
    return world
