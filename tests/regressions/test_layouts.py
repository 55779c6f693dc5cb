"""A client whose layout is not that of the store is refused at once, and what was there before goes on."""

import asyncio
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
import redis

import gripfast
from gripfast.stores import layout
from gripfast.stores.redis.keys import LAYOUT
from regressions.redis_stage import played
from support.colours import World
from support.redis_server import RedisServer
from support.redlock_nodes import redlock_url
from support.sql_servers import mariadb_server, postgres_server
from support.zookeeper_servers import new_root, zookeeper_server

KINDS = ("REDIS", "SQL", "SQLITE", "ZOOKEEPER", "ETCD")
AT_ONCE = 5.0
"""Seconds; `connect_patience` is 30."""
OTHER = "layout 1, and this version of Gripfast uses layout 2"


def raise_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in KINDS:
        monkeypatch.setattr(layout, kind, getattr(layout, kind) + 1)


@played
async def test_a_client_of_another_layout_is_refused_at_once_whatever_it_wants(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = world.actor()
    if not alice.client.capabilities.processes:
        pytest.skip("processes is False in the capabilities of this store: its clients are all of one version")
    lease = await alice.acquire("job")
    raise_numbers(monkeypatch)
    calls = {
        "acquire()": lambda actor: actor.acquire("job", wait=None),
        "acquire(wait=…)": lambda actor: actor.acquire("other", wait=20),
        "try_acquire()": lambda actor: actor.try_acquire("job"),
        "inspect()": lambda actor: actor.inspect("job"),
        "list()": lambda actor: actor.listing(),
        "force_release()": lambda actor: actor.force_release("job"),
    }
    told: dict[str, Any] = {}
    for name, call in calls.items():
        began = time.monotonic()
        with pytest.raises(gripfast.StoreUnavailable, match=OTHER) as caught:
            await asyncio.wait_for(call(world.actor()), 20)
        told[name] = str(caught.value)
        assert time.monotonic() - began < AT_ONCE
        assert type(caught.value) is gripfast.StoreUnavailable
    assert all("docs/compatibility.md" in text for text in told.values())
    monkeypatch.undo()
    await alice.extend(lease)
    await alice.release(lease)


def test_the_number_stays_when_all_have_gone_and_a_new_one_is_for_an_operator(
    server: RedisServer, admin: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    with gripfast.connect(server.url) as client:
        client.lock("job").acquire().release()
    assert (admin.get(LAYOUT), admin.ttl(LAYOUT)) == (b"1", -1)
    raise_numbers(monkeypatch)
    with gripfast.connect(server.url) as client, pytest.raises(gripfast.StoreUnavailable, match=OTHER):
        client.lock("job").try_acquire()
    admin.delete(LAYOUT)
    with gripfast.connect(server.url) as client, client.lock("job"):
        assert admin.get(LAYOUT) == b"2"


@pytest.mark.usefixtures("admin")
def test_another_prefix_is_no_other_store(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """`lock:` with the name a:b is `lock:a:` with the name b."""
    with gripfast.connect(server.url) as client, client.lock("a:b"):
        raise_numbers(monkeypatch)
        other = gripfast.connect(server.url, prefix="lock:a:")
        with other, pytest.raises(gripfast.StoreUnavailable, match=OTHER):
            other.lock("b").try_acquire()


LOCKS = ["~lock:*", "~{lock:*}?gripfast:*"]
READS = [*LOCKS, "%R~gripfast?gripfast:layout"]


def allow(admin: "redis.Redis", rights: list[str]) -> None:
    admin.execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rights, "&*", "+@all")


@pytest.mark.parametrize("rights", [LOCKS, READS], ids=["no right to the key", "no right to write it"])
def test_a_user_without_rights_to_the_number_is_told_which_one_it_needs(
    server: RedisServer, admin: "redis.Redis", rights: list[str]
) -> None:
    allow(admin, rights)
    url = server.url.replace("redis://", "redis://app:secret@")
    with gripfast.connect(url) as client, pytest.raises(gripfast.StoreUnavailable) as caught:
        client.lock("job").acquire()
    assert "~gripfast?gripfast:layout" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_user_who_may_only_read_the_number_works_where_there_is_one(
    server: RedisServer, admin: "redis.Redis"
) -> None:
    allow(admin, READS)
    with gripfast.connect(server.url) as client:
        client.lock("job").acquire().release()
    with gripfast.connect(server.url.replace("redis://", "redis://app:secret@")) as client, client.lock("job") as lease:
        assert lease.held


def test_what_is_no_number_is_shown_as_it_is(server: RedisServer, admin: "redis.Redis") -> None:
    admin.set(LAYOUT, b"\x1b[31m\xff" + b"x" * 5000)
    with gripfast.connect(server.url) as client, pytest.raises(gripfast.StoreUnavailable) as caught:
        client.lock("job").acquire()
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


def test_a_node_of_another_layout_counts_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    with RedisServer() as one, RedisServer() as two, RedisServer() as three:
        url = redlock_url([one, two, three], request_timeout=1)
        with gripfast.connect(url) as client:
            client.lock("job").acquire().release()
        with three.client() as admin:
            admin.set(LAYOUT, b"2")
            with gripfast.connect(url) as client, client.lock("job") as lease:
                assert lease.held
                assert not admin.exists("lock:job")
        raise_numbers(monkeypatch)
        with gripfast.connect(url) as client, pytest.raises(gripfast.StoreUnavailable, match=OTHER) as caught:
            client.lock("job").acquire()
        assert len([text for text in caught.value.nodes.values() if OTHER in text]) == 2


@pytest.mark.parametrize("mode", ["lease", "row", "advisory"])
@pytest.mark.parametrize("server_of", [postgres_server, mariadb_server])
def test_the_number_is_no_lock_and_stays_in_the_tables(server_of: Any, mode: str) -> None:
    with server_of().fresh_database(mode=mode) as url, gripfast.connect(url, prefix="") as client:
        client.lock("job").acquire().release()
        assert list(client.list()) == []
        database = url.partition("?")[0].rpartition("/")[2]
        table = "gripfast_lock" if mode == "lease" else "gripfast_grant"
        rows = server_of().execute(f"SELECT card FROM {table} WHERE token = {2**53}", database=database)
        assert rows in ([("1",)], [(b"1",)])


def test_tables_without_a_number_get_one() -> None:
    """As those do that were made before there were numbers."""
    server = postgres_server()
    with server.fresh_database() as url:
        database = url.partition("?")[0].rpartition("/")[2]
        with gripfast.connect(url) as client:
            client.lock("job").acquire().release()
        server.execute(f"DELETE FROM gripfast_lock WHERE token = {2**53}", database=database)
        with gripfast.connect(url) as client, client.lock("job") as lease:
            assert lease.held
        assert server.execute(f"SELECT card FROM gripfast_lock WHERE token = {2**53}", database=database) == [("1",)]


def test_looking_makes_no_nodes() -> None:
    server, root = zookeeper_server(), new_root()
    with gripfast.connect(server.url_with(root=root)) as client, server.client() as kazoo:
        assert client.inspect("job") is None
        assert list(client.list()) == []
        assert not kazoo.exists(root)
        with client.lock("job"):
            assert kazoo.get(f"{root}/%layout")[0] == b"1"
            assert [info.name for info in client.list()] == ["job"]


def test_a_file_of_another_layout_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "locks.db"
    with gripfast.connect(f"sqlite:///{path}") as client:
        client.lock("job").acquire().release()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE gripfast_meta SET value = 2 WHERE key = 'schema'")
    connection.close()
    with gripfast.connect(f"sqlite:///{path}") as client, pytest.raises(gripfast.StoreUnavailable) as caught:
        client.lock("job").acquire()
    assert "layout 2, and this version of Gripfast uses layout 1" in str(caught.value)
    assert "another file" in str(caught.value)
