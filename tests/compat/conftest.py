"""Two clients of one lock space, over every store: `client` has a lock in the standard shape, `other` is outside."""

import asyncio
import inspect
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import gripfast
from support.stores import STORES, StoreUnderTest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Tests may be `async def`: each has an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


@pytest.fixture(params=STORES, ids=lambda store: store.name)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    store: StoreUnderTest = request.param
    with store.fresh(tmp_path) as fresh:
        yield fresh


@pytest.fixture
def client(url: str) -> Iterator[gripfast.Client]:
    with gripfast.connect(url) as client:
        yield client


@pytest.fixture
def other(url: str) -> Iterator[gripfast.Client]:
    with gripfast.connect(url) as other:
        yield other


@pytest.fixture
def unreachable(tmp_path: Path) -> Iterator[str]:
    """The URL of a store that can't be asked: another program is writing to its database, and does not stop."""
    path = tmp_path / "occupied.db"
    url = f"sqlite:///{path}"
    with gripfast.connect(url) as client, client.lock("other"):
        pass
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        yield f"{url}?request_timeout=0.05&connect_patience=0.1"
        writer.execute("ROLLBACK")
