"""Releases whose replies nobody waits for, on a real server: when `release()` returns, in which order requests arrive,
and what becomes of replies that are late, lost, or say that the script was forgotten."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

import gripfast
from gripfast.stores.redis import unread
from support.both_colours import another, both_colours, staged
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.waiting import auntil, until

ROUND_TRIP = 0.2
"""Seconds: long enough to see who waits for one."""


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def admin(server: RedisServer) -> Iterator[redis.Redis]:
    with server.client() as admin:
        yield admin


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", server.port)) as proxy:
        yield proxy


@pytest.fixture
def url(proxy: Proxy) -> str:
    return f"redis://127.0.0.1:{proxy.port}/0"


def ledger_of(actor: Any) -> int:
    return len(actor.client._runtime.env.ledger)


async def read(actor: Any) -> None:
    await auntil(lambda: ledger_of(actor) == 0, within=5)


async def release_late(proxy: Proxy, actor: Any, lease: Any, by: float = ROUND_TRIP) -> None:
    """The release is on its way for so long; what is sent afterwards on other connections arrives at once."""
    before = proxy.arrived("requests")
    proxy.delay(requests=by)
    await actor.release(lease)
    await auntil(lambda: proxy.arrived("requests") > before)
    proxy.delay()


def lost_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "already lost" in each.getMessage()]


@staged
async def test_a_pair_takes_one_round_trip_instead_of_two(proxy: Proxy, url: str) -> None:
    async with both_colours(url) as actors:
        for actor in actors:
            await actor.release(await actor.acquire("warm", lazy_release=True))
            await actor.inspect("warm")
            proxy.delay(replies=ROUND_TRIP)
            began = time.monotonic()
            for _ in range(3):
                await actor.release(await actor.acquire("job", lazy_release=True))
            lazy = time.monotonic() - began
            assert 3 * ROUND_TRIP <= lazy < 4 * ROUND_TRIP
            await actor.inspect("job")
            began = time.monotonic()
            await actor.release(await actor.acquire("other"))
            assert time.monotonic() - began >= 2 * ROUND_TRIP
            proxy.delay()


@staged
async def test_one_connection_is_enough(proxy: Proxy, url: str) -> None:
    """Whatever the names are, and however many releases are unread."""
    async with both_colours(url) as actors:
        for actor in actors:
            before = proxy.connections
            leases = [await actor.acquire(f"{actor.colour}-{number}", lazy_release=True) for number in range(30)]
            for lease in leases:
                await actor.release(lease)
            for number in range(30):
                assert await actor.try_acquire(f"{actor.colour}-{number}") is not None
            assert proxy.connections - before == 1


@staged
async def test_the_next_attempt_does_not_overtake_a_release_that_is_held_up(proxy: Proxy, url: str) -> None:
    """There are idle connections on which it would arrive at once."""
    async with both_colours(url) as actors:
        for actor in actors:
            crowd = [another(actor) for _ in range(3)]
            names = [f"{actor.colour}-{number}" for number in range(3)]
            await asyncio.gather(*(each.acquire(name) for each, name in zip(crowd, names, strict=True)))  # connections
            lease = await actor.acquire(actor.colour, lazy_release=True)
            await release_late(proxy, actor, lease)
            assert await crowd[0].inspect(actor.colour) is None
            assert await crowd[1].try_acquire(actor.colour) is not None
            for each in crowd:
                await each.leaves()


@staged
async def test_several_threads_or_tasks_that_come_behind_one_release(proxy: Proxy, url: str) -> None:
    """Exactly one of them gets it, though another one reads the reply."""
    async with both_colours(url) as actors:
        for actor in actors:
            crowd = [another(actor) for _ in range(4)]
            for _ in range(10):
                lease = await actor.acquire("job", lazy_release=True)
                await release_late(proxy, actor, lease, by=0.05)
                looks = [crowd[0].inspect("job"), *(each.try_acquire("job", lazy_release=True) for each in crowd[1:])]
                _, *got = await asyncio.gather(*looks)
                (lease,) = [each for each in got if each is not None]
                await actor.release(lease)
            for each in crowd:
                await each.leaves()


@staged
async def test_a_release_whose_script_was_forgotten_is_sent_again(
    admin: redis.Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with both_colours(url) as actors:
        for actor in actors:
            for name in ("a", "b"):
                await actor.release(await actor.acquire(name, lazy_release=True))  # the script is known now
            await actor.inspect("b")
            lease = await actor.acquire("a", lazy_release=True)
            admin.script_flush()
            await actor.release(lease)
            assert await actor.try_acquire("a", lazy_release=True) is not None, "behind the release, not refused by it"
            lease = await actor.acquire("b", lazy_release=True)
            admin.script_flush()
            await actor.release(lease)
            await auntil(lambda: admin.get("lock:b") is None, within=3)
            await auntil(lambda actor=actor: ledger_of(actor) == 1, within=3)
            await actor.force_release("a")
    assert lost_in(caplog) == []


@staged
async def test_a_release_that_is_lost_with_its_connection_is_done_again(
    proxy: Proxy, url: str, admin: redis.Redis
) -> None:
    async with both_colours(url) as actors:
        for actor in actors:
            lease = await actor.acquire("job", lazy_release=True)
            proxy.hold("requests")
            await actor.release(lease)
            await auntil(lambda: proxy.held("requests") > 0)
            assert not lease.held
            assert admin.get("lock:job") is not None
            proxy.cut()
            proxy.let_go()
            await auntil(lambda: admin.get("lock:job") is None, within=4)
            await read(actor)


@staged
async def test_a_silent_server_costs_nobody_anything_and_is_asked_again(
    server: RedisServer, admin: redis.Redis
) -> None:
    async with both_colours(f"{server.url}?request_timeout=0.5") as actors:
        for actor in actors:
            other = await actor.acquire("other", ttl=60)
            lease = await actor.acquire("job", lazy_release=True)
            os.kill(server.pid, signal.SIGSTOP)
            try:
                began = time.monotonic()
                await actor.release(lease)
                assert time.monotonic() - began < 0.4
                await auntil(lambda began=began: time.monotonic() > began + 1.2)
            finally:
                os.kill(server.pid, signal.SIGCONT)
            await auntil(lambda: admin.get("lock:job") is None, within=4)
            await auntil(lambda actor=actor: ledger_of(actor) == 1, within=4)
            assert other.held
            await actor.release(other)


@staged
async def test_a_connection_that_was_closed_while_idle_is_no_loss(admin: redis.Redis, url: str) -> None:
    async with both_colours(url) as actors:
        for actor in actors:
            lease = await actor.acquire("job", lazy_release=True)
            admin.execute_command("CLIENT", "KILL", "SKIPME", "yes")
            await auntil(lambda: len(admin.client_list()) == 1)
            await actor.release(lease)
            await auntil(lambda: admin.get("lock:job") is None, within=4)
            await read(actor)


def hang_up(admin: redis.Redis) -> None:
    admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def test_the_next_attempt_comes_behind_a_release_that_was_lost_with_its_connection(
    admin: redis.Redis, server: RedisServer
) -> None:
    """An idle connection was closed, which is noticed when the next request is made."""
    with gripfast.connect(server.url) as client:
        for _ in range(10):
            lease = client.lock("job", lazy_release=True).acquire()
            hang_up(admin)
            lease.release()
            again = client.lock("job").try_acquire()
            assert again is not None
            again.release()
        until(lambda: len(client._runtime.env.ledger) == 0, within=5)


@staged
async def test_the_next_attempt_of_a_task_comes_behind_a_release_that_was_lost(
    admin: redis.Redis, server: RedisServer
) -> None:
    async with gripfast.connect_async(server.url) as client:
        for _ in range(10):
            lease = await client.lock("job", lazy_release=True).acquire()
            hang_up(admin)
            await lease.release()
            again = await client.lock("job").try_acquire()
            assert again is not None
            await again.release()


def test_more_unread_connections_than_are_kept_are_waited_for(proxy: Proxy, url: str) -> None:
    """Threads that release at the same time: their connections are bounded, and nobody is refused."""
    names = [f"job-{number}" for number in range(3 * unread.UNREAD_MOST)]
    with gripfast.connect(url) as client:
        leases = [client.lock(name, lazy_release=True).acquire() for name in names]
        for lease in leases:
            lease.release()
        assert all(client.lock(name).try_acquire() for name in names)
        assert proxy.connections <= 2 * unread.UNREAD_MOST


def test_a_forked_child_has_nothing_of_it(url: str, server: RedisServer) -> None:
    with gripfast.connect(url) as client, gripfast.connect(server.url) as other:
        lease = client.lock("job", lazy_release=True).acquire()
        lease.release()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                lease.release()
                mine = client.lock("job", lazy_release=True).try_acquire()
                assert mine is not None
                mine.release()
                client.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        theirs = other.lock("job").try_acquire()
        assert theirs is not None
        assert client.lock("job").try_acquire() is None
        until(lambda: len(client._runtime.env.ledger) == 0, within=3)


def test_a_lazy_pair_wakes_the_watchdog_no_more_often_than_a_plain_one(url: str) -> None:
    """Only every second or so: waking it costs as much as a request."""
    with gripfast.connect(url) as client:
        lock = client.lock("job", lazy_release=True)
        with lock:
            pass
        assert client._runtime is not None
        rounds: list[float] = []
        look = client._runtime._upkeep.round

        async def counted(errands: Any) -> float:
            rounds.append(time.monotonic())
            return await look(errands)

        client._runtime._upkeep.round = counted  # type: ignore[method-assign]
        began = time.monotonic()
        pairs = 0
        while time.monotonic() < began + 1.5:
            with lock:
                pairs += 1
        assert len(rounds) <= 4 < pairs


def test_the_log_says_what_a_late_not_yours_means(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "gripfast")
    with gripfast.connect(url, prefix="app:") as client:
        lease = client.lock("job", lazy_release=True).acquire()
        client.force_release("job")
        lease.release()
    (text,) = lost_in(caplog)
    assert "'job'" in text
    assert "fencing token" in text
    record = next(each for each in caplog.records if "already lost" in each.getMessage())
    assert (record.name, record.levelname) == ("gripfast.lease", "WARNING")
    assert vars(record)["gripfast_token"] == lease.token


@staged
async def test_a_key_of_another_type_is_a_late_not_yours(
    admin: redis.Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with both_colours(url) as actors:
        for actor in actors:
            caplog.clear()
            lease = await actor.acquire(actor.colour, lazy_release=True)
            admin.delete(f"lock:{actor.colour}")
            admin.rpush(f"lock:{actor.colour}", "somebody's list")
            await actor.release(lease)
            await read(actor)
            assert len(lost_in(caplog)) == 1
