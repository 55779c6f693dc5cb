"""The fenced write for Redis, in both colours and however the client decodes: check and commands are one step."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

from gripfast.errors import ConfigurationError, StaleToken
from gripfast.fencing import guard, write
from support.redis_server import RedisServer

Write = Callable[..., list[Any]]
LARGEST = 2**63 - 2


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def data(server: RedisServer) -> Iterator["redis.Redis"]:
    """What is on the server, which is empty at first."""
    with server.client(decode_responses=True) as client:
        client.flushall()
        yield client


@pytest.fixture(params=["blocking", "asyncio"])
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["bytes", "text"])
def decode(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def fenced(server: RedisServer, data: "redis.Redis", colour: str, decode: bool) -> Iterator[Write]:
    """`write` on a client of this kind."""
    if colour == "blocking":
        with server.client(decode_responses=decode) as client:
            yield lambda *arguments, **options: write(client, *arguments, **options)
    else:
        with asyncio.Runner() as runner:
            later = redis.asyncio.Redis.from_url(server.url, decode_responses=decode)

            async def awaited(*arguments: Any, **options: Any) -> list[Any]:
                return await write(later, *arguments, **options)

            yield lambda *arguments, **options: runner.run(awaited(*arguments, **options))
            runner.run(later.aclose())


def test_a_smaller_token_is_refused_told_what_was_seen_and_writes_nothing(fenced: Write, data: "redis.Redis") -> None:
    fenced("stock", 34, ("SET", "amount", "90"))
    with pytest.raises(StaleToken) as refusal:
        fenced("stock", 33, ("SET", "amount", "101"), ("SET", "more", "1"))
    assert (refusal.value.resource, refusal.value.token, refusal.value.seen) == ("stock", 33, 34)
    assert (data.get("amount"), data.get("more"), data.get("fence:stock")) == ("90", None, "34")


def test_equal_and_larger_tokens_pass(fenced: Write, data: "redis.Redis") -> None:
    for token in (34, 34, 35, LARGEST, LARGEST):
        fenced("stock", token, ("SET", "amount", token))
        assert data.get("amount") == data.get("fence:stock") == str(token)


@pytest.mark.parametrize(
    ("seen", "late"),
    [(10, 9), (2**53 + 1, 2**53), (2**53, 2**53 - 1), (LARGEST, LARGEST - 1), (10**18, 10**18 - 1), (1, 0)],
)
def test_tokens_are_compared_to_the_last_digit(fenced: Write, data: "redis.Redis", seen: int, late: int) -> None:
    fenced("stock", late, ("SET", "amount", "older"))
    fenced("stock", seen, ("SET", "amount", "newer"))
    with pytest.raises(StaleToken) as refusal:
        fenced("stock", late, ("SET", "amount", "late"))
    assert refusal.value.seen == seen
    assert data.get("amount") == "newer"


def test_the_replies_come_in_order_as_the_client_reads_them(fenced: Write, decode: bool) -> None:
    replies = fenced("stock", 1, ("SET", "a", "x"), ("GET", "a"), ("GET", "b"), ("RPUSH", "c", 1, 2), ("DEL", "b"))
    ok, x = ("OK", "x") if decode else (b"OK", b"x")
    assert replies == [ok, x, None, 2, 0]
    assert fenced("stock", 1, ("MGET", "b", "a", "b")) == [[None, x, None]]


def test_without_a_command_the_token_is_checked_and_remembered(fenced: Write) -> None:
    assert fenced("stock", 34) == []
    with pytest.raises(StaleToken):
        fenced("stock", 33)


def test_a_server_that_forgot_the_script_is_told_it_again(fenced: Write, data: "redis.Redis") -> None:
    for token in (1, 2):
        data.script_flush()
        fenced("stock", token, ("INCR", "writes"))
        fenced("stock", token, ("INCR", "writes"))
    assert data.get("writes") == "4"


def test_resources_do_not_know_each_other(fenced: Write, data: "redis.Redis") -> None:
    fenced("Job", 34, ("SET", "a", "1"))
    fenced("job", 1, ("SET", "a", "2"))
    fenced("库存 {x}", 2, ("SET", "a", "3"))
    assert {key: data.get(key) for key in data.scan_iter("fence:*")} == {
        "fence:Job": "34",
        "fence:job": "1",
        "fence:库存 {x}": "2",
    }


def test_words_may_be_text_bytes_and_numbers(fenced: Write, data: "redis.Redis") -> None:
    fenced("stock", 1, [b"set", b"a", memoryview(b"x")], ("INCRBY", "b", 7), ("incrbyfloat", "c", 1.5))
    assert data.mget("a", "b", "c") == ["x", "7", "1.5"]


@pytest.mark.parametrize(
    "command",
    ["SET a b", (), ("",), ("SET a b",), (1, "a"), ("SET", "a", None), ("SET", "a", True), None, ("SÉT", "a")],
)
def test_what_is_no_command_is_refused(fenced: Write, data: "redis.Redis", command: object) -> None:
    with pytest.raises(ConfigurationError, match="command"):
        fenced("stock", 1, ("SET", "b", "1"), command)
    assert data.dbsize() == 0


@pytest.mark.parametrize(
    ("resource", "token"), [("", 1), ("a\0b", 1), ("stock", -1), ("stock", True), ("stock", 2**63 - 1)]
)
def test_bad_resources_and_tokens_are_refused_as_by_every_guard(fenced: Write, resource: str, token: int) -> None:
    with pytest.raises(ConfigurationError, match=r"resource|token"):
        fenced(resource, token, ("SET", "a", "1"))


def test_the_fence_is_the_same_whatever_the_clients_encoding(server: RedisServer, data: "redis.Redis") -> None:
    with server.client(encoding="utf-16") as client:
        write(client, "é", 2, ("SET", "a", "1"))
    with server.client(encoding="latin-1") as client, pytest.raises(StaleToken):
        write(client, "é", 1, ("SET", "a", "2"))
    assert data.get("fence:é") == "2"


class Traced(redis.Redis):
    """What an application may derive for itself."""


def test_a_derived_client_is_a_client(server: RedisServer, data: "redis.Redis") -> None:
    with Traced.from_url(server.url) as client:
        assert write(client, "stock", 1, ("INCR", "a")) == [1]


def test_what_is_no_client_is_refused_by_its_name(data: "redis.Redis") -> None:
    with pytest.raises(ConfigurationError, match=r"needs a redis\.Redis .*, not a builtins\.object"):
        write(object(), "stock", 1, ("SET", "a", "1"))  # type: ignore[call-overload]
    with data.pipeline() as pipeline, pytest.raises(ConfigurationError, match=r"not a redis\.client\.Pipeline"):
        write(pipeline, "stock", 1, ("SET", "a", "1"))


def test_guard_sends_redis_clients_to_the_fenced_write(data: "redis.Redis") -> None:
    for client in (data, redis.asyncio.Redis()):
        with pytest.raises(ConfigurationError, match=r"fencing\.write\(client, resource, token, \*commands\)"):
            guard(client, "stock", 1)


def test_importing_the_fences_imports_no_client_of_redis() -> None:
    code = "import sys, gripfast.fencing; sys.exit('redis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
