"""All of them at once, on one key: each adds to a number in steps that lose one if any two are at it together."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from redis import Redis

import gripfast
from interop.foreign import IN_NODE, IN_PYTHON, Foreign, add_one
from interop.node import Node
from support.redis_server import shared_server
from support.waiting import until

TIMES = 8
TTL = 6.0
EACH = 2
"""How many of each kind."""


@pytest.fixture
def others(node: Node) -> Iterator[list[Foreign]]:
    server = shared_server()
    libraries = [kind(server) for kind in IN_PYTHON for _ in range(EACH)]
    libraries += [kind(server, node) for kind in IN_NODE for _ in range(EACH)]
    with ExitStack() as stack:
        yield [stack.enter_context(closing(each)) for each in libraries]


def waits(url: str, counter: str) -> None:
    """A thread that waits in line."""
    with gripfast.connect(url) as client, shared_server().client() as store:
        for _ in range(TIMES):
            with client.lock("job", ttl=TTL).acquire(wait=50):
                add_one(store, counter)


def tries(url: str, counter: str) -> None:
    """A thread that asks, again and again, as the others do."""
    with gripfast.connect(url) as client, shared_server().client() as store:
        for _ in range(TIMES):
            with until(client.lock("job", ttl=TTL).try_acquire, within=50):
                add_one(store, counter)


def waits_as_tasks(url: str, counter: str) -> None:
    """Tasks of one client that wait in line."""

    async def count(client: gripfast.AsyncClient, store: Redis) -> None:
        for _ in range(TIMES):
            async with client.lock("job", ttl=TTL).acquire(wait=50):
                await asyncio.to_thread(add_one, store, counter)

    async def count_together() -> None:
        with shared_server().client() as store:
            async with gripfast.connect_async(url) as client:
                await asyncio.gather(*(count(client, store) for _ in range(EACH)))

    asyncio.run(count_together())


def waits_elsewhere(url: str, counter: str) -> None:
    """Another process that waits in line."""
    script = Path(__file__).with_name("counting.py")
    arguments = [url, shared_server().url, counter, str(TTL), str(TIMES)]
    ended = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, timeout=55)
    assert ended.returncode == 0, ended.stderr


def test_no_number_is_lost(others: list[Foreign], url: str, key: str, prefix: str, onlooker: Redis) -> None:
    counter = f"{prefix}counter"
    ours = [work for work in (waits, tries, waits_elsewhere) for _ in range(EACH)] + [waits_as_tasks]
    with ThreadPoolExecutor(max_workers=len(others) + len(ours)) as pool:
        counting = [pool.submit(each.count, key, TTL, counter, TIMES) for each in others]
        counting += [pool.submit(work, url, counter) for work in ours]
        for each in counting:
            each.result()
    assert int(onlooker.get(counter) or 0) == TIMES * (len(others) + len(ours) - 1 + EACH)
    assert not onlooker.exists(key)
