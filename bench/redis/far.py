"""Acquiring and releasing a free lock on a Redis that is half a millisecond away: what `lazy_release` is for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import gripfast
from bench.far import behind
from bench.gripfast_pair import BY_ASYNC_WITH, BY_WITH, by_async_with, by_with
from bench.locks import Lock, Make
from bench.promise import at_most
from bench.redis.aio import AsyncMake, LockOf
from bench.redis.pair import one_task, peer, url
from bench.redis.peers import REDIS_PY
from bench.redis.server import redis_server
from bench.scenario import Scenario
from bench.timing import MICROSECONDS

LATENCY = 0.0005
PAIRS = (60, 3)

LAZY = "gripfast lazy_release"
LAZY_ASYNC = "gripfast lazy_release, asyncio"


@contextmanager
def lazy_locks(url: str) -> Iterator[Callable[[str], Lock]]:
    with gripfast.connect(url) as client:
        yield lambda name: client.lock(name, lazy_release=True)


@asynccontextmanager
async def lazy_async_locks(url: str) -> AsyncIterator[LockOf]:
    async with gripfast.connect_async(url) as client:
        yield lambda name: client.lock(name, lazy_release=True)


REDIS_FAR = Scenario(
    name="redis pair, 0.5 ms away",
    about="a free lock on a Redis with 0.5 ms on the way in each direction, with and without lazy_release",
    contestants=(
        by_with(BY_WITH, url, PAIRS, ("redis",)),
        peer(Make(LAZY, lazy_locks, ("redis",)), PAIRS),
        by_async_with(BY_ASYNC_WITH, url, PAIRS, ("redis",)),
        one_task(LAZY_ASYNC, AsyncMake(LAZY_ASYNC, lazy_async_locks, ("redis",)).pairs, ("redis",), PAIRS),
        peer(REDIS_PY, PAIRS),
    ),
    figure=MICROSECONDS,
    against=REDIS_PY.name,
    promises=(
        *(at_most(who, 0.6, MICROSECONDS, against=REDIS_PY.name) for who in (LAZY, LAZY_ASYNC)),
        at_most(LAZY, 0.65, MICROSECONDS, against=BY_WITH),
        at_most(LAZY_ASYNC, 0.65, MICROSECONDS, against=BY_ASYNC_WITH),
    ),
    server=behind(redis_server, LATENCY),
)
