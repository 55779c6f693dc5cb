"""The connection is cut after every byte of request and reply: answers are true, and nothing is left behind.

`make test` strides through the bytes; GRIPFAST_SWEEP=full takes every one.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

import gripfast
from chaos.cutting import World
from support.proxy import DIRECTIONS, Direction
from support.redis_server import RedisServer
from support.sweeping import ENOUGH_FINDINGS, FULL, Finding, Swept, stride_for

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # every other lease is dropped, not released
    pytest.mark.timeout(3600 if FULL else 180),
]

BUDGET = 6
"""Bytes after which one sweep cuts, unless all are asked for."""

Answer = Any
"""What the swept part returned, or the exception that it raised."""


class Scenario(NamedTuple):
    prepare: Callable[[World], Any]
    act: Callable[[World, Any], Any]
    """The swept part; is given what was prepared."""
    wrong: Callable[[World, Answer], str | None]
    """What is wrong with its answer."""


def _ready(world: World) -> None:
    pass


def _lease(world: World) -> Any:
    return world.first.acquire(world.name, 5.0)


def _must_be_granted(world: World, answer: Answer) -> str | None:
    if answer is None or isinstance(answer, BaseException):
        return f"the lock was free, the answer was {answer!r}"
    return world.untrue(answer)


def _must_be_done(world: World, answer: Answer) -> str | None:
    return f"raised {answer!r}" if isinstance(answer, BaseException) else None


def _must_be_refused(world: World, answer: Answer) -> str | None:
    is_refusal = answer is None or isinstance(answer, gripfast.LockTimeout)
    return None if is_refusal else f"the lock was taken, the answer was {answer!r}"


def _keep(world: World, lease: Any) -> Any:
    world.first.extend(lease)
    return lease


SCENARIOS = {
    "try_acquire": Scenario(_ready, lambda world, _: world.first.try_acquire(world.name), _must_be_granted),
    "try_acquire of a taken lock": Scenario(
        World.taken, lambda world, _: world.first.try_acquire(world.name), _must_be_refused
    ),
    "acquire that waits": Scenario(
        World.taken_until_awaited, lambda world, _: world.first.acquire(world.name, 10.0), _must_be_granted
    ),
    "acquire that times out": Scenario(
        World.taken, lambda world, _: world.first.acquire(world.name, 0.03), _must_be_refused
    ),
    "extend": Scenario(_lease, _keep, _must_be_granted),
    "release": Scenario(_lease, lambda world, lease: world.first.release(lease), _must_be_done),
}


def _granted_or_not_known(world: World, answer: Answer) -> str | None:
    return None if isinstance(answer, gripfast.StoreUnavailable) else _must_be_granted(world, answer)


OUT_OF_REACH = {
    name: SCENARIOS[name]._replace(wrong=wrong)
    for name, wrong in {
        "try_acquire": _granted_or_not_known,
        "extend": _granted_or_not_known,
        "release": _must_be_done,
    }.items()
}


class Run(NamedTuple):
    passed: int
    """Bytes that the swept part sent, or was sent."""
    was_broken: bool
    problem: str | None


def run(world: World, scenario: Scenario, direction: Direction, arm: Callable[[], None], releases: bool) -> Run:
    """One run, broken by what `arm` orders; if it gets a lease, it `releases` it, or drops it."""
    proxy = world.proxy
    world.new_run()
    world.connect()
    prepared = scenario.prepare(world)
    before = proxy.passed(direction)
    arm()
    answer = _answer(lambda: scenario.act(world, prepared))
    passed, was_broken = proxy.passed(direction) - before, not proxy.armed()
    proxy.spare()  # what follows is not swept
    with suppress(OSError):  # it accepts already
        proxy.accept()
    problem = scenario.wrong(world, answer)
    if releases and isinstance(answer, gripfast.Lease | gripfast.AsyncLease):
        world.first.release(answer)
    prepared = answer = None
    world.end_run()
    return Run(passed, was_broken, problem or world.problem())


def _answer(act: Callable[[], Any]) -> Answer:
    try:
        return act()
    except Exception as error:
        error.__context__ = error.__cause__ = None
        return error.with_traceback(None)  # its frames would keep what the caller has dropped


def sweep(
    world: World,
    scenario: Scenario,
    direction: Direction,
    before: Callable[[], None] = lambda: None,
    budget: int = BUDGET,
) -> Swept:
    """`before` is done at the last moment before each broken run, and belongs to it."""

    def broken(count: int | None, releases: bool = True) -> Run:
        def arm() -> None:
            before()
            if count is not None:
                world.proxy.cut_after(count, direction)

        return run(world, scenario, direction, arm, releases)

    total = 0
    for _ in range(2):
        whole = broken(None)
        assert whole.problem is None, f"without a cut: {whole.problem}"
        total = whole.passed
    swept = Swept(total, stride_for(total, budget))
    for at in range(0, total + 1, swept.stride):
        cut = broken(at, releases=at // swept.stride % 2 == 0)
        swept.broken += cut.was_broken
        swept.missed += not cut.was_broken
        if cut.problem:
            swept.findings.append(Finding(at, f"byte {at} of {total} of {direction}", cut.problem))
            world.start_afresh()
            world.warm_up()
        if len(swept.findings) >= ENOUGH_FINDINGS:
            break
    return swept


def test_two_who_have_the_lock_at_the_same_time_are_noticed(world: World, server: RedisServer) -> None:
    world.new_run()
    lease = world.first.acquire(world.name, 5.0)
    with server.client() as client:
        assert client.delete(f"lock:{world.name}")
    world.taken()
    world.end_run()
    del lease
    assert re.match("overlap: .*first token .* and second .* token", world.problem() or "")


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_connection_in_use_is_cut_after_every_byte(world: World, scenario: str, direction: Direction) -> None:
    world.warm_up()
    swept = sweep(world, SCENARIOS[scenario], direction)
    assert not swept.findings, swept.explain()
    assert swept.broken > swept.missed


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("scenario", ["try_acquire", "acquire that waits"])
def test_a_connection_that_is_being_made_is_cut_after_every_byte(
    world: World, scenario: str, direction: Direction
) -> None:
    world.warm_up()
    swept = sweep(world, SCENARIOS[scenario], direction, before=world.start_afresh, budget=5)
    assert not swept.findings, swept.explain()
    assert swept.broken > swept.missed


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("request_timeout", [0.1])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("scenario", OUT_OF_REACH)
def test_a_connection_is_cut_after_every_byte_and_no_other_can_be_made(
    world: World, scenario: str, direction: Direction
) -> None:
    """Until the caller has given up: what it may have got is given back when the server can be reached again."""
    world.warm_up()
    swept = sweep(world, OUT_OF_REACH[scenario], direction, before=world.proxy.refuse, budget=3)
    assert not swept.findings, swept.explain()
    assert swept.broken > swept.missed
