"""What the benchmarks of etcd measure with: a wrong ruler measures nothing."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

import gripfast
from bench.etcd import grpcio, limit
from bench.etcd.limit import Bare, Pair
from bench.etcd.server import REQUESTS, counters, hasty_server
from bench.redis.aio import Pairs
from bench.runner import is_installed
from gripfast.stores.etcd.messages import PutRequest, RangeRequest

needs_grpcio = pytest.mark.skipif(not all(map(is_installed, grpcio.NEEDS)), reason="not installed")


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with hasty_server(tmp_path) as url:
        yield url


@pytest.mark.parametrize(
    ("queue", "connected"),
    [(b"bare:bench/", limit.bare), pytest.param(b"grpcio:bench/", grpcio.grpcio, marks=needs_grpcio)],
    ids=["our frames", "grpcio"],
)
def test_the_bare_lock_excludes_and_leaves_nothing_behind(
    queue: bytes, connected: Callable[[str], AbstractContextManager[Pair]], url: str
) -> None:
    with connected(url) as pair, closing(Bare(url)) as wire:
        everything = RangeRequest(queue, queue[:-1] + b"0")
        pair()
        assert wire.ask(everything).kvs == ()
        wire.ask(PutRequest(queue + b"someone", b"", 0))
        with pytest.raises(RuntimeError, match="not free"):
            pair()
        assert queue + b"someone" in [kv.key for kv in wire.ask(everything).kvs]


@pytest.mark.parametrize(
    "pairs",
    [limit.bare_pairs(True), limit.bare_pairs(False), pytest.param(grpcio.grpcio_pairs, marks=needs_grpcio)],
    ids=["joined", "one by one", "grpcio"],
)
def test_the_bare_locks_of_many_tasks_are_apart(pairs: Pairs, url: str) -> None:
    async def scenario() -> None:
        async with pairs(url) as pair_of:
            await asyncio.gather(*(pair_of(f"bench:{number}")() for number in range(20)))

    asyncio.run(scenario())


def test_gripfast_sends_what_the_limit_sends(url: str) -> None:
    with gripfast.connect(url) as client, limit.bare(url) as bare, counters(url) as counted:
        lock = client.lock("bench")
        lock.acquire().release()  # it gets to know the cluster
        spent = {}
        for name, pair in {"bare": bare, "gripfast": lambda: lock.acquire().release()}.items():
            before = counted()[REQUESTS]
            for _ in range(10):
                pair()
            spent[name] = counted()[REQUESTS] - before
        assert spent == {"bare": 20, "gripfast": 20}
