"""Acquiring and releasing a free lock on five nodes: what a lock costs when nobody is in the way.

On all cores: nodes are machines of their own, and on a single core the work that they do at the same time would add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from bench.gripfast_pair import BY_ASYNC_WITH, BY_CALLS, BY_WITH, by_async_with, by_calls, by_with
from bench.promise import at_most, faster
from bench.redis.pair import one_task, peer, url
from bench.redlock.limit import BARE, BARE_MAJORITY, bare
from bench.redlock.nodes import MAJORITY, five_nodes
from bench.redlock.npm import NPM, npm
from bench.redlock.peers import AIO_POTTERY, NEEDS, POTTERY, REDLOCK_PY
from bench.scenario import Contestant, Place, Sample, Scenario
from bench.timing import MICROSECONDS

PAIRS = (100, 5)
PAIRS_ON_DISK = (25, 2)

TO_DISK = ("--appendonly", "yes", "--appendfsync", "always")


@contextmanager
def npm_pair(place: Place) -> Iterator[Callable[[], Sample]]:
    with npm(place.url) as node:
        yield lambda: {MICROSECONDS: node.ask("pairs", key="npm:bench", times=place.size(*PAIRS)) * 1e6}


def on_disk(contestant: Contestant) -> Contestant:
    """The same with five nodes of its own, which write to disk before they answer."""

    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        with (
            five_nodes(place.folder, TO_DISK) as nodes,
            contestant.open(replace(place, url=nodes)) as measure,
        ):
            yield measure

    return replace(contestant, name=f"{contestant.name}, on disk", open=opened)


REDLOCK_PAIR = Scenario(
    name="redlock pair",
    about="acquiring and releasing a free lock on five nodes, beside other libraries and five bare sockets",
    contestants=(
        bare(BARE, url, PAIRS),
        bare(BARE_MAJORITY, url, PAIRS, MAJORITY),
        by_calls(BY_CALLS, url, PAIRS, NEEDS),
        by_with(BY_WITH, url, PAIRS, NEEDS),
        by_async_with(BY_ASYNC_WITH, url, PAIRS, NEEDS),
        peer(REDLOCK_PY, PAIRS),
        peer(POTTERY, PAIRS),
        one_task(AIO_POTTERY.name, AIO_POTTERY.pairs, AIO_POTTERY.needs, PAIRS),
        Contestant(NPM, npm_pair),
    ),
    figure=MICROSECONDS,
    against=BARE,
    promises=tuple(
        promise
        for who in (BY_CALLS, BY_WITH)
        for promise in (
            at_most(who, 1.4, MICROSECONDS, against=BARE),
            faster(who, 1.8, MICROSECONDS, than=REDLOCK_PY.name),
            faster(who, 6, MICROSECONDS, than=POTTERY.name),
        )
    ),
    pinned=False,
    server=five_nodes,
)

REDLOCK_DISK = Scenario(
    name="redlock pair, on disk",
    about="the same with and without five nodes that write to disk before they answer (appendfsync always)",
    contestants=(
        by_calls(BY_CALLS, url, PAIRS_ON_DISK, NEEDS),
        *(
            on_disk(each)
            for each in (
                bare(BARE, url, PAIRS_ON_DISK),
                by_calls(BY_CALLS, url, PAIRS_ON_DISK, NEEDS),
                peer(REDLOCK_PY, PAIRS_ON_DISK),
                peer(POTTERY, PAIRS_ON_DISK),
            )
        ),
    ),
    figure=MICROSECONDS,
    against=BY_CALLS,
    pinned=False,
    server=five_nodes,
)
