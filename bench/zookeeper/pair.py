"""Acquiring and releasing a free lock on ZooKeeper: what a lock costs when nobody is in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from bench.gripfast_pair import BY_ASYNC_WITH, BY_CALLS, BY_WITH, Times, by_async_with, by_calls, by_with
from bench.promise import at_most, faster
from bench.redis.hand_off import url
from bench.redis.pair import one_task, peer
from bench.scenario import Contestant, Place, Sample, Scenario
from bench.timing import MICROSECONDS, per_operation
from bench.zookeeper.limit import Pair, create_delete, create_look_delete, create_look_delete_on_a_loop
from bench.zookeeper.peers import KAZOO, NEEDS
from bench.zookeeper.server import hasty_server, zookeeper_server

PAIRS = (100, 3)
PAIRS_ON_DISK = (30, 3)
WRITES = "bare create+delete"
LIMIT = "bare create+look+delete"


def limit(name: str, connected: Callable[[str], AbstractContextManager[Pair]], times: Times = PAIRS) -> Contestant:
    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        with connected(place.url) as pair:
            yield lambda: per_operation(pair, place.size(*times))

    return Contestant(name, opened, NEEDS)


ZOOKEEPER_PAIR = Scenario(
    name="zookeeper pair",
    about="acquiring and releasing a free lock on ZooKeeper, beside bare requests and kazoo's own lock",
    contestants=(
        limit(WRITES, create_delete),
        limit(LIMIT, create_look_delete),
        by_calls(BY_CALLS, url, PAIRS, NEEDS),
        by_with(BY_WITH, url, PAIRS, NEEDS),
        peer(KAZOO, PAIRS),
    ),
    figure=MICROSECONDS,
    against=LIMIT,
    promises=(
        *(at_most(who, 1.15, MICROSECONDS, against=LIMIT) for who in (BY_CALLS, BY_WITH)),
        *(faster(who, 1, MICROSECONDS, than=KAZOO.name) for who in (BY_CALLS, BY_WITH)),
    ),
    server=hasty_server,
)

ZOOKEEPER_PAIR_ASYNC = Scenario(
    name="zookeeper pair, asyncio",
    about="the same on an event loop, beside the same bare requests there, and kazoo's own lock, which has a thread",
    contestants=(
        one_task(LIMIT, create_look_delete_on_a_loop, NEEDS, PAIRS),
        by_async_with(BY_ASYNC_WITH, url, PAIRS, NEEDS),
        peer(KAZOO, PAIRS),
    ),
    figure=MICROSECONDS,
    against=LIMIT,
    promises=(
        at_most(BY_ASYNC_WITH, 1.15, MICROSECONDS, against=LIMIT),
        faster(BY_ASYNC_WITH, 1, MICROSECONDS, than=KAZOO.name),
    ),
    server=hasty_server,
)

ZOOKEEPER_DISK = Scenario(
    name="zookeeper pair, on disk",
    about="the same with every write on disk before it is answered, as the server has it unless told",
    contestants=(
        limit(LIMIT, create_look_delete, PAIRS_ON_DISK),
        by_calls(BY_CALLS, url, PAIRS_ON_DISK, NEEDS),
        by_async_with(BY_ASYNC_WITH, url, PAIRS_ON_DISK, NEEDS),
        peer(KAZOO, PAIRS_ON_DISK),
    ),
    figure=MICROSECONDS,
    against=LIMIT,
    server=zookeeper_server,
)
