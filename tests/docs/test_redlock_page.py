"""What docs/redlock.md shows works as printed, and what it says about the nodes is what one finds there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import gripfast
from support.pages import blocks, page, run_program
from support.redis_server import RedisServer

PAGE = page("redlock")


@pytest.fixture(scope="module")
def servers() -> Iterator[list[RedisServer]]:
    with RedisServer() as one, RedisServer() as two, RedisServer() as three:
        yield [one, two, three]


def at(servers: list[RedisServer], text: str) -> str:
    for port, server in zip((6379, 6380, 6381), servers, strict=True):
        text = text.replace(f"localhost:{port}", f"127.0.0.1:{server.port}")
    return text


@pytest.mark.parametrize("code", blocks(PAGE, "python"))
def test_every_example_of_the_page_runs(servers: list[RedisServer], code: str, tmp_path: Path) -> None:
    assert run_program(at(servers, code), tmp_path)


@pytest.mark.parametrize("command", [line for block in blocks(PAGE, "redis") for line in block.splitlines()])
def test_every_command_of_the_page_is_one(servers: list[RedisServer], command: str) -> None:
    with servers[0].client() as client:
        assert client.execute_command(*command.split(" ")) in (True, "OK", b"OK")


def test_the_user_of_the_page_may_do_all_that_a_client_does(servers: list[RedisServer]) -> None:
    (line,) = [line for block in blocks(PAGE, "redis") for line in block.splitlines() if line.startswith("ACL")]
    for server in servers:
        with server.client() as client:
            client.execute_command(*line.split(" "))
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    url = f"redlock://gripfast:change-me@{hosts}?request_timeout=1"
    with gripfast.connect(url) as client, gripfast.connect(url) as other:
        lease = client.lock("{user7}:a}b").acquire()
        assert [info.name for info in other.list()] == ["{user7}:a}b"]
        assert other.lock("{user7}:a}b").try_acquire() is None
        with pytest.raises(gripfast.LockTimeout):
            other.lock("{user7}:a}b").acquire(wait=0.1)
        lease.extend(5)
        assert other.force_release("{user7}:a}b")
        with pytest.raises(gripfast.LeaseLost, match="broken"):
            lease.extend()
        with pytest.raises(gripfast.LeaseLost, match="broken"):
            lease.release()


def test_the_keys_are_those_of_the_page(servers: list[RedisServer]) -> None:
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    with gripfast.connect(f"redlock://{hosts}?request_timeout=1") as client, client.lock("keys") as lease:
        with servers[1].client() as node:
            value = node.get("lock:keys")
            assert value is not None
            owner, dot, attempt = value.decode().partition(".")
            assert (owner, dot, attempt.isdecimal()) == (lease.owner, ".", True)
            fence = node.get(b"{lock:keys}\0gripfast:token")
            assert fence is not None
            assert int(fence.partition(b"@")[0]) == lease.token
            assert node.get(b"gripfast\0gripfast:birth") == b"0"
