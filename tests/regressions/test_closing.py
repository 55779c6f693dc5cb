"""A client that is closed while a claim of its waits for the connection: the claim is not sent any more."""

import asyncio
import random

import pytest

import gripfast
from regressions.sql_stage import ENGINES
from support.redis_server import RedisServer
from support.waiting import until

ROUNDS = 40
TTL = 600.0


async def close_beside_a_claim(url: str, name: str, delay: float) -> None:
    client = gripfast.connect_async(url)
    claim = asyncio.create_task(client.lock(name, ttl=TTL).try_acquire())
    await asyncio.wait([claim], timeout=delay)
    await client.aclose()
    await asyncio.gather(claim, return_exceptions=True)


def leave_nothing(url: str, seconds: float) -> None:
    """`seconds`: about as long as it takes to connect."""
    chance = random.Random(7)
    for number in range(ROUNDS):
        asyncio.run(close_beside_a_claim(url, f"job-{number}", chance.random() * seconds))
    with gripfast.connect(url) as other:
        until(lambda: not list(other.list()))


def test_nothing_is_left_on_redis(server: RedisServer) -> None:
    with server.client() as client:
        client.flushall()
    leave_nothing(server.url, 0.006)


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_is_left_in_a_database(engine: str) -> None:
    with ENGINES[engine]() as server:
        leave_nothing(server.lock_space(), 0.03)
