"""Behind the locks of one connection pool stands one Gripfast client, which goes with the pool, and not before."""

import asyncio
import gc
import subprocess
import sys
import threading
import uuid
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

from compat.redis_kinds import new_name
from gripfast.compat.redis import AsyncLock, Lock
from support.redis_server import shared_server
from support.waiting import auntil, until


@pytest.fixture
def server() -> Iterator["redis.Redis"]:
    with shared_server().client() as client:
        yield client


@pytest.fixture
def label() -> str:
    """The name of all connections of a client: Gripfast's have it, too."""
    return f"label-{uuid.uuid4().hex}"


def connections(server: Any, label: str) -> int:
    return sum(each["name"] == label for each in server.client_list())


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("gripfast")}


def test_all_locks_of_a_pool_share_one_client(server: Any, label: str) -> None:
    before = threads()
    pool = redis.ConnectionPool.from_url(shared_server().url, client_name=label)
    locks = [Lock(redis.Redis(connection_pool=pool), new_name()) for _ in range(20)]
    for lock in locks:
        assert lock.acquire()
    assert connections(server, label) == 1
    assert len(threads() - before) == 2
    for lock in locks:
        lock.release()
    pool.disconnect()


def test_two_pools_have_two_clients(server: Any, label: str) -> None:
    clients = [redis.Redis.from_url(shared_server().url, client_name=label) for _ in range(2)]
    for client in clients:
        with Lock(client, new_name()):
            pass
    assert connections(server, label) == 2


def test_the_client_goes_with_the_pool(server: Any, label: str) -> None:
    before = threads()
    client = redis.Redis.from_url(shared_server().url, client_name=label)
    with Lock(client, new_name()) as lock:
        assert connections(server, label) == 1
    pool = weakref.ref(client.connection_pool)
    del client, lock
    gc.collect()
    assert pool() is None
    until(lambda: connections(server, label) == 0)
    until(lambda: threads() <= before)


def test_a_lock_keeps_the_client_while_it_lives(server: Any, label: str) -> None:
    lock = Lock(redis.Redis.from_url(shared_server().url, client_name=label), new_name())
    lock.acquire()
    gc.collect()
    assert lock.owned()
    lock.release()
    assert connections(server, label) == 1


def test_a_lease_keeps_its_client_when_lock_and_pool_are_gone(server: Any, label: str) -> None:
    lock = Lock(redis.Redis.from_url(shared_server().url, client_name=label), new_name(), thread_local=False)
    lock.acquire()
    lease, name = lock.lease, lock.name
    del lock
    gc.collect()
    assert lease is not None
    assert lease.held
    lease.extend()
    lease.release()
    assert server.get(name) is None
    del lease
    until(lambda: connections(server, label) == 0)


def test_a_client_that_was_closed_can_still_lock(server: Any) -> None:
    """As in redis-py, where it connects again."""
    client = redis.Redis.from_url(shared_server().url)
    lock = Lock(client, new_name())
    with lock:
        client.close()
        assert lock.owned()
    assert server.get(lock.name) is None


def test_asyncio_has_one_client_per_loop_and_it_goes_with_the_pool(server: Any, label: str) -> None:
    before = threads()

    async def use() -> "weakref.ref[Any]":
        client: Any = redis.asyncio.Redis.from_url(shared_server().url, client_name=label)
        locks = [client.lock(new_name(), lock_class=AsyncLock) for _ in range(20)]
        await asyncio.gather(*(lock.acquire() for lock in locks))
        assert connections(server, label) == 1
        await asyncio.gather(*(lock.release() for lock in locks))
        return weakref.ref(client.connection_pool)

    for _ in range(2):
        pool = asyncio.run(use())
        gc.collect()
        assert pool() is None
        until(lambda: connections(server, label) == 0)
        until(lambda: threads() <= before)


async def test_two_event_loops_share_a_pool_but_no_client(server: Any, label: str) -> None:
    client: Any = redis.asyncio.Redis.from_url(shared_server().url, client_name=label)
    lock = client.lock(new_name(), lock_class=AsyncLock, thread_local=False)

    async def use() -> bytes | None:
        async with lock:
            return lock.local.token

    async with lock:
        elsewhere = asyncio.create_task(asyncio.to_thread(asyncio.run, use()))
        await auntil(lambda: connections(server, label) > 1)
    assert await elsewhere is not None
    assert server.get(lock.name) is None


FORK = """
import os, sys, redis
from gripfast.compat.redis import Lock

def raised(call):
    try:
        return call()
    except redis.RedisError as error:
        return type(error).__name__

client = redis.Redis.from_url(sys.argv[1])
lock = Lock(client, sys.argv[2], timeout=60)
lock.acquire()
if os.fork() == 0:
    print(lock.owned(), lock.locked(), lock.acquire(blocking=False), raised(lambda: lock.extend(1)))
    print(raised(lock.release), raised(lock.release), lock.local.token)
    with Lock(client, sys.argv[2] + "-other") as other:
        print(other.owned())
    os._exit(bool(sys.stdout.flush()))
os.wait()
print(lock.owned(), lock.locked())
lock.release()
print(lock.locked())
"""


def test_a_forked_child_neither_has_the_lock_nor_frees_it() -> None:
    command = [sys.executable, "-c", FORK, shared_server().url, new_name()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.splitlines() == [
        "False True False LockNotOwnedError",
        "LockNotOwnedError LockError None",
        "True",
        "True True",
        "False",
    ]


EXIT = """
import sys, redis
from gripfast.compat.redis import Lock

lock = Lock(redis.Redis.from_url(sys.argv[1]), sys.argv[2])
lock.acquire()
print(lock.owned())
"""


def test_the_end_of_the_program_gives_the_lock_back(server: Any) -> None:
    name = new_name()
    command = [sys.executable, "-W", "error", "-c", EXIT, shared_server().url, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert server.get(name) is None


def test_importing_gripfast_does_not_import_these() -> None:
    program = "import sys, gripfast, gripfast.compat.threading; print('redis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
