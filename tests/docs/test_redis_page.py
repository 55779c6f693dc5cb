"""What docs/redis.md shows works as printed, and what it says about the server is what one finds there."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.crc import key_slot

import gripfast
from support.pages import blocks, page, run_program
from support.redis_server import RedisServer
from support.waiting import until

PAGE = page("redis")
OWNER = "[0-9a-f]{32}"
LAYOUT = b"gripfast\0gripfast:layout"


def table(heading: str) -> dict[str, str]:
    """First to second column of the table below these words: `a` → b."""
    rows = PAGE.partition(heading)[2].strip().partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in rows]
    return {first: second for first, second, *_ in cells}


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def data(server: RedisServer) -> Iterator["redis.Redis"]:
    with server.client() as client:
        client.flushall()
        yield client


@pytest.mark.parametrize("code", blocks(PAGE, "python"))
def test_every_example_of_the_page_runs(server: RedisServer, code: str, tmp_path: Path) -> None:
    assert "localhost:6379" in code
    assert run_program(code.replace("localhost:6379", f"127.0.0.1:{server.port}"), tmp_path)


@pytest.mark.parametrize("command", [line for block in blocks(PAGE, "redis") for line in block.splitlines()])
def test_every_command_of_the_page_is_one_that_redis_takes(command: str) -> None:
    with RedisServer() as own, own.client() as client:
        assert client.execute_command(*command.split()) in (b"OK", True)


def test_the_defaults_are_those_of_the_code(server: RedisServer, data: "redis.Redis") -> None:
    defaults = table("`connect()` as keywords:\n\n")
    with gripfast.connect(server.url) as client, client.lock("nightly") as lease:
        assert lease.ttl == float(defaults["ttl"])
        assert data.exists(defaults["prefix"] + "nightly")
        patience = client._runtime.env
        assert patience.request_timeout == float(defaults["request_timeout"])
        assert patience.connect_patience == float(defaults["connect_patience"])


def test_the_keys_on_the_server_are_those_the_page_names(server: RedisServer, data: "redis.Redis") -> None:
    kinds = table("`gripfast:` + one of:\n\n")
    types = {b"{lock:x}\0gripfast:" + kind.encode(): what.encode() for kind, what in kinds.items()}
    types = {key: b"zset" if what == b"sorted set" else what for key, what in types.items()}
    with gripfast.connect(server.url) as client, every_kind_of_key(client, data):
        found = {key: data.type(key) for key in data.scan_iter()}
        assert found == {b"lock:x": b"string", LAYOUT: b"string"} | types
        assert re.fullmatch(OWNER, data.get("lock:x").decode())
        channels = [channel.decode() for channel in data.pubsub_channels()]
        assert channels
        assert all(re.fullmatch(f"gripfast:{OWNER}", channel) for channel in channels)


@contextmanager
def every_kind_of_key(client: gripfast.Client, data: "redis.Redis") -> Iterator[None]:
    """One lease was force-released, one is held, and one waits."""
    broken = client.lock("x", renew=False).acquire()
    assert client.force_release("x", "deploy of v2")
    with ThreadPoolExecutor(1) as pool, client.lock("x"):
        waiter = pool.submit(lambda: client.lock("x").acquire(wait=20).release())
        until(lambda: data.exists(b"{lock:x}\0gripfast:line"))
        yield
    waiter.result()
    with pytest.raises(gripfast.LeaseLost):
        broken.release()


@pytest.mark.parametrize(("name", "tag"), [("{user7}:mail", "user7"), ("a}b", r"\d+")])
def test_side_keys_of_names_with_braces_are_as_the_page_says(
    server: RedisServer, data: Any, name: str, tag: str
) -> None:
    key = f"lock:{name}"
    with gripfast.connect(server.url) as client, client.lock(name):
        [token] = set(data.keys()) - {key.encode(), LAYOUT}
    assert re.fullmatch(rf"\{{{tag}\}}\0gripfast:token:{re.escape(key)}", token.decode())
    assert key_slot(token) == key_slot(key.encode())
