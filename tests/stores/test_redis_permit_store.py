"""Semaphores and read/write locks of clients on a real Redis server: what lies between the scripts and the api."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

import gripfast
from gripfast.core.ports import Hold, Kind, Share
from gripfast.stores.redis.permit_parts import SETTLED_MOST
from gripfast.stores.redis.permit_protocol import keys_of
from gripfast.stores.redis.permit_scripts import GIVE_BACK
from stores.permit_bench import NAME, PermitBench, now_ms
from support.proxy import Proxy
from support.redis_server import HOST, RedisServer
from support.waiting import auntil, until


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def admin(server: RedisServer) -> Iterator[redis.Redis]:
    with server.client() as client:
        client.flushall()
        yield client


@pytest.fixture
def bench(server: RedisServer, admin: redis.Redis) -> Iterator[PermitBench]:
    bench = PermitBench(server)
    yield bench
    bench.close()


def holders(client: Any, name: str = "job", kind: Any = "semaphore") -> list[int]:
    """The permits of each."""
    info = client.inspect(name, kind=kind)
    return [] if info is None else [holder.n for holder in info.holders]


def waiting(client: Any, name: str = "job", kind: Any = "semaphore") -> int:
    info = client.inspect(name, kind=kind)
    return 0 if info is None else info.waiters


# Names ----------------------------------------------------------------------------------------------------------------

NAMES = ["job", "{user7}:mail", "a}b", "x{}y", "semaphore:ends", "*", "é"]


def test_lock_semaphore_and_read_write_lock_of_one_name_do_not_meet(server: RedisServer, admin: redis.Redis) -> None:
    with gripfast.connect(server.url) as client:
        held: list[Any] = []
        for name in NAMES:
            held += [client.lock(name).acquire(wait=0), client.semaphore(name, 1).acquire(wait=0)]
            held += [client.rwlock(name).write().acquire(wait=0)]
        assert sorted(info.name for info in client.list()) == sorted(NAMES)
        for kind in ("semaphore", "rwlock"):
            infos: Any = list(client.list(kind=kind))
            assert sorted(info.name for info in infos) == sorted(NAMES)
            assert {info.kind for info in infos} == {kind}


def test_a_list_has_the_names_of_one_prefix(server: RedisServer, admin: redis.Redis) -> None:
    with gripfast.connect(server.url, prefix="one:") as one, gripfast.connect(server.url, prefix="two:") as two:
        leases = [one.semaphore(name, 1).acquire(wait=0) for name in ("a", "a{b}", "b")]
        other = two.semaphore("a", 1).acquire(wait=0)
        listed: Any = one.list("a", kind="semaphore")
        assert sorted(info.name for info in listed) == ["a", "a{b}"]
        for lease in leases:
            lease.release()
        assert list(one.list(kind="semaphore")) == []
        assert other.held


# More than one request does -------------------------------------------------------------------------------------------


def test_a_claim_that_finds_more_dead_holders_than_one_request_removes_does_not_wait(
    server: RedisServer, bench: PermitBench
) -> None:
    bench.limit = count = 3 * SETTLED_MOST
    dead = [f"o{number}" for number in range(count)]
    for owner in dead:
        bench.claim(owner, waits=False)
    bench.admin.zadd(bench.key("ends"), {owner: now_ms() - 1000 for owner in dead})
    with gripfast.connect(server.url) as client:
        assert client.semaphore("job", count).acquire(n=count, wait=0).slots == tuple(range(count))


def test_a_release_serves_all_whom_it_can(server: RedisServer, bench: PermitBench) -> None:
    with gripfast.connect(server.url) as client:
        writer = client.rwlock("job").write().acquire()
        bench.kind = "rwlock"
        readers = [f"r{number:03}" for number in range(3 * SETTLED_MOST - 10)]
        for reader in readers:
            bench.read(reader)
        writer.release()
    assert bench.told() == readers


def test_so_do_a_force_release_a_downgrade_and_a_resize(server: RedisServer, bench: PermitBench) -> None:
    crowd = [f"r{number:03}" for number in range(SETTLED_MOST + 10)]
    with gripfast.connect(server.url) as client:
        writer = client.rwlock("job").write().acquire()
        bench.kind = "rwlock"
        for reader in crowd:
            bench.read(reader)
        writer.downgrade()
        assert bench.told() == crowd
        writer.release()
        bench.admin.flushall()
        writer = client.rwlock("job").write().acquire()
        for reader in crowd:
            bench.read(reader)
        client.force_release("job", kind="rwlock")
        assert bench.told() == crowd
        bench.kind, bench.limit = "semaphore", 1
        semaphore = client.semaphore("job", 1)
        held = semaphore.acquire()
        for waiter in crowd:
            bench.claim(waiter)
        semaphore.resize(1000)
        assert bench.told() == crowd
        assert held.held


def test_so_does_a_claim_that_is_granted_itself(server: RedisServer, bench: PermitBench) -> None:
    bench.limit = 1000
    crowd = [f"w{number:03}" for number in range(SETTLED_MOST + 10)]
    bench.claim("all", 1000)
    for waiter in crowd:
        bench.claim(waiter)
    bench.ends("all")
    with gripfast.connect(server.url) as client, client.semaphore("job", 1000).acquire(wait=0):
        assert bench.told() == crowd


def test_a_clean_up_serves_all_whom_it_can(server: RedisServer, bench: PermitBench) -> None:
    bench.kind = "rwlock"
    bench.write("writer")
    crowd = [f"r{number:03}" for number in range(SETTLED_MOST + 10)]
    for reader in crowd:
        bench.read(reader)
    with gripfast.connect(server.url) as client:
        hold = Hold(NAME, "writer", 30.0, share=Share("rwlock", 1, 1))
        client.inspect("job")  # connected
        assert finished(client._runtime.env.store.abandon([hold])) == [None]
    assert bench.told() == crowd


def test_100_readers_that_wait_for_a_writer_enter_together(server: RedisServer, bench: PermitBench) -> None:
    """Through a network with 20 ms each way. One by one they would need 4 s."""
    bench.kind = "rwlock"
    with Proxy((HOST, server.port)) as proxy:
        after, apart = asyncio.run(readers_enter(proxy, bench))
    assert after < 1.0
    assert apart < 0.5


async def readers_enter(proxy: Proxy, bench: PermitBench) -> tuple[float, float]:
    """Seconds from the writer's release to the last reader, and between the first and the last."""
    async with gripfast.connect_async(f"redis://{HOST}:{proxy.port}/0") as client:
        writer = await client.rwlock("job").write().acquire()
        entered: list[float] = []

        async def read() -> None:
            async with client.rwlock("job").read():
                entered.append(time.monotonic())
                await asyncio.sleep(0)

        reading = [asyncio.ensure_future(read()) for _ in range(100)]
        await auntil(lambda: len(bench.queue()) == 100)
        proxy.delay(requests=0.02, replies=0.02)
        started = time.monotonic()
        await writer.release()
        await asyncio.gather(*reading)
    return max(entered) - started, max(entered) - min(entered)


# Mixed holds, unanswered claims ---------------------------------------------------------------------------------------


def test_locks_and_permits_are_renewed_and_abandoned_together_each_by_its_own_request(
    server: RedisServer, admin: redis.Redis
) -> None:
    with gripfast.connect(server.url) as client:
        lock, permit, other = client.lock("job"), client.semaphore("job", 3), client.lock("other")
        leases = [lock.acquire(), permit.acquire(n=2), other.acquire()]
        share = Share("semaphore", 2, 3)
        held = [
            Hold("lock:job", leases[0]._state.owner, 60.0),
            Hold("lock:job", leases[1]._state.owner, 60.0, share=share),
            Hold("lock:job", "nobody", 60.0, share=share),
            Hold("lock:other", leases[2]._state.owner, 60.0),
            Hold("lock:other", "nobody", 60.0),
        ]
        store = client._runtime.env.store
        assert finished(store.renew(held)) == [None, None, "expired", None, "taken"]
        assert finished(store.abandon(held)) == [None] * 5
        assert not client.inspect("job")
        assert not client.inspect("job", kind="semaphore")


def finished(coroutine: Any) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it suspends")


@pytest.mark.parametrize("kind", ["semaphore", "rwlock"])
def test_behind_an_unanswered_claim_goes_the_clean_up_of_its_kind_in_full(
    server: RedisServer, admin: redis.Redis, kind: Kind
) -> None:
    """In full, because nobody reads the reply."""
    with gripfast.connect(server.url) as client:
        client.inspect("job")  # connected
        store: Any = client._runtime.env.store
        followed: list[tuple[str, bytes]] = []
        store._link.clean_up = lambda owner, packed: followed.append((owner, packed))
        assert finished(store.abandon([Hold(NAME, "a", 30.0, share=Share(kind, 1, 3))])) == [None]
        assert finished(store.abandon([Hold(NAME, "b", 30.0)])) == [None]
    text = GIVE_BACK.text.encode()
    (first, packed), (second, of_a_lock) = followed
    assert (first, second) == ("a", "b")
    assert text in packed
    assert all(key in packed for key in keys_of(NAME, kind))
    assert text not in of_a_lock


@pytest.mark.parametrize("kind", ["semaphore", "rwlock"])
def test_a_claim_that_got_no_answer_is_cleaned_up_though_it_takes_effect_later(
    server: RedisServer, admin: redis.Redis, kind: str
) -> None:
    with Proxy((HOST, server.port)) as proxy, gripfast.connect(server.url) as other:
        with gripfast.connect(f"redis://{HOST}:{proxy.port}/0", request_timeout=0.3, ttl=600) as client:
            wanted: Any = client.semaphore("job", 1) if kind == "semaphore" else client.rwlock("job").write()
            wanted.acquire().release()
            proxy.hold("requests")
            with pytest.raises(gripfast.StoreUnavailable):
                wanted.try_acquire()
            proxy.let_go()
            until(lambda: not client._runtime.env.ledger.marks())
        assert holders(other, kind=kind) == []
    with server.client() as seen:
        assert not [key for key in seen.scan_iter() if b"ends" in key or b"queue" in key]


def test_a_task_that_is_cancelled_leaves_no_permit_and_no_position(server: RedisServer, bench: PermitBench) -> None:
    async def main() -> None:
        async with gripfast.connect_async(server.url, ttl=600) as client:
            held = await client.semaphore("job", 1).acquire()
            tasks = [asyncio.ensure_future(client.semaphore("job", 1).acquire(wait=60)) for _ in range(3)]
            await auntil(lambda: len(bench.queue()) == 3)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await auntil(lambda: not bench.queue())
            await held.release()
            assert bench.slots() == {}

    asyncio.run(main())


def test_a_script_that_the_server_has_forgotten_is_sent_again(server: RedisServer, admin: redis.Redis) -> None:
    with gripfast.connect(server.url) as client:
        admin.script_flush()
        lease = client.semaphore("job", 3).acquire()
        admin.script_flush()
        lease.extend()
        admin.script_flush()
        assert holders(client) == [1]
        admin.script_flush()
        client.semaphore("job", 3).resize(4)
        admin.script_flush()
        lease.release()
        writer = client.rwlock("job").write().acquire()
        admin.script_flush()
        writer.downgrade()
        admin.script_flush()
        assert client.force_release("job", kind="rwlock")


def test_a_release_whose_reply_was_lost_is_none_that_failed(server: RedisServer, admin: redis.Redis) -> None:
    with Proxy((HOST, server.port)) as proxy:
        with gripfast.connect(f"redis://{HOST}:{proxy.port}/0") as client:
            lease = client.semaphore("job", 1).acquire()
            with ThreadPoolExecutor(1) as pool:
                proxy.hold("replies")
                released = pool.submit(lease.release)
                until(lambda: proxy.held("replies"))
                proxy.cut()
                proxy.let_go()
                released.result()
            assert holders(client) == []


def test_waiters_are_served_in_order_by_processes_that_know_nothing_of_each_other(
    server: RedisServer, admin: redis.Redis
) -> None:
    with gripfast.connect(server.url) as one, gripfast.connect(server.url) as two, ThreadPoolExecutor(3) as pool:
        held = one.semaphore("job", 3).acquire(n=3)
        wide = pool.submit(two.semaphore("job", 3).acquire, n=2, wait=20)
        until(lambda: waiting(one) == 1)
        narrow = pool.submit(one.semaphore("job", 3).acquire, wait=20)
        until(lambda: waiting(one) == 2)
        held.release()
        first, second = wide.result(), narrow.result()
        assert (first.slots, second.slots) == ((0, 1), (2,))
        assert first.token < second.token


# What a lock costs ----------------------------------------------------------------------------------------------------


def test_a_lock_loads_nothing_of_permits(server: RedisServer) -> None:
    code = f"""
import sys, gripfast
with gripfast.connect({server.url!r}) as client, client.lock("job"):
    assert not [name for name in sys.modules if "stores" in name and "permit" in name], sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
