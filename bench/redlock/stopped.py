"""Two of five nodes do not answer: what a pair costs then, and what the first one that meets them costs.

In every round each contestant connects anew and is measured with all nodes; then two are stopped, it is measured again,
and they go on. The others are told to wait for a node as long as Gripfast does: left alone they wait for ever,
or nearly.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count

import gripfast
from bench.locks import Locks, gripfast_locks
from bench.promise import at_most
from bench.redlock.nodes import NODE_TIMEOUT, NODES, five_nodes, stopped
from bench.redlock.npm import NPM, npm
from bench.redlock.peers import GRIPFAST, NEEDS, POTTERY, REDLOCK_PY, pottery, redlock_py
from bench.scenario import Contestant, Place, Sample, Scenario

STOPPED = 2
POTTERY_TTL = 2.0
"""pottery asks each node in a thread, and does not wait for the slowest: it may lock a node after it was to release it.
With three nodes left, one such node keeps everybody out until the lease ends; 30 s each time would take too long."""
PAIRS = (300, 5)
WARM_UP = (100, 1)
ASYNC = "gripfast, asyncio"

HEALTHY_US = "healthy µs"
STOPPED_US = "stopped µs"
SLOWER = "stopped × healthy"
FIRST = "first ms"
WORST = "worst ms"
HEALTHY_WORST = "healthy worst ms"
"""What this machine does to the slowest of as many pairs when nothing is stopped."""

Pairs = Callable[[int], Sequence[float]]
"""Takes and gives back so many times; how long each of them took, in seconds."""

Connected = Callable[[str, str], AbstractContextManager[Pairs]]
"""To a URL, for a lock of a name."""


def contestant(name: str, connected: Connected, needs: tuple[str, ...] = ()) -> Contestant:
    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        # A new lock each time: nodes that were stopped do late what they were asked meanwhile.
        numbers = count(1)
        yield lambda: measured(place, connected, f"bench:{next(numbers)}")

    return Contestant(name, opened, needs)


def measured(place: Place, connected: Connected, name: str) -> Sample:
    with connected(place.url, name) as pairs:
        pairs(place.size(*WARM_UP))
        healthy = pairs(place.size(*PAIRS))
        with stopped(place.url, STOPPED):
            first, *later = pairs(place.size(*PAIRS))
    return figures(healthy, first, later)


def figures(healthy: Sequence[float], first: float, later: Sequence[float]) -> Sample:
    before, after = statistics.median(healthy), statistics.median(later)
    return {
        HEALTHY_US: before * 1e6,
        STOPPED_US: after * 1e6,
        SLOWER: after / before,
        FIRST: first * 1e3,
        WORST: max(first, *later) * 1e3,
        HEALTHY_WORST: max(healthy) * 1e3,
    }


@contextmanager
def with_lock(locks: Locks, url: str, name: str) -> Iterator[Pairs]:
    with locks(url) as lock_of:
        lock = lock_of(name)

        def pair() -> float:
            started = time.perf_counter()
            with lock:
                pass
            return time.perf_counter() - started

        yield lambda times: [pair() for _ in range(times)]


@contextmanager
def on_a_loop(url: str, name: str) -> Iterator[Pairs]:
    with asyncio.Runner() as runner:
        client = gripfast.connect_async(url)
        lock = client.lock(name)

        async def pair() -> float:
            started = time.perf_counter()
            async with lock:
                pass
            return time.perf_counter() - started

        async def pairs(times: int) -> Sequence[float]:
            return [await pair() for _ in range(times)]

        yield lambda times: runner.run(pairs(times))
        runner.run(client.aclose())


@contextmanager
def in_node(url: str, name: str) -> Iterator[Pairs]:
    with npm(url, timeout=NODE_TIMEOUT) as node:
        yield lambda times: node.ask("attempts", key=f"npm:{name}", times=times)


REDLOCK_STOPPED = Scenario(
    name=f"redlock {STOPPED} of {NODES} stopped",
    about=f"pairs while {STOPPED} of {NODES} nodes are stopped (SIGSTOP), beside the same with all nodes",
    contestants=(
        contestant(GRIPFAST.name, partial(with_lock, gripfast_locks), NEEDS),
        contestant(ASYNC, on_a_loop, NEEDS),
        contestant(REDLOCK_PY.name, partial(with_lock, partial(redlock_py, timeout=NODE_TIMEOUT)), REDLOCK_PY.needs),
        contestant(
            POTTERY.name, partial(with_lock, partial(pottery, timeout=NODE_TIMEOUT, ttl=POTTERY_TTL)), POTTERY.needs
        ),
        contestant(NPM, in_node),
    ),
    figure=STOPPED_US,
    promises=tuple(
        promise
        for who in (GRIPFAST.name, ASYNC)
        for promise in (
            at_most(who, 1.3, SLOWER),
            at_most(who, 2 * NODE_TIMEOUT * 1e3, WORST, always=True),
        )
    ),
    charted=(HEALTHY_US, WORST),
    rounds=11,
    pinned=False,
    server=five_nodes,
)
