"""Acquiring and releasing a free lock on a Redis that has a replica: what each level against failovers costs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gripfast
from bench.gripfast_pair import Address, by_async_with, by_with
from bench.promise import at_most
from bench.redis.pair import PAIRS, url
from bench.redis.server import UP_WITHIN, redis_server
from bench.scenario import Scenario
from bench.timing import MICROSECONDS

GRACE = "?failover_grace=1&max_ttl=60"
ACKNOWLEDGED = f"{GRACE}&replicas=1"
LEVELS = {"": "", " with grace": GRACE, " with replicas=1": ACKNOWLEDGED}
NEEDS = ("redis",)

PLAIN, PLAIN_ASYNC = "gripfast", "gripfast, asyncio"
OURS = {level: (f"gripfast{level}", f"gripfast{level}, asyncio") for level in LEVELS}


@contextmanager
def with_replica(folder: Path) -> Iterator[str]:
    """As after `gripfast init`: no grace is left, and the replica follows."""
    (folder / "replica").mkdir()
    with redis_server(folder) as primary:
        host, port = primary.removeprefix("redis://").removesuffix("/0").split(":")
        with redis_server(folder / "replica", ["--replicaof", host, port]):
            _prepare(primary)
            yield primary


def _prepare(primary: str) -> None:
    deadline = time.monotonic() + UP_WITHIN
    with gripfast.connect(primary + ACKNOWLEDGED) as client:
        while (done := client._prepare(None, ends_grace=True)).unaware:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the replica does not follow: {done}")


def _at(options: str) -> Address:
    return lambda place: url(place) + options


REDIS_REPLICATED = Scenario(
    name="redis pair, replicated",
    about="a free lock on a Redis that has a replica, without a level against failovers and with each of the two",
    contestants=tuple(
        contestant
        for level, options in LEVELS.items()
        for contestant in (
            by_with(OURS[level][0], _at(options), PAIRS, NEEDS),
            by_async_with(OURS[level][1], _at(options), PAIRS, NEEDS),
        )
    ),
    figure=MICROSECONDS,
    against=PLAIN,
    promises=tuple(
        at_most(who, most, MICROSECONDS, against=plain)
        for level, most in ((" with grace", 1.12), (" with replicas=1", 1.5))
        for who, plain in zip(OURS[level], (PLAIN, PLAIN_ASYNC), strict=True)
    ),
    server=with_replica,
)
