"""Taking and giving back a free lock on ZooKeeper: what a lock costs when nobody is in the way.

A create and a delete are on disk before they are answered, and that is most of what everybody here waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from bench.holdfast_pair import BY_ASYNC_WITH, BY_CALLS, BY_WITH, by_async_with, by_calls, by_with
from bench.promise import at_most, faster
from bench.redis.hand_off import url
from bench.redis.pair import peer
from bench.scenario import Contestant, Place, Sample, Scenario
from bench.timing import MICROSECONDS, per_operation
from bench.zookeeper.limit import Pair, create_delete, create_look_delete
from bench.zookeeper.peers import KAZOO, NEEDS
from bench.zookeeper.server import zookeeper_server

PAIRS = (60, 3)
WRITES = "bare create+delete"
LIMIT = "bare create+look+delete"
OURS = (BY_CALLS, BY_WITH, BY_ASYNC_WITH)


def limit(name: str, connected: Callable[[str], AbstractContextManager[Pair]]) -> Contestant:
    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        with connected(place.url) as pair:
            yield lambda: per_operation(pair, place.size(*PAIRS))

    return Contestant(name, opened, NEEDS)


ZOOKEEPER_PAIR = Scenario(
    name="zookeeper pair",
    about="taking and giving back a free lock on ZooKeeper, beside bare requests and kazoo's own lock",
    contestants=(
        limit(WRITES, create_delete),
        limit(LIMIT, create_look_delete),
        by_calls(BY_CALLS, url, PAIRS, NEEDS),
        by_with(BY_WITH, url, PAIRS, NEEDS),
        by_async_with(BY_ASYNC_WITH, url, PAIRS, NEEDS),
        peer(KAZOO, PAIRS),
    ),
    figure=MICROSECONDS,
    against=LIMIT,
    promises=(
        *(at_most(who, 1.15, MICROSECONDS, against=LIMIT) for who in OURS),
        *(faster(who, 1, MICROSECONDS, than=KAZOO.name) for who in OURS),
    ),
    server=zookeeper_server,
)
