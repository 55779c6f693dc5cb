"""A downgrade that the engine has not confirmed: the lease is a reader's from then on, and the client repeats it."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import gripfast
from gripfast.testing.colours import renewal_of
from support.waiting import until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks.db"


@contextlib.contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Nobody else can write to it meanwhile."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


@pytest.mark.parametrize("renew", [True, False])
def test_it_is_repeated_until_it_is_confirmed(path: Path, renew: bool, caplog: pytest.LogCaptureFixture) -> None:
    url = f"sqlite:///{path}"
    with gripfast.connect(url, request_timeout=0.05) as client, gripfast.connect(url) as other:
        lease = client.rwlock("index", ttl=6, renew=renew).write().acquire()
        deadline = lease.remaining()
        with locked_file(path):
            lease.downgrade()
            assert "can't downgrade 'index' to a read lease yet" in caplog.text
            with pytest.raises(gripfast.ConfigurationError, match="a reader can't become a writer"):
                client.rwlock("index").write().acquire()
        with other.rwlock("index").read().acquire(wait=20):
            assert lease.held
        info = other.inspect("index", kind="rwlock")
        assert info is not None
        assert [each.is_writer for each in info.holders] == [False]
        assert lease.remaining() < deadline or renew
        lease.release()


def test_a_lease_that_is_renewed_goes_on_after_it(path: Path) -> None:
    url = f"sqlite:///{path}"
    with gripfast.connect(url, request_timeout=0.05) as client, gripfast.connect(url) as other:
        with client.rwlock("index", ttl=3).write() as lease:
            with locked_file(path):
                lease.downgrade()
            other.rwlock("index").read().acquire(wait=20).release()
            until(renewal_of(lease), within=20)
            assert lease.held


def test_a_task_gets_the_same(path: Path) -> None:
    url = f"sqlite:///{path}"

    async def main() -> None:
        async with gripfast.connect_async(url, request_timeout=0.05) as client, gripfast.connect_async(url) as other:
            async with client.rwlock("index", ttl=6).write() as lease:
                with locked_file(path):
                    await lease.downgrade()
                async with other.rwlock("index").read().acquire(wait=20):
                    assert lease.held

    asyncio.run(main())


def test_the_store_of_a_lock_never_hears_of_permits(path: Path) -> None:
    """A file that only ever had locks has no tables for permits."""
    with gripfast.connect(f"sqlite:///{path}") as client, client.lock("job"):
        connection = sqlite3.connect(path)
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        connection.close()
    assert not any("permit" in name or "pool" in name for name in names)
