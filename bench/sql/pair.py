"""Acquiring and releasing a free lock on SQL servers: what a lock costs when nobody is in the way.

A commit is on disk before it is answered, and what that costs stands beside the rest: a lease is two commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.gripfast_pair import by_async_with, by_calls
from bench.promise import Promise, at_most, faster
from bench.redis.pair import peer
from bench.scenario import Contestant, Place, Sample, Scenario
from bench.sql.engines import ADVISORY, LIMITS, MARIA, MODES, POSTGRES, ROW, Bare, Engine, address, ours, ours_async
from bench.sql.limit import commit
from bench.timing import MICROSECONDS, per_operation

PAIRS = (30, 3)
COMMIT = "one commit"


def bare(mode: str) -> str:
    return f"bare {mode}"


def limit(name: str, connected: Bare, needs: tuple[str, ...]) -> Contestant:
    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        with connected(place.url) as pair:
            yield lambda: per_operation(pair, place.size(*PAIRS))

    return Contestant(name, opened, needs)


def of_mode(engine: Engine, mode: str) -> tuple[Contestant, ...]:
    return (
        limit(bare(mode), LIMITS[mode], engine.needs),
        by_calls(ours(mode), address(mode), PAIRS, engine.needs),
        by_async_with(ours_async(mode), address(mode), PAIRS, engine.needs),
    )


def promises(engine: Engine) -> Iterator[Promise]:
    for mode in (ROW, ADVISORY):
        yield at_most(ours(mode), 1.5, MICROSECONDS, against=bare(mode))
    for each in engine.peers:
        yield faster(ours(ADVISORY), 1, MICROSECONDS, than=each.name)


def pair(engine: Engine) -> Scenario:
    return Scenario(
        name=f"sql pair, {engine.name}",
        about=f"acquiring and releasing a free lock on {engine.name}, beside the bare statements and other libraries",
        contestants=(
            limit(COMMIT, commit, engine.needs),
            *(contestant for mode in MODES for contestant in of_mode(engine, mode)),
            *(peer(make, PAIRS) for make in engine.peers),
        ),
        figure=MICROSECONDS,
        against=COMMIT,
        promises=tuple(promises(engine)),
        rounds=13,
        server=engine.server,
    )


SQL_PAIR_POSTGRES = pair(POSTGRES)
SQL_PAIR_MARIA = pair(MARIA)
