"""Ways in which two could once be inside at the same time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import gripfast
from gripfast import machine
from gripfast.core.ports import Claim, Granted, Hold, Taken
from gripfast.errors import GripfastError
from gripfast.interrupts.guard import Guard
from gripfast.stores import granting
from gripfast.stores.memory.engine import MemoryEngine
from gripfast.stores.sqlite import connections
from gripfast.stores.sqlite.engine import SqliteEngine
from support.colours import World, play
from support.waiting import auntil, until

A_MOMENT = 0.1
"""Seconds given to something that must not happen."""


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Callable[[], SqliteEngine]]:
    """Makes engines of one database, as several processes would have them."""
    made: list[SqliteEngine] = []

    def make() -> SqliteEngine:
        made.append(SqliteEngine(tmp_path / "locks.db", "normal", 5.0))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def claim(engine: Any, owner: str, ttl: float = 30.0) -> Granted | Taken:
    return engine.claim(Claim("job", owner, ttl, None, None))


# -- pushes ------------------------------------------------------------------------------------------------------------


def test_the_push_of_an_earlier_hand_off_is_no_grant(world: World) -> None:
    async def scene(world: World) -> None:
        holder, waiter = world.actors(2)
        store = waiter.client._store()
        if not hasattr(store, "_nodes") and not hasattr(store, "inboxes"):
            pytest.skip("what is pushed in this store is a hint, and carries no grant")
        earlier = await holder.acquire("job")
        await holder.release(earlier)
        lease = await holder.acquire("job")
        waiting = waiter.acquire("job")
        await world.queued("job", 1)
        inboxes = store._nodes._inboxes if hasattr(store, "_nodes") else store.inboxes
        (owner,) = inboxes._by_owner
        assert inboxes.deliver(owner, Granted(earlier.token, 30.0))
        await world.queued("job", 1)
        await holder.release(lease)
        assert (await waiting).token > lease.token

    play(scene, {"world": world})


# -- closing -----------------------------------------------------------------------------------------------------------


def assert_free(url: str) -> None:
    with gripfast.connect(url) as another, another.lock("job").acquire(wait=5) as lease:
        assert lease.held


def stop_at_answers(store: Any, stop: Callable[[], None]) -> None:
    """Have the blocking store stop when the engine has answered and the caller does not know yet."""
    claim, stops = store.claim, iter([stop])

    async def answer_slowly(wanted: Claim) -> Any:
        answer = await claim(wanted)
        next(stops, lambda: None)()
        return answer

    store.claim = answer_slowly


def test_a_claim_under_way_while_its_client_is_closed_gives_no_lease(url: str) -> None:
    client = gripfast.connect(url)
    claimed, closed = threading.Event(), threading.Event()

    def stop() -> None:
        claimed.set()
        closed.wait(5)

    stop_at_answers(client._store(), stop)
    with ThreadPoolExecutor() as pool:
        attempt = pool.submit(client.lock("job").acquire)
        assert claimed.wait(5)
        client.close()
        closed.set()
        with suppress(GripfastError):
            assert not attempt.result(5).held
    assert_free(url)


def test_a_claim_under_way_while_its_async_client_is_closed_gives_no_lease(url: str) -> None:
    async def main() -> None:
        client = gripfast.connect_async(url)
        store: Any = client._store()
        claimed, closed, claim = asyncio.Event(), asyncio.Event(), store.claim

        async def answer_slowly(wanted: Claim) -> Any:
            answer = await claim(wanted)
            if not claimed.is_set():
                claimed.set()
                await closed.wait()
            return answer

        store.claim = answer_slowly

        async def attempt() -> bool:
            return (await client.lock("job").acquire()).held

        attempted = asyncio.create_task(attempt())
        await claimed.wait()
        await client.aclose()
        closed.set()
        with suppress(GripfastError):
            assert not await attempted

    asyncio.run(main())
    assert_free(url)


# -- the decorator -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["memory", "sqlite"])
def test_tasks_in_a_reentrant_coroutine_function_of_a_blocking_client_exclude_each_other_and_its_plain_functions(
    place: str, sqlite_url: str
) -> None:
    client = gripfast.connect("memory://" if place == "memory" else sqlite_url)
    inside, calls = 0, 0

    @client.locked("job", reentrant=True)
    async def body(leave: asyncio.Event) -> None:
        nonlocal inside, calls
        inside, calls = inside + 1, calls + 1
        await leave.wait()
        inside -= 1

    @client.locked("job", wait=0, busy="skip", reentrant=True)
    def plain() -> str:
        return "was alone"

    def second_is_somewhere() -> bool:
        info = client.inspect("job")
        return calls == 2 or (info is not None and info.waiters == 1)

    async def main() -> None:
        leave = asyncio.Event()
        first = asyncio.create_task(body(leave))
        await auntil(lambda: inside == 1)
        assert plain() is None
        second = asyncio.create_task(body(leave))
        await auntil(second_is_somewhere)
        alone = inside == 1
        leave.set()
        await asyncio.gather(first, second)
        assert alone

    asyncio.run(main())
    assert calls == 2
    assert plain() == "was alone"
    client.close()


# -- the embedded store ------------------------------------------------------------------------------------------------


def test_a_connection_to_a_file_that_was_replaced_meanwhile_is_not_used_again(
    engines: Callable[[], SqliteEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LOOK_AT_FILE", 0.0)
    engine = engines()
    engine.inspect("job")
    inside, go_on = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        inside.set()
        go_on.wait(5)

    with ThreadPoolExecutor() as pool:
        request = pool.submit(engine._connections.run, slow)
        assert inside.wait(5)
        for file in tmp_path.glob("locks.db*"):
            if file.is_file():
                file.unlink()
        engine.inspect("job")  # sees the new file, and opens it
        go_on.set()
        request.result(5)
    assert isinstance(claim(engine, "a"), Granted)
    assert isinstance(claim(engines(), "b"), Taken)


def test_a_new_holder_is_not_measured_by_a_watch_over_the_one_before(
    engines: Callable[[], SqliteEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = engines(), engines()
    elsewhere._boot = "another boot"
    began = machine.boottime()

    def is_later_by(seconds: float) -> None:
        monkeypatch.setattr(machine, "boottime", lambda: began + seconds)

    assert isinstance(claim(here, "a", ttl=5.0), Granted)
    assert isinstance(claim(elsewhere, "b"), Taken)
    assert here.release(Hold("job", "a", 5.0)) is None
    is_later_by(4.0)
    assert isinstance(claim(here, "c", ttl=5.0), Granted)
    is_later_by(8.0)
    assert isinstance(claim(elsewhere, "d"), Taken)


# -- the guard ---------------------------------------------------------------------------------------------------------


def test_a_guard_entered_again_by_a_signal_handler_still_keeps_others_out() -> None:
    guard, others = Guard(), list[Any]()

    def step() -> None:
        with suppress(Exception):  # it may be refused
            guard.run(lambda: None)
        other.start()
        other.join(A_MOMENT)
        assert others == []

    other = threading.Thread(target=lambda: guard.run(others.append, "inside"))
    guard.run(step)
    until(lambda: others == ["inside"])
    other.join()


def test_a_request_from_a_signal_handler_is_refused_in_the_middle_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, decides = MemoryEngine(), granting.claim
    refused: list[bool] = []

    def decides_and_is_interrupted(*args: Any) -> granting.Outcome:
        monkeypatch.setattr(granting, "claim", decides)
        outcome = decides(*args)
        with pytest.raises(gripfast.StoreUnavailable):
            claim(engine, "handler")
        refused.append(True)
        return outcome

    monkeypatch.setattr(granting, "claim", decides_and_is_interrupted)
    assert isinstance(claim(engine, "interrupted"), Granted)
    assert refused == [True]
    assert engine.release(Hold("job", "interrupted", 30.0)) is None
    assert isinstance(claim(engine, "handler"), Granted)
