"""Tokens of those who share a resource, on Redis: as the gate decides, in one step with the write."""

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

import gripfast
from fencing.test_shared_guard import Step, answers, steps
from gripfast.errors import StaleToken
from gripfast.fencing import Gate, write
from support.redis_server import RedisServer

OF_OLDER_VERSIONS = re.compile(r"\d+")
"""What they take for a token; they refuse to write if it is something else."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def data(server: RedisServer) -> Iterator["redis.Redis"]:
    with server.client(decode_responses=True) as client:
        client.flushall()
        yield client


def test_a_late_reader_writes_nothing_and_readers_beside_each_other_do(
    server: RedisServer, data: "redis.Redis"
) -> None:
    with gripfast.connect(server.url) as client, gripfast.connect(server.url) as other:
        index = client.rwlock("index", ttl=0.1, renew=False)
        late = index.read().acquire()
        late.lost.wait()
        with index.write() as writer:
            write(data, "index", writer.token, ("SET", "index", "new"))
        with pytest.raises(StaleToken) as refusal:
            write(data, "index", late.token, ("SET", "index:seen", "old"), shared=True)
        assert refusal.value.seen == writer.token
        first, second = [each.rwlock("index").read().acquire() for each in (client, other)]
        for lease in (second, first):
            write(data, "index", lease.token, ("RPUSH", "index:seen", lease.token), shared=True)
        assert data.lrange("index:seen", 0, -1) == [str(second.token), str(first.token)]
        with pytest.raises(StaleToken):
            write(data, "index", writer.token, ("SET", "index", "newer"))
        assert data.get("index") == "new"


def test_an_older_version_writes_again_after_an_exclusive_token(data: "redis.Redis") -> None:
    write(data, "index", 34)
    assert data.get("fence:index") == "34"
    write(data, "index", 36, shared=True)
    assert not OF_OLDER_VERSIONS.fullmatch(str(data.get("fence:index")))
    write(data, "index", 37)
    assert data.get("fence:index") == "37"
    write(data, "index", 37, shared=True)
    assert data.get("fence:index") == "37"


def test_a_shared_fence_that_is_forgotten_lets_nobody_stale_in(data: "redis.Redis") -> None:
    seconds, microseconds = data.time()
    now = seconds * 1_000_000 + microseconds
    write(data, "index", now + 1, keep=100, shared=True)
    write(data, "index", now, keep=100, shared=True)
    assert 90_000 < data.pttl("fence:index") <= 100_002
    data.delete("fence:index")
    for shared in (True, False):
        with pytest.raises(StaleToken):
            write(data, "index", now - 101_000_000, keep=100, shared=shared)


@settings(max_examples=60)
@given(sequence=steps, is_async=st.booleans())
def test_the_server_answers_as_the_gate_does(server: RedisServer, sequence: list[Step], is_async: bool) -> None:
    with server.client() as client:
        client.flushall()
        if not is_async:
            told = answers(lambda *given, **how: write(client, *given, **how), sequence)
        else:
            with asyncio.Runner() as runner:
                told = answers(awaited(runner, server.url), sequence)
        assert told == answers(Gate().guard, sequence)


def awaited(runner: asyncio.Runner, url: str) -> Callable[..., list[Any]]:
    async def once(*given: Any, **how: Any) -> list[Any]:
        async with redis.asyncio.Redis.from_url(url) as client:
            return await write(client, *given, **how)

    return lambda *given, **how: runner.run(once(*given, **how))
