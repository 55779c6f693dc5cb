"""The end of the interpreter: what is still held is given back, and that takes bounded time."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

import gripfast
from support.processes import Worker

WAYS = {"return": 0, "exit": 3, "error": 1}


def everything_in(path: Path) -> str:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return "\n".join(connection.iterdump())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("colour", ["blocking", "asyncio"])
def test_a_lease_that_is_held_when_the_program_ends_is_released(colour: str, way: str, tmp_path: Path) -> None:
    path = tmp_path / "locks.db"
    with Worker("leave.py", colour, way, f"sqlite:///{path}", "job") as worker:
        token, owner = worker.expect("held")
        assert owner in everything_in(path)
        worker.say("end")
        assert worker.ended(within=10.0) == WAYS[way], worker.errors
        assert ("on purpose" in worker.errors) == (way == "error")
        assert "Exception ignored" not in worker.errors
    # Not only because its process is gone, which is noticed, too: the row itself no longer has an owner.
    assert owner not in everything_in(path)
    with gripfast.connect(f"sqlite:///{path}") as client:
        lease = client.lock("job").try_acquire()
        assert lease is not None
        assert lease.token > int(token)


@pytest.mark.parametrize("colour", ["blocking", "asyncio"])
def test_a_program_ends_in_bounded_time_though_the_store_does_not_answer(colour: str, tmp_path: Path) -> None:
    path = tmp_path / "locks.db"
    with Worker("leave.py", colour, "return", f"sqlite:///{path}", "job") as worker:
        worker.expect("held")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as blocker:
            blocker.execute("BEGIN EXCLUSIVE")
            worker.say("end")
            assert worker.ended(within=10.0) == 0, worker.errors
            blocker.execute("ROLLBACK")
    with gripfast.connect(f"sqlite:///{path}") as client:
        assert client.lock("job").try_acquire() is not None
