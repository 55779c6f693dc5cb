"""Fenced writes that can't be done: what is written then, and what is said.

Redis undoes nothing. So whatever can be known beforehand is asked beforehand; the rest is told as it is.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from gripfast.errors import ConfigurationError, StaleToken
from gripfast.fencing import write
from gripfast.fencing.redis import MAX_WORDS
from support.redis_server import RedisServer
from support.waiting import until

NOTHING = "nothing was written"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def client(server: RedisServer) -> Iterator["redis.Redis"]:
    """With a hash where a command might expect something else."""
    with server.client(decode_responses=True) as client:
        client.flushall()
        client.hset("hash", "field", "value")
        yield client


def rest(client: "redis.Redis") -> set[Any]:
    """The keys that were not there at first."""
    return set(client.keys()) - {"hash"}


# What is known only when it happens --------------------------------------------------------------------------------


def test_one_command_that_fails_leaves_only_the_token(client: "redis.Redis") -> None:
    with pytest.raises(redis.ResponseError, match=r"^WRONGTYPE .*command 1 of 1, INCR: only the token was remembered"):
        write(client, "stock", 34, ("INCR", "hash"))
    assert rest(client) == {"fence:stock"}
    with pytest.raises(StaleToken):
        write(client, "stock", 33, ("SET", "amount", "1"))


def test_of_several_commands_those_before_the_failing_one_stay_and_the_error_says_so(client: "redis.Redis") -> None:
    with pytest.raises(redis.ResponseError, match=r"^WRONGTYPE .*command 2 of 3, INCR: those before it were done, it"):
        write(client, "stock", 34, ("SET", "first", "1"), ("INCR", "hash"), ("SET", "third", "1"))
    assert rest(client) == {"fence:stock", "first"}
    with pytest.raises(StaleToken):
        write(client, "stock", 33, ("SET", "first", "2"))


@pytest.mark.parametrize("command", [("GET",), ("SUBSCRIBE", "channel"), ("SET", "a", "b", "NONSENSE")])
def test_a_command_that_is_wrong_in_itself_is_named_too(client: "redis.Redis", command: tuple[str, ...]) -> None:
    with pytest.raises(redis.ResponseError, match=rf"command 1 of 2, {command[0]}: only the token was remembered"):
        write(client, "stock", 34, command, ("SET", "second", "1"))
    assert rest(client) == {"fence:stock"}


# What is known beforehand ------------------------------------------------------------------------------------------


def test_a_command_that_the_server_does_not_have_stops_all_of_them(client: "redis.Redis") -> None:
    with pytest.raises(redis.ResponseError, match=f"no such command .*command 2 of 2, STE: {NOTHING}"):
        write(client, "stock", 34, ("SET", "first", "1"), ("STE", "second", "1"))
    assert rest(client) == set()


@pytest.mark.parametrize(
    "command",
    [
        ("DEL", "mine"),
        ("RENAME", "mine", "yours"),
        ("PUBLISH", "yours", "1"),
        ("HSET", "mine", "field", "1"),
    ],
    ids=" ".join,
)
def test_a_command_that_the_user_may_not_run_stops_all_of_them(
    server: RedisServer, client: "redis.Redis", command: tuple[str, ...]
) -> None:
    rights = ["~fence:*", "~mine*", "&mine", "+evalsha", "+eval", "+get", "+set", "+rename", "+publish"]
    client.execute_command("ACL", "SETUSER", "writer", "reset", "on", "nopass", *rights)
    with server.client(username="writer", password="-") as writer:
        assert write(writer, "stock", 1, ("SET", "mine", "1"), ("PUBLISH", "mine", "1")) == [b"OK", 0]
        with pytest.raises(redis.exceptions.NoPermissionError, match=f"command 2 of 2, {command[0]}: {NOTHING}"):
            write(writer, "stock", 2, ("SET", "mine", "2"), command)
    assert (client.get("mine"), client.get("fence:stock")) == ("1", "1")


@pytest.mark.parametrize("fence", [lambda c: c.set("fence:stock", "3f"), lambda c: c.rpush("fence:stock", "3")])
def test_a_fence_that_someone_else_wrote_over_lets_nobody_in(
    client: "redis.Redis", fence: Callable[["redis.Redis"], object]
) -> None:
    fence(client)
    with pytest.raises(redis.ResponseError, match=f"the fence fence:stock: {NOTHING}"):
        write(client, "stock", 34, ("SET", "first", "1"))
    assert rest(client) == {"fence:stock"}


def test_a_command_may_have_so_many_words_and_no_more(client: "redis.Redis") -> None:
    write(client, "stock", 1, ("RPUSH", "many", *range(MAX_WORDS - 2)))
    assert client.llen("many") == MAX_WORDS - 2
    with pytest.raises(ConfigurationError, match="at most 7000 words, not 7001"):
        write(client, "stock", 1, ("RPUSH", "many", *range(MAX_WORDS - 1)))


# A server that takes no writes -------------------------------------------------------------------------------------


def out_of_memory(client: "redis.Redis") -> None:
    client.config_set("maxmemory", 1)


def read_only(client: "redis.Redis") -> None:
    client.execute_command("REPLICAOF", "127.0.0.1", 1)


@pytest.mark.parametrize("trouble", [out_of_memory, read_only])
def test_a_server_that_takes_no_writes_does_none_of_them(trouble: Callable[["redis.Redis"], None]) -> None:
    """DEL alone would be allowed by a server without memory: it is the fence that fails first."""
    with RedisServer() as own, own.client() as client:
        client.set("amount", "90")
        trouble(client)
        with pytest.raises((redis.exceptions.OutOfMemoryError, redis.exceptions.ReadOnlyError)):
            write(client, "stock", 34, ("DEL", "amount"))
        assert client.keys() == [b"amount"]


# Keys are declared -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def node() -> Iterator[RedisServer]:
    """A cluster of one: it refuses requests whose declared keys are in different slots."""
    with RedisServer("--cluster-enabled", "yes") as node, node.client() as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        until(lambda: b"cluster_state:ok" in bytes(client.execute_command("CLUSTER", "INFO", NEVER_DECODE=True)))
        yield node


@pytest.mark.parametrize(
    "command",
    [("SET", "{x}a", "1"), ("BITOP", "NOT", "{x}b", "{x}a"), ("XGROUP", "CREATE", "{x}s", "g", "$", "MKSTREAM"),
     ("PUBLISH", "y", "1"), ("RANDOMKEY",)],
    ids=lambda command: command[0],
)  # fmt: skip
def test_on_a_cluster_one_hash_tag_holds_fence_and_keys_together(node: RedisServer, command: tuple[str, ...]) -> None:
    with node.client() as client:
        assert len(write(client, "{x}", 34, command)) == 1


@pytest.mark.parametrize("command", [("SET", "{y}a", "1"), ("BITOP", "NOT", "{y}b", "{x}a")], ids=lambda c: c[0])
def test_on_a_cluster_keys_of_another_slot_are_refused_before_anything_runs(
    node: RedisServer, command: tuple[str, ...]
) -> None:
    with node.client() as client:
        with pytest.raises(redis.ResponseError, match="same slot"):
            write(client, "{x}elsewhere", 34, command)
        assert client.get("fence:{x}elsewhere") is None
