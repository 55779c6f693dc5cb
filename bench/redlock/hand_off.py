"""Eight processes that want one lock of five nodes all the time, on all cores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from bench.crew import RUN_UP, Shift, Turn
from bench.hand_off import ACQUIRED, HAND_OFFS, PROCESSES, QUICK_SECONDS, SECONDS, figures, processes
from bench.redis.hand_off import url
from bench.redlock.nodes import counters, five_nodes
from bench.redlock.npm import NPM, RETRIES, Npm, npm
from bench.redlock.peers import GRIPFAST, POTTERY, REDLOCK_PY
from bench.scenario import CONTENDED, Contestant, Place, Sample, Scenario

NPM_ONCE = f"{NPM}, retryCount 0"


def npm_processes(name: str, retries: int) -> Contestant:
    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        seconds = QUICK_SECONDS if place.quick else SECONDS
        with ExitStack() as stack:
            nodes = [stack.enter_context(npm(place.url, retries)) for _ in range(PROCESSES)]
            yield lambda: figures(*work(nodes, name, seconds))

    return Contestant(name, opened)


def work(nodes: Sequence[Npm], key: str, seconds: float) -> tuple[Shift, list[list[Turn]]]:
    begin = time.monotonic() + RUN_UP
    shift = Shift(begin, begin + seconds, 0.0)
    for node in nodes:
        node.order("turns", key=key, **shift._asdict())
    return shift, [[Turn(*turn) for turn in node.answer()] for node in nodes]


REDLOCK_HAND_OFF = Scenario(
    name=f"redlock {PROCESSES} processes",
    about=f"{PROCESSES} processes that pass one lock of five nodes around, kept for 0 ms, beside other libraries",
    contestants=(
        *(processes(make.name, make, url, counters=counters) for make in (GRIPFAST, REDLOCK_PY, POTTERY)),
        npm_processes(NPM, RETRIES),
        npm_processes(NPM_ONCE, 0),
    ),
    figure=ACQUIRED,
    against=REDLOCK_PY.name,
    charted=(HAND_OFFS, "wait p50 ms", "wait p99 ms"),
    rounds=5,
    pinned=False,
    server=five_nodes,
    slower=CONTENDED,
)
