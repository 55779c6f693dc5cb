"""Acquiring and releasing a free lock on etcd: what a lock costs when nobody is in the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager

from bench.etcd import grpcio
from bench.etcd.limit import NEEDS, Pair, bare, bare_pairs
from bench.etcd.peers import AETCD, ETCD3GW, GRIPFAST_ASYNC, TOOZ, etcd3gw_of_its_own
from bench.etcd.server import etcd_server, hasty_server
from bench.gripfast_pair import BY_ASYNC_WITH, BY_CALLS, BY_WITH, Times, by_async_with, by_calls, by_with
from bench.promise import at_least, at_most, faster
from bench.redis.hand_off import url
from bench.redis.pair import TASKS, by_each, many_tasks, one_task, peer
from bench.scenario import Contestant, Place, Sample, Scenario
from bench.timing import MICROSECONDS, PAIRS_PER_SECOND, per_operation

PAIRS = (200, 3)
PAIRS_ON_DISK = (50, 3)
PAIRS_OF_THREAD = (10, 1)
LIMIT = "bare requests"
GRPCIO = "bare grpcio"
THREADS = f"{ETCD3GW.name}, {TASKS} threads"


def limit(
    name: str, connected: Callable[[str], AbstractContextManager[Pair]], needs: tuple[str, ...], times: Times = PAIRS
) -> Contestant:
    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        with connected(place.url) as pair:
            yield lambda: per_operation(pair, place.size(*times))

    return Contestant(name, opened, needs)


@contextmanager
def threads(place: Place) -> Iterator[Callable[[], Sample]]:
    """Each thread has a lock and a connection of its own."""
    with etcd3gw_of_its_own(place.url) as lock_of, ThreadPoolExecutor(TASKS) as pool:
        locks, times = [lock_of(f"bench:{number}") for number in range(TASKS)], place.size(*PAIRS_OF_THREAD)

        def repeat(lock: AbstractContextManager[object]) -> None:
            for _ in range(times):
                with lock:
                    pass

        def measure() -> Sample:
            started = time.perf_counter()
            list(pool.map(repeat, locks))
            return {PAIRS_PER_SECOND: TASKS * times / (time.perf_counter() - started)}

        yield measure


ETCD_PAIR = Scenario(
    name="etcd pair",
    about="acquiring and releasing a free lock on etcd, beside the same requests bare, and other libraries' locks",
    contestants=(
        limit(LIMIT, bare, NEEDS),
        by_calls(BY_CALLS, url, PAIRS, NEEDS),
        by_with(BY_WITH, url, PAIRS, NEEDS),
        limit(GRPCIO, grpcio.grpcio, grpcio.NEEDS),
        peer(ETCD3GW, PAIRS),
        peer(TOOZ, PAIRS),
    ),
    figure=MICROSECONDS,
    against=LIMIT,
    promises=(
        *(at_most(who, 1.25, MICROSECONDS, against=LIMIT) for who in (BY_CALLS, BY_WITH)),
        *(
            faster(who, 1, MICROSECONDS, than=other)
            for who in (BY_CALLS, BY_WITH)
            for other in (GRPCIO, ETCD3GW.name, TOOZ.name)
        ),
    ),
    server=hasty_server,
)

ETCD_PAIR_ASYNC = Scenario(
    name="etcd pair, asyncio",
    about="the same on an event loop, one task, beside the same bare requests there, and aetcd's lock",
    contestants=(
        one_task(LIMIT, bare_pairs(joined=False), NEEDS, PAIRS),
        by_async_with(BY_ASYNC_WITH, url, PAIRS, NEEDS),
        one_task(GRPCIO, grpcio.grpcio_pairs, grpcio.NEEDS, PAIRS),
        one_task(AETCD.name, AETCD.pairs, AETCD.needs, PAIRS),
    ),
    figure=MICROSECONDS,
    against=LIMIT,
    promises=(
        at_most(BY_ASYNC_WITH, 1.25, MICROSECONDS, against=LIMIT),
        *(faster(BY_ASYNC_WITH, 1, MICROSECONDS, than=other) for other in (GRPCIO, AETCD.name)),
    ),
    server=hasty_server,
)

ETCD_DISK = Scenario(
    name="etcd pair, on disk",
    about="the same with every write on disk before it is answered, as the server has it",
    contestants=(
        limit(LIMIT, bare, NEEDS, PAIRS_ON_DISK),
        by_calls(BY_CALLS, url, PAIRS_ON_DISK, NEEDS),
        by_async_with(BY_ASYNC_WITH, url, PAIRS_ON_DISK, NEEDS),
        limit(GRPCIO, grpcio.grpcio, grpcio.NEEDS, PAIRS_ON_DISK),
        peer(ETCD3GW, PAIRS_ON_DISK),
        one_task(AETCD.name, AETCD.pairs, AETCD.needs, PAIRS_ON_DISK),
    ),
    figure=MICROSECONDS,
    against=LIMIT,
    promises=(
        *(at_most(who, 1.25, MICROSECONDS, against=LIMIT) for who in (BY_CALLS, BY_ASYNC_WITH)),
        faster(BY_CALLS, 1, MICROSECONDS, than=GRPCIO),
    ),
    server=etcd_server,
)

ETCD_TASKS = Scenario(
    name=f"etcd {TASKS} tasks",
    about=f"pairs per second of {TASKS} tasks, each with its own lock, beside aetcd's, and {TASKS} threads of etcd3gw",
    contestants=(
        many_tasks(LIMIT, bare_pairs(joined=True), NEEDS),
        *by_each(many_tasks, GRIPFAST_ASYNC, AETCD),
        many_tasks(GRPCIO, grpcio.grpcio_pairs, grpcio.NEEDS),
        Contestant(THREADS, threads, ETCD3GW.needs),
    ),
    figure=PAIRS_PER_SECOND,
    against=THREADS,
    promises=(
        at_least(GRIPFAST_ASYNC.name, 5, PAIRS_PER_SECOND, against=THREADS),
        at_least(GRIPFAST_ASYNC.name, 1, PAIRS_PER_SECOND, against=AETCD.name),
    ),
    server=hasty_server,
)
