"""What was left behind, kept for ever, or shared by mistake."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import gripfast
from gripfast import machine
from gripfast.core.ports import Claim, Granted, Hold, Unreachable
from gripfast.runtime.blocking import BlockingRuntime
from gripfast.stores.inboxes import BlockingInbox
from gripfast.stores.memory import engine as memory_engine
from gripfast.stores.memory.engine import MemoryEngine
from gripfast.stores.sqlite import connections
from gripfast.stores.sqlite import engine as sqlite_engine
from gripfast.stores.sqlite.engine import SqliteEngine
from support.colours import World, open_files, play
from support.waiting import auntil, until

A_MOMENT = 0.1
"""Seconds given to something that must not happen."""


# -- cycles ------------------------------------------------------------------------------------------------------------


def test_a_lease_whose_extension_failed_is_given_back_as_soon_as_it_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error kept the frames that it came through, and these the lease, until the collector found them."""
    monkeypatch.setattr(BlockingRuntime, "extend", lambda *_: Unreachable(gripfast.StoreUnavailable("down")))
    gc.disable()
    try:
        with gripfast.connect("memory://") as client:
            lease = client.lock("job").acquire()
            try:
                lease.extend()
            except gripfast.StoreUnavailable:
                del lease
            until(lambda: client.inspect("job") is None)
    finally:
        gc.enable()


# -- re-entry ----------------------------------------------------------------------------------------------------------


def test_names_that_were_left_are_not_remembered_for_re_entry() -> None:
    with gripfast.connect("memory://") as client:
        for number in range(100):
            with client.lock(f"job {number}", reentrant=True):
                pass
        assert len(client._held_here()) < 10


def test_names_that_a_task_has_left_are_not_remembered_for_re_entry() -> None:
    async def main() -> None:
        async with gripfast.connect_async("memory://") as client:
            for number in range(100):
                async with client.lock(f"job {number}", reentrant=True):
                    pass
            assert len(client._held_here()) < 10

    asyncio.run(main())


def test_everyone_who_holds_a_lease_is_told_of_its_loss(world: World) -> None:
    async def scene(world: World) -> None:
        actor, told = world.actor(), set()
        levels = [
            actor.client.lock("job", ttl=1, reentrant=True, on_lost=lambda *_, level=level: told.add(level))
            for level in ("outer", "inner")
        ]
        leases = [await actor.acquire(lock) for lock in levels]
        assert leases[0].token == leases[1].token
        await actor.force_release("job")
        await auntil(lambda: told == {"outer", "inner"}, within=5.0)

    play(scene, {"world": world})


# -- forks -------------------------------------------------------------------------------------------------------------


def exit_status_of_a_child(answer: Callable[[], bool]) -> int:
    if (child := os.fork()) == 0:
        try:
            os._exit(0 if answer() else 1)
        finally:
            os._exit(2)
    try:
        until(lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG))
    finally:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def sockets() -> set[str]:
    return {file for file in open_files().values() if file.startswith("socket:")}


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="this system does not tell what is open")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_keeps_no_socket_of_its_parent(sqlite_url: str) -> None:
    before = sockets()
    with gripfast.connect(sqlite_url) as client, client.lock("job"):
        with pytest.raises(gripfast.LockTimeout):
            client.lock("job").acquire(wait=0.01)
        of_the_mailbox = sockets() - before
        assert of_the_mailbox
        assert exit_status_of_a_child(lambda: sockets().isdisjoint(of_the_mailbox)) == 0
        assert of_the_mailbox <= sockets()


def test_the_end_of_one_fork_does_not_let_requests_into_another(tmp_path: Path) -> None:
    """Otherwise a child inherits an open connection, with which its process can't use the file."""
    engine = SqliteEngine(tmp_path / "locks.db", "normal", 5.0)
    engine.inspect("job")
    ready, may_end = threading.Event(), threading.Event()

    def forks() -> None:
        connections._before_fork()
        ready.set()
        may_end.wait(10)
        connections._after_fork(False)

    second, request = threading.Thread(target=forks), threading.Thread(target=engine.inspect, args=("job",))
    connections._before_fork()
    second.start()
    ready.wait(A_MOMENT)
    connections._after_fork(False)
    assert ready.wait(5)
    request.start()
    request.join(A_MOMENT)
    was_let_in = not request.is_alive()
    may_end.set()
    second.join()
    request.join()
    engine.close()
    assert not was_let_in


# -- closing -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not open_files(), reason="this system does not tell what is open")
def test_a_request_that_outlives_its_client_leaves_no_file_open(sqlite_url: str) -> None:
    client = gripfast.connect(sqlite_url)
    pool: Any = client._store()._engine._connections  # type: ignore[attr-defined]
    inside, go_on = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        inside.set()
        go_on.wait(5)

    request = threading.Thread(target=pool.run, args=(slow,))
    request.start()
    assert inside.wait(5)
    client.close()
    go_on.set()
    request.join()
    path = sqlite_url.removeprefix("sqlite:///")
    assert [file for file in open_files().values() if file.startswith(path)] == []


# -- arguments ---------------------------------------------------------------------------------------------------------


def test_a_sqlite_url_with_a_fragment_is_refused() -> None:
    with pytest.raises(gripfast.ConfigurationError):
        gripfast.connect("sqlite:///locks#1.db")


@pytest.mark.parametrize("prefix", [7, b"job"])
def test_a_prefix_that_is_no_text_is_refused(world: World, prefix: Any) -> None:
    async def scene(world: World) -> None:
        actor = world.actor()
        with pytest.raises(gripfast.ConfigurationError):
            await actor.listing(prefix)

    play(scene, {"world": world})


# -- names that nobody uses --------------------------------------------------------------------------------------------


A_DAY = 86_500.0
"""Seconds, and a little more."""


def leave_behind(engine: MemoryEngine | SqliteEngine) -> None:
    """Holders and waiters, none of which comes back."""
    for number in range(10):
        engine.claim(Claim(f"left {number}", f"holder {number}", 30.0, None, None))
        engine.claim(Claim(f"left {number}", f"waiter {number}", 30.0, None, BlockingInbox()))


def use(engine: MemoryEngine | SqliteEngine) -> None:
    for number in range(3):
        assert isinstance(engine.claim(Claim(f"used {number}", "holder", 30.0, None, None)), Granted)


def test_holders_and_waiters_that_never_came_back_are_forgotten_by_memory_after_a_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = MemoryEngine()
    leave_behind(engine)
    use(engine)
    assert len(engine._rows) == 13
    began, wall_us = machine.boottime(), machine.wall_us()
    monkeypatch.setattr(memory_engine, "boottime", lambda: began + A_DAY)
    monkeypatch.setattr(memory_engine, "wall_us", lambda: wall_us + int(A_DAY * 1_000_000))
    use(engine)
    assert sorted(engine._rows) == ["used 0", "used 1", "used 2"]
    assert engine._queues == {}


def test_holders_and_waiters_that_never_came_back_are_forgotten_by_the_database_after_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def names(table: str) -> list[str]:
        with closing(sqlite3.connect(tmp_path / "locks.db")) as connection:
            return [name for (name,) in connection.execute(f"SELECT name FROM {table} ORDER BY name")]

    engine = SqliteEngine(tmp_path / "locks.db", "normal", 5.0)
    leave_behind(engine)
    monkeypatch.setattr(sqlite_engine, "SWEEP_EVERY", 1)
    use(engine)
    assert len(names("gripfast_lock")) == 13
    began, wall_us = machine.shared_boottime(), machine.wall_us()
    monkeypatch.setattr(machine, "shared_boottime", lambda: began + A_DAY)
    monkeypatch.setattr(machine, "wall_us", lambda: wall_us + int(A_DAY * 1_000_000))
    use(engine)
    assert names("gripfast_lock") == ["used 0", "used 1", "used 2"]
    assert names("gripfast_waiter") == []
    engine.close()


@pytest.fixture
def tomorrow(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clocks of the stores on this machine so many seconds ahead."""
    boottime, wall_us = machine.boottime, machine.wall_us

    def ahead(seconds: float) -> None:
        for module in (memory_engine, machine):
            monkeypatch.setattr(module, "boottime", lambda: boottime() + seconds)
            monkeypatch.setattr(module, "wall_us", lambda: wall_us() + int(seconds * 1_000_000))

    return ahead


def take_and_release(engine: MemoryEngine | SqliteEngine, *names: str) -> None:
    for name in names:
        engine.claim(Claim(name, "owner", 30.0, None, None))
        engine.release(Hold(name, "owner", 30.0))


def test_each_newcomer_to_memory_forgets_a_few_idle_names_and_none_pays_for_all(
    tomorrow: Callable[[float], None],
) -> None:
    engine = MemoryEngine()
    take_and_release(engine, *(f"idle {number}" for number in range(1000)))
    tomorrow(A_DAY)
    take_and_release(engine, "new")
    assert len(engine._rows) > 990
    take_and_release(engine, *(f"new {number}" for number in range(500)))
    assert len(engine._rows) == 501


def test_memory_keeps_a_name_for_a_day_after_its_last_use(tomorrow: Callable[[float], None]) -> None:
    engine = MemoryEngine()
    take_and_release(engine, "used again", "idle")
    tomorrow(A_DAY / 2)
    take_and_release(engine, "used again")
    tomorrow(A_DAY)
    take_and_release(engine, "new")
    assert sorted(engine._rows) == ["new", "used again"]
    tomorrow(A_DAY * 1.6)
    take_and_release(engine, "new")
    assert sorted(engine._rows) == ["new"]


def test_processes_that_end_early_clear_all_idle_names_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tomorrow: Callable[[float], None]
) -> None:
    """Each looked at the first names only, which are in use here."""

    def count() -> int:
        with closing(sqlite3.connect(tmp_path / "locks.db")) as connection:
            return int(connection.execute("SELECT count(*) FROM gripfast_lock").fetchone()[0])

    def run(*names: str) -> None:
        engine = SqliteEngine(tmp_path / "locks.db", "normal", 5.0)
        take_and_release(engine, *names)
        engine.close()

    monkeypatch.setattr(sqlite_engine, "SWEEP_EVERY", 1_000_000)  # not yet: it is by chance which claim sweeps first
    in_use = [f"in use {number}" for number in range(10)]
    run(*in_use, *(f"z idle {number}" for number in range(30)))
    tomorrow(A_DAY)
    run(*in_use)
    monkeypatch.setattr(sqlite_engine, "SWEEP_EVERY", 1)
    monkeypatch.setattr(sqlite_engine, "SWEEP_STRETCH", 5)
    assert count() == 40
    for _ in range(10):
        run("in use 0")
    assert count() == 10
