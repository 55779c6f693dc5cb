"""Any sequence of fenced writes on a real server: exactly those are done that nobody has overtaken."""

import asyncio
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from gripfast.errors import StaleToken
from gripfast.fencing import write
from support.redis_server import RedisServer

RESOURCES = ["stock", "prices", "STOCK"]
THREADS, WRITES = 8, 100

resources = st.sampled_from(RESOURCES)
tokens = st.integers(0, 12) | st.integers(2**53 - 2, 2**53 + 2) | st.integers(2**63 - 4, 2**63 - 2)
kinds = st.sampled_from(["one", "two", "fails first", "fails second", "unknown", "flush"])
steps = st.lists(st.tuples(kinds, resources, tokens), max_size=25)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


class Model:
    """What the server should have."""

    def __init__(self) -> None:
        self.fences: dict[str, int] = {}
        self.values: dict[str, str] = {}

    def step(self, kind: str, resource: str, token: int) -> str:
        """How it ends."""
        if kind == "flush":
            return "done"
        if self.fences.get(resource, token) > token:
            return f"stale {self.fences[resource]}"
        if kind == "unknown":
            return "error"
        self.fences[resource] = token
        if kind != "fails first":
            self.values[resource] = str(token)
        return "error" if kind.startswith("fails") else "done"


def step(client: "redis.Redis", kind: str, resource: str, token: int) -> str:
    """The same for real. `list` is a list, which INCR will not have; a batch writes its value first or second."""
    good, bad = ("SET", f"value:{resource}", token), ("INCR", "list")
    commands = {
        "one": [good],
        "two": [("GET", "list:none"), good],
        "fails first": [bad, good],
        "fails second": [good, bad],
        "unknown": [good, ("NO-SUCH", "command")],
    }
    try:
        if kind == "flush":
            client.script_flush()
        else:
            write(client, resource, token, *commands[kind])
    except StaleToken as refusal:
        return f"stale {refusal.seen}"
    except redis.ResponseError:
        return "error"
    return "done"


def stored(client: "redis.Redis", prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): str(client.get(key)) for key in client.scan_iter(f"{prefix}*")}


@settings(max_examples=60)
@given(sequence=steps)
def test_the_server_does_what_the_model_says(server: RedisServer, sequence: list[tuple[str, str, int]]) -> None:
    model = Model()
    with server.client(decode_responses=True) as client:
        client.flushall()
        client.rpush("list", "x")
        assert [step(client, *each) for each in sequence] == [model.step(*each) for each in sequence]
        assert stored(client, "value:") == model.values
        assert stored(client, "fence:") == {name: str(token) for name, token in model.fences.items()}


def shuffled(seed: int) -> list[int]:
    """Around 2**53, where doubles would confuse neighbours."""
    drawn = random.Random(seed)
    return [2**53 + drawn.randrange(-500, 500) for _ in range(WRITES)]


def assert_never_went_back(log: list[bytes], last: int) -> None:
    written = [int(entry) for entry in log]
    assert written == sorted(written)
    assert written[-1] == last


def test_of_many_threads_none_writes_after_a_larger_token(server: RedisServer) -> None:
    start = threading.Barrier(THREADS)

    def writer(seed: int) -> None:
        start.wait(5)
        for token in shuffled(seed):
            try:
                write(client, "register", token, ("RPUSH", "log", token), ("SET", "register", token))
            except StaleToken:
                pass

    with server.client() as client, ThreadPoolExecutor(THREADS) as pool:
        client.flushall()
        for done in [pool.submit(writer, seed) for seed in range(THREADS)]:
            done.result(timeout=30)
        largest = max(token for seed in range(THREADS) for token in shuffled(seed))
        assert_never_went_back(client.lrange("log", 0, -1), largest)
        assert client.get("register") == client.get("fence:register") == b"%d" % largest


def test_of_many_tasks_none_writes_after_a_larger_token(server: RedisServer) -> None:
    async def writer(client: "redis.asyncio.Redis", seed: int) -> None:
        for token in shuffled(seed):
            try:
                await write(client, "register", token, ("RPUSH", "log", token))
            except StaleToken:
                pass

    async def all_of_them() -> list[Any]:
        async with redis.asyncio.Redis.from_url(server.url) as client:
            await client.flushall()
            async with asyncio.TaskGroup() as group:
                for seed in range(THREADS):
                    group.create_task(writer(client, seed))
            return list(await client.lrange("log", 0, -1))

    largest = max(token for seed in range(THREADS) for token in shuffled(seed))
    assert_never_went_back(asyncio.run(all_of_them()), largest)
