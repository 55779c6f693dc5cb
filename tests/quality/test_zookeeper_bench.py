"""The server, the limits and the counting of the ZooKeeper benchmarks: a wrong ruler measures nothing."""

import asyncio
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import gripfast
from bench.zookeeper.limit import (
    NOT_FREE,
    PARENT,
    Pair,
    create_delete,
    create_look_delete,
    create_look_delete_on_a_loop,
    kazoo_client,
)
from bench.zookeeper.peers import kazoo_locks
from bench.zookeeper.server import REQUESTS, counters, hasty_server, told, version, zookeeper_server

Limit = Callable[[str], AbstractContextManager[Pair]]
PAIRS = 20


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hasty_server(tmp_path_factory.mktemp("server")) as url:
        yield url


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def test_the_server_is_gone_when_something_fails(tmp_path: Path) -> None:
    urls = []
    with pytest.raises(LookupError), zookeeper_server(tmp_path) as url:
        urls.append(url)
        with kazoo_client(url) as client:
            assert client.exists("/")
        raise LookupError
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(urls[0]))).close()


def synced(url: str) -> int:
    """How often the server has waited for its disk."""
    found = re.search(r"^zk_cnt_fsynctime\t(\d+)$", told(port_of(url), "mntr"), re.MULTILINE)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize(("server", "times"), [(zookeeper_server, 2 * PAIRS), (hasty_server, 0)])
def test_writes_are_on_disk_where_they_are_said_to_be(
    server: Callable[[Path], AbstractContextManager[str]], times: int, tmp_path: Path
) -> None:
    with server(tmp_path) as url, create_delete(url) as pair:
        pair()
        before = synced(url)
        for _ in range(PAIRS):
            pair()
        assert synced(url) - before == times


@contextmanager
def on_a_loop(url: str) -> Iterator[Pair]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        pair_of = runner.run(stack.enter_async_context(create_look_delete_on_a_loop(url)))

        async def pair() -> None:
            await pair_of("bench")()

        yield lambda: runner.run(pair())
        runner.run(stack.aclose())


LOOKING = [create_look_delete, on_a_loop]


@pytest.mark.parametrize("limit", [create_delete, *LOOKING])
def test_the_bare_lock_leaves_nothing_behind(url: str, limit: Limit) -> None:
    with limit(url) as pair, kazoo_client(url) as client:
        pair()
        pair()
        assert client.get_children(PARENT) == []


@pytest.mark.parametrize("limit", LOOKING)
def test_the_bare_lock_that_looks_sees_who_is_there(url: str, limit: Limit) -> None:
    with limit(url) as pair, kazoo_client(url) as client:
        other = client.create(f"{PARENT}/other__lock__", ephemeral=True, sequence=True)
        with pytest.raises(RuntimeError, match=NOT_FREE):
            pair()
        assert client.get_children(PARENT) == [other.rpartition("/")[2]]
        client.delete(other)
        pair()


def requests_of(url: str, pair: Callable[[], object]) -> float:
    """Of one pair; a ping may be among them."""
    with counters(url) as counted:
        pair()
        before = counted()[REQUESTS]
        for _ in range(PAIRS):
            pair()
        # One is the counting itself.
        return round((counted()[REQUESTS] - before - 1) / PAIRS, 1)


@pytest.mark.parametrize(("limit", "requests"), [(create_delete, 2), (create_look_delete, 3), (on_a_loop, 3)])
def test_the_bare_lock_sends_what_its_name_says(url: str, limit: Limit, requests: int) -> None:
    with limit(url) as pair:
        assert requests_of(url, pair) == requests


def test_the_bare_lock_sends_as_much_as_gripfast(url: str) -> None:
    with gripfast.connect(url) as client, create_look_delete(url) as bare:
        lock = client.lock("bench")
        assert requests_of(url, lambda: lock.acquire().release()) == requests_of(url, bare)


def test_kazoos_lock_is_a_lock(url: str) -> None:
    with kazoo_locks(url) as locks, kazoo_client(url) as client:
        with locks("bench"):
            assert len(client.get_children("/kazoo/bench")) == 1
        assert client.get_children("/kazoo/bench") == []


def test_the_version_is_that_of_the_server(url: str) -> None:
    assert version()
    assert f"Zookeeper version: {version()}-" in told(port_of(url), "srvr")
