"""Waiters on Redis who were told late, or never: whoever reads for all must be one who still listens."""

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest
import redis

import gripfast
from gripfast.core.ports import Granted
from gripfast.stores import listening
from gripfast.stores.inboxes import BlockingInbox, Inboxes
from regressions.redis_stage import connect_at_once, played
from support.colours import COLOURS, World
from support.lanes import Lane, Lanes
from support.redis_server import RedisServer
from support.waiting import until

SUBSCRIBE = b"SUBSCRIBE"


@pytest.fixture
def holder(server: RedisServer, admin: "redis.Redis") -> Iterator[gripfast.Client]:
    """Has no proxy in front of it."""
    with gripfast.connect(server.url) as client:
        yield client


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


def waiters(client: gripfast.Client, name: str) -> int:
    info = client.inspect(name)
    return info.waiters if info else 0


# One reads for all ----------------------------------------------------------------------------------------------------


@pytest.fixture
def only_pushes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks around after a while: who is not named never reads."""
    monkeypatch.setattr(listening, "LOOK_AROUND", 60.0)


def hold_all_requests(lanes: Lanes) -> None:
    """From now on a client can be told, but can't ask."""
    lanes.greet(Lane.hold)
    lanes.hold()


def test_the_one_who_is_named_to_read_still_listens(
    lanes: Lanes, holder: gripfast.Client, pool: ThreadPoolExecutor, only_pushes: None
) -> None:
    held = {name: holder.lock(name).acquire() for name in "abc"}
    with gripfast.connect(lanes.url()) as client:
        waiting = {}
        for name, patience in (("a", 30), ("b", 0.5), ("c", 30)):
            waiting[name] = pool.submit(client.lock(name).acquire, wait=patience)
            until(lambda name=name: waiters(holder, name) == 1)
        hold_all_requests(lanes)
        until(lambda: any(lane.held for lane in lanes.all()))  # b asks for the last time
        held["a"].release()
        assert waiting["a"].result(timeout=5).held  # it was the first, so it has read, and names another
        held["c"].release()
        assert waiting["c"].result(timeout=5).held
        lanes.let_go()
        assert isinstance(waiting["b"].exception(timeout=5), gripfast.LockTimeout)


def test_an_attempt_that_failed_reads_no_more_though_its_error_is_kept(
    lanes: Lanes, holder: gripfast.Client, admin: "redis.Redis", pool: ThreadPoolExecutor, only_pushes: None
) -> None:
    with gripfast.connect(lanes.url(), request_timeout=0.3) as client:
        admin.set("lock:z", "someone", px=500)  # when that ends, whoever waits asks, and is not answered
        failing = pool.submit(client.lock("z").acquire, wait=0.6)
        until(lambda: waiters(holder, "z") == 1)
        hold_all_requests(lanes)
        kept = failing.exception(timeout=5)
        assert isinstance(kept, gripfast.OutcomeUnknown)
        lanes.let_go()
        held = {name: holder.lock(name).acquire() for name in "ac"}
        waiting = {}
        for name in "ac":
            waiting[name] = pool.submit(client.lock(name).acquire, wait=30)
            until(lambda name=name: waiters(holder, name) == 1)
        hold_all_requests(lanes)
        for name in "ac":
            held[name].release()
            assert waiting[name].result(timeout=5).held
        lanes.let_go()


# Everyone who listens is told -----------------------------------------------------------------------------------------


class Guest(BlockingInbox):
    """While it is told, another one comes."""

    def __init__(self, inboxes: Inboxes) -> None:
        super().__init__()
        self.inboxes = inboxes
        self.brought: list[BlockingInbox] = []

    def deliver(self, push: Granted | None) -> bool:
        self.brought.append(BlockingInbox())
        self.inboxes.add(f"guest {id(self)} {len(self.brought)}", self.brought[-1])
        return super().deliver(push)


def test_waiters_may_come_while_all_are_told() -> None:
    inboxes = Inboxes()
    guests = [Guest(inboxes) for _ in range(3)]
    for guest in guests:
        inboxes.add(f"guest {id(guest)}", guest)
    inboxes.ask_again()
    assert [len(guest.brought) for guest in guests] == [1, 1, 1]


def test_waiters_may_come_from_another_thread_while_all_are_listed() -> None:
    """As if the interpreter changed threads at every line."""
    inboxes = Inboxes()
    kept = [BlockingInbox()]
    inboxes.add("first", kept[0])

    def at_every_line(frame: FrameType, event: str, argument: Any) -> Any:
        kept.append(BlockingInbox())
        inboxes.add(str(len(kept)), kept[-1])
        return at_every_line

    before = sys.gettrace()
    sys.settrace(at_every_line)
    try:
        listed = inboxes.all()
    finally:
        sys.settrace(before)
    assert kept[0] in listed
    assert len(kept) > 2


# Connections for pushes -----------------------------------------------------------------------------------------------


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, lanes: Lanes) -> World:
    return World(lanes.url(), COLOURS[request.param])


@played
async def test_a_waiter_whose_pushes_get_lost_without_a_word_subscribes_again(
    world: World, lanes: Lanes, holder: gripfast.Client
) -> None:
    """Somebody on the way has forgotten the connection: the server has seen its end, the client has not."""
    waiter = world.actor()
    held = holder.lock("job").acquire()
    waiting = waiter.acquire("job")
    await world.queued("job", 1)
    held.release()
    await waiter.release(await waiting)
    [pushes] = lanes.that_said(SUBSCRIBE)
    pushes.lose_server()

    held = holder.lock("job").acquire()
    waiting = waiter.acquire("job", ttl=0.6)
    await world.queued("job", 1)
    with ThreadPoolExecutor(1) as pool:
        next_one = pool.submit(lambda: holder.lock("job").acquire(wait=20).release())
        await world.queued("job", 2)
        held.release()  # for the first, or, if that does not listen again yet, for the next
        await waiter.release(await waiting)
        await asyncio.wrap_future(next_one)
    assert len(lanes.that_said(SUBSCRIBE)) == 2


def test_threads_that_wait_at_once_dial_once(
    lanes: Lanes, holder: gripfast.Client, pool: ThreadPoolExecutor, server: RedisServer
) -> None:
    """Requests are answered, but no new connection is: nobody waits for the failures of all others."""
    threads = 8
    held = holder.lock("job").acquire()
    with gripfast.connect(lanes.url(), request_timeout=0.4) as client:
        connect_at_once(client, lanes, pool, threads)
        lanes.greet(Lane.silence)
        attempts = [pool.submit(client.lock("job").acquire, wait=0.4) for _ in range(threads)]
        errors = [attempt.exception(timeout=10) for attempt in attempts]
        assert [error for error in errors if not isinstance(error, gripfast.StoreUnavailable)] == []
        assert len(lanes.all()) - threads <= 2
    held.release()
