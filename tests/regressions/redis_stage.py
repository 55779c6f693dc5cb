"""What the tests of old faults of the Redis store share: a scene in one colour, with requests that come late."""

import functools
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gripfast
from gripfast.stores.redis import scripts
from support.colours import play
from support.lanes import Lane, Lanes
from support.waiting import auntil, until


def played(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test's body is a coroutine; the world that it was given is closed behind it."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        play(test, fixtures)

    return run


async def hold_up(actor: Any, lanes: Lanes) -> list[Lane]:
    """The actor is connected, and what it asks next stays on its way."""
    await actor.inspect("anything")
    await actor.release(await actor.acquire("warm-up"))
    return lanes.hold()


async def arrive(late: Sequence[Lane]) -> None:
    """What was held up arrives now, and the server has done it when this returns."""
    before = {lane: len(lane.heard) for lane in late if lane.held}
    assert before, "nothing was held up"
    for lane in before:
        lane.let_go()
    await auntil(lambda: all(len(lane.heard) > heard for lane, heard in before.items()))
    assert not [lane for lane, heard in before.items() if lane.heard[heard:].startswith(b"-")], "it was refused"


def connect_at_once(client: gripfast.Client, lanes: Lanes, pool: ThreadPoolExecutor, threads: int) -> None:
    """So many more connections are open afterwards, and idle."""
    before = lanes.hold()
    lanes.greet(lambda lane: lane.hold_from(scripts.INSPECT.sha.encode()))
    asking = [pool.submit(client.inspect, "anything") for _ in range(threads + len(before))]
    until(lambda: sum(bool(lane.held) for lane in lanes.all()) == threads + len(before))
    lanes.let_go()
    for each in asking:
        each.result(timeout=5)
