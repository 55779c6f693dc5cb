"""Acquiring and releasing a free lock on Redis: what a lock costs when nobody is in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, closing, contextmanager

from bench.gripfast_pair import BY_CALLS, BY_WITH, Times, by_calls, by_with
from bench.locks import Make
from bench.promise import at_least, at_most, faster
from bench.redis import aio
from bench.redis.aio import AsyncMake, Pair, Pairs, bare_pairs
from bench.redis.peers import PEERS, REDIS_PY
from bench.redis.server import redis_server
from bench.redis.wire import NEEDS, Wire, pair_on
from bench.scenario import Contestant, Place, Sample, Scenario
from bench.timing import MICROSECONDS, PAIRS_PER_SECOND, per_awaited, per_operation, together

PAIRS = (500, 10)
TASKS = 50
PAIRS_OF_TASK = (20, 1)

BARE = "bare socket"
BARE_ASYNC = "bare protocol"


def url(place: Place) -> str:
    return place.url


@contextmanager
def bare(place: Place) -> Iterator[Callable[[], Sample]]:
    with closing(Wire(place.url)) as wire:
        pair = pair_on(wire)
        yield lambda: per_operation(pair, place.size(*PAIRS))


def peer(make: Make, times: Times = PAIRS) -> Contestant:
    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        with make.locks(place.url) as lock_of:
            lock = lock_of("bench")

            def pair() -> None:
                with lock:
                    pass

            yield lambda: per_operation(pair, place.size(*times))

    return Contestant(make.name, opened, make.needs)


def one_task(name: str, pairs: Pairs, needs: tuple[str, ...], times: Times = PAIRS) -> Contestant:
    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        with on_a_loop(place, pairs, 1) as (runner, (pair,)):
            yield lambda: per_awaited(runner, pair, place.size(*times))

    return Contestant(name, opened, needs)


def many_tasks(name: str, pairs: Pairs, needs: tuple[str, ...]) -> Contestant:
    """Each task has a lock of its own."""

    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        with on_a_loop(place, pairs, TASKS) as (runner, own):
            yield lambda: together(runner, own, place.size(*PAIRS_OF_TASK))

    return Contestant(name, opened, needs)


@contextmanager
def on_a_loop(place: Place, pairs: Pairs, count: int) -> Iterator[tuple[asyncio.Runner, Sequence[Pair]]]:
    """Pairs of as many names, on one event loop for all rounds."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        pair_of = runner.run(stack.enter_async_context(pairs(place.url)))
        yield runner, [pair_of(f"bench:{number}") for number in range(count)]
        runner.run(stack.aclose())


def by_each(contestant: Callable[[str, Pairs, tuple[str, ...]], Contestant], *makes: AsyncMake) -> list[Contestant]:
    return [contestant(make.name, make.pairs, make.needs) for make in makes]


REDIS_PAIR = Scenario(
    name="redis pair",
    about="acquiring and releasing a free lock on Redis, beside other libraries and a bare socket",
    contestants=(
        Contestant(BARE, bare, NEEDS),
        by_calls(BY_CALLS, url, PAIRS, ("redis",)),
        by_with(BY_WITH, url, PAIRS, ("redis",)),
        *(peer(make) for make in PEERS),
    ),
    figure=MICROSECONDS,
    against=BARE,
    promises=(
        *(at_most(who, 1.9, MICROSECONDS, against=BARE) for who in (BY_CALLS, BY_WITH)),
        *(faster(who, 2.3, MICROSECONDS, than=REDIS_PY.name) for who in (BY_CALLS, BY_WITH)),
    ),
    server=redis_server,
    slower=1.08,
)

REDIS_PAIR_ASYNC = Scenario(
    name="redis pair, asyncio",
    about="the same on an event loop, one task, beside redis-py's and pottery's asyncio locks and a bare protocol",
    contestants=(
        one_task(BARE_ASYNC, bare_pairs(joined=False), NEEDS),
        *by_each(one_task, aio.GRIPFAST, aio.REDIS_PY, aio.POTTERY),
    ),
    figure=MICROSECONDS,
    against=BARE_ASYNC,
    promises=(faster(aio.GRIPFAST.name, 2.5, MICROSECONDS, than=aio.REDIS_PY.name),),
    server=redis_server,
)

REDIS_TASKS = Scenario(
    name=f"redis {TASKS} tasks",
    about=f"pairs per second of {TASKS} tasks, each with its own lock, beside redis-py's and pottery's asyncio locks",
    contestants=(
        many_tasks(BARE_ASYNC, bare_pairs(joined=True), NEEDS),
        *by_each(many_tasks, aio.GRIPFAST, aio.REDIS_PY, aio.POTTERY),
    ),
    figure=PAIRS_PER_SECOND,
    against=aio.REDIS_PY.name,
    promises=(at_least(aio.GRIPFAST.name, 8, PAIRS_PER_SECOND, against=aio.REDIS_PY.name),),
    server=redis_server,
)
