"""How many connections a client has, what becomes of them when they break, and that every reply and every push finds
the one it is for."""

import asyncio
import concurrent.futures
import functools
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import gripfast
from gripfast import ClientClosed, LockTimeout, OutcomeUnknown
from support.both_colours import another, both_colours, each, outcome, staged
from support.colours import renewal_of
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.waiting import auntil, until

AT_ONCE = 1.0
"""Seconds: far less than the three after which a waiter asks though nobody woke it."""


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def admin(server: RedisServer) -> Iterator[redis.Redis]:
    with server.client() as admin:
        admin.ping()
        yield admin


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", server.port)) as proxy:
        yield proxy


@pytest.fixture
def url(proxy: Proxy) -> str:
    """Of the server, through the proxy."""
    return f"redis://127.0.0.1:{proxy.port}/0"


def connections(admin: redis.Redis) -> set[str]:
    """Of everyone but the admin."""
    mine = str(admin.client_id())
    return {each["id"] for each in admin.client_list() if each["id"] != mine}


def kill_all(admin: redis.Redis) -> None:
    admin.execute_command("CLIENT", "KILL", "SKIPME", "yes")


async def has_waiters(actor: Any, name: str, count: int) -> bool:
    info = await actor.inspect(name)
    return info is not None and info.waiters == count


# How many there are ---------------------------------------------------------------------------------------------------


@staged
async def test_one_connection_while_nobody_waits_and_one_more_when_someone_does(
    server: RedisServer, proxy: Proxy, url: str
) -> None:
    with gripfast.connect(server.url) as elsewhere:
        async with both_colours(url) as actors:
            for count, actor in enumerate(actors):
                before = proxy.connections
                for number in range(20):
                    await actor.release(await actor.acquire(f"job-{number}"))
                    await actor.inspect("job")
                    await actor.listing()
                assert proxy.connections - before == 1
                for _ in range(3):
                    with elsewhere.lock("job").acquire():
                        with pytest.raises(LockTimeout):
                            await actor.acquire("job", wait=0.05)
                assert proxy.connections - before == 2
                assert proxy.open_connections == 2 * (count + 1)
        await auntil(lambda: proxy.open_connections == 0)


@staged
async def test_twenty_threads_or_tasks_at_once(server: RedisServer, admin: redis.Redis) -> None:
    """Every answer is the one to its own question."""
    async with both_colours(server.url) as pair:

        async def lock_and_look(actor: Any, name: str) -> None:
            for _ in range(5):
                lease = await actor.acquire(name, label=f"label of {name}")
                info = await actor.inspect(name)
                assert (info.name, info.owner, info.label) == (name, lease.owner, f"label of {name}")
                await actor.release(lease)

        for actor in pair:
            crowd = [another(actor) for _ in range(20)]
            await asyncio.gather(*(lock_and_look(one, f"job-{number}") for number, one in enumerate(crowd)))
            for one in crowd:
                await one.leaves()
        assert len(connections(admin)) <= 8 + 1


@staged
async def test_thousands_of_tasks_wait_in_order_on_two_connections(
    server: RedisServer, admin: redis.Redis, is_sampled: bool
) -> None:
    tasks = 1000 if is_sampled else 5000
    async with gripfast.connect_async(server.url) as client:
        served = await serve_in_order(client, admin, tasks)
    assert served == list(range(tasks))


async def serve_in_order(client: gripfast.AsyncClient, admin: redis.Redis, tasks: int) -> list[int]:
    """Who got the lock, in this order, of those that began to wait in the order of their numbers."""
    served: list[int] = []

    async def wait(number: int) -> None:
        async with client.lock("job", ttl=60):
            served.append(number)

    first = await client.lock("job").acquire()
    with pytest.raises(LockTimeout):  # so that it listens: until it does, nobody stands in line
        await client.lock("job").acquire(wait=0.01)
    waiting = [asyncio.create_task(wait(number)) for number in range(tasks)]

    async def all_wait() -> bool:
        info = await client.inspect("job")
        return info is not None and info.waiters == tasks

    await auntil(all_wait, within=20)
    assert len(connections(admin)) == 2
    await first.release()
    await asyncio.gather(*waiting)
    assert len(connections(admin)) == 2
    return served


@staged
async def test_a_client_that_is_asked_something_while_it_is_closed_leaves_no_connection(proxy: Proxy, url: str) -> None:
    async with both_colours(url) as actors:
        for actor in actors:
            helper = another(actor)
            await actor.inspect("job")
            proxy.hold("replies")
            before = proxy.held("replies")
            looking = asyncio.ensure_future(outcome(helper.inspect("job")))
            await auntil(lambda before=before: proxy.held("replies") > before)
            await type(actor).disconnect(actor.client)
            proxy.let_go()
            told = await looking
            assert told.error is None or "this client is closed" in str(told.error)
            await auntil(lambda: proxy.open_connections == 0)
            await helper.leaves()


@staged
async def test_whoever_is_claiming_when_the_client_is_closed_is_told_so(proxy: Proxy, url: str) -> None:
    async with both_colours(url, request_timeout=0.5) as actors:
        for actor in actors:
            helper = another(actor)
            await actor.release(await actor.acquire("job"))
            proxy.hold("replies")
            before = proxy.held("replies")
            claiming = asyncio.ensure_future(outcome(helper.acquire("job")))
            await auntil(lambda before=before: proxy.held("replies") > before)
            closing = asyncio.ensure_future(type(actor).disconnect(actor.client))
            await auntil(lambda actor=actor: actor.client._is_closed)
            proxy.let_go()
            told = await claiming
            await closing
            assert isinstance(told.error, ClientClosed), told
            await helper.leaves()
    with gripfast.connect(url) as client:
        assert client.inspect("job") is None


# When they break ------------------------------------------------------------------------------------------------------


@staged
async def test_connections_that_are_killed_between_requests_are_nobodys_trouble(
    server: RedisServer, admin: redis.Redis
) -> None:
    async with both_colours(server.url) as actors:
        kept = await each(actors, lambda actor: actor.acquire(f"kept-{actor.colour}", ttl=0.6))
        for _ in range(3):
            for actor in actors:
                kill_all(admin)
                lease = await actor.acquire("job")
                kill_all(admin)
                assert (await actor.inspect("job")).owner == lease.owner
                kill_all(admin)
                assert "job" in [info.name for info in await actor.listing()]
                kill_all(admin)
                await actor.extend(lease)
                kill_all(admin)
                assert await another_tries(actor, "job") is None
                kill_all(admin)
                await actor.release(lease)
        for lease in kept:
            await auntil(renewal_of(lease))


async def another_tries(actor: Any, name: str) -> Any:
    helper = another(actor)
    try:
        return await helper.try_acquire(name)
    finally:
        await helper.leaves()


@staged
async def test_a_reply_that_is_lost_is_asked_for_again(proxy: Proxy, url: str) -> None:
    """What was asked may have been done: a release is one though the second answer is "not yours"."""
    async with both_colours(url) as actors:
        for actor in actors:
            await actor.force_release("job")  # every script is known to the server from here on
            lease = await actor.acquire("job")
            await actor.extend(lease)
            await actor.release(lease)
            assert await actor.listing() == []

            proxy.drop_reply()
            lease = await actor.acquire("job")
            proxy.drop_reply()
            assert (await actor.inspect("job")).token == lease.token
            proxy.drop_reply()
            assert [info.token for info in await actor.listing()] == [lease.token]
            proxy.drop_reply()
            await actor.extend(lease)
            assert lease.held
            proxy.drop_reply()
            await actor.release(lease)
            assert not proxy.armed()
            assert await actor.inspect("job") is None

            lease = await actor.acquire("job")
            proxy.drop_reply()
            told = await outcome(actor.force_release("job"))
            assert told.result is True or isinstance(told.error, OutcomeUnknown), "it was held"
            assert await actor.inspect("job") is None


@staged
async def test_a_restarted_server_is_nobodys_trouble(server: RedisServer) -> None:
    """It has forgotten everything, and the scripts as well; whoever waited gets the lock."""
    async with both_colours(server.url, request_timeout=3) as actors, both_colours(server.url) as others:
        await each(actors, lambda actor: actor.acquire(actor.colour))
        waiting = [other.acquire(actor.colour) for actor, other in zip(actors, others, strict=True)]
        for actor in actors:
            await auntil(functools.partial(has_waiters, actor, actor.colour, 1))
        server.restart()
        for actor, lease in zip(actors, await asyncio.wait_for(asyncio.gather(*waiting), 2), strict=True):
            assert (await actor.inspect(actor.colour)).owner == lease.owner
            assert await actor.acquire(f"another-{actor.colour}")


@staged
async def test_waiters_whose_connection_for_pushes_is_killed_are_woken_all_the_same(
    server: RedisServer, admin: redis.Redis
) -> None:
    """They listen again and ask; nobody has to wait until it would ask anyway."""
    with gripfast.connect(server.url) as elsewhere:
        async with both_colours(server.url) as actors:
            for actor in actors:
                crowd = [another(actor) for _ in range(8)]
                for _ in range(15):
                    first = elsewhere.lock("job").acquire()
                    waiting = [asyncio.ensure_future(_pass_on(one)) for one in crowd]
                    await auntil(lambda: _waiters(elsewhere) == 8)
                    admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
                    first.release()
                    await asyncio.wait_for(asyncio.gather(*waiting), 2 * AT_ONCE)
                for one in crowd:
                    await one.leaves()


async def _pass_on(actor: Any) -> None:
    await actor.release(await actor.acquire("job"))


def _waiters(client: gripfast.Client, name: str = "job") -> int:
    info = client.inspect(name)
    return info.waiters if info is not None else 0


@staged
async def test_a_connection_for_pushes_that_was_killed_while_nobody_waited(
    server: RedisServer, admin: redis.Redis
) -> None:
    with gripfast.connect(server.url) as elsewhere:
        async with both_colours(server.url) as actors:
            for actor in actors:
                with elsewhere.lock("job").acquire(), pytest.raises(LockTimeout):
                    await actor.acquire("job", wait=0.01)
                admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
                first = elsewhere.lock("job").acquire()
                waiting = actor.acquire("job")
                await auntil(lambda: _waiters(elsewhere) == 1)
                first.release()
                await actor.release(await asyncio.wait_for(waiting, AT_ONCE))


@staged
async def test_a_message_that_is_no_grant_disturbs_nobody(server: RedisServer, admin: redis.Redis) -> None:
    with gripfast.connect(server.url) as elsewhere:
        async with both_colours(server.url) as actors:
            for actor in actors:
                first = elsewhere.lock("job").acquire()
                waiting = actor.acquire("job")
                await auntil(lambda: _waiters(elsewhere) == 1)
                for channel in admin.pubsub_channels("gripfast:*"):
                    for junk in ("", "junk", "a b c", f"{'0' * 32} 1", b"\xff \xff \xff"):
                        admin.publish(channel, junk)
                first.release()
                await actor.release(await asyncio.wait_for(waiting, AT_ONCE))


# Whom a push or a reply is for ----------------------------------------------------------------------------------------


@staged
async def test_cancelled_calls_leave_no_reply_for_others(proxy: Proxy, url: str) -> None:
    chance = random.Random(7)
    loop = asyncio.get_running_loop()
    async with gripfast.connect_async(url) as client:
        await client.inspect("job")
        proxy.delay(requests=0.002, replies=0.003)

        async def lock(number: int) -> None:
            async with client.lock(f"job-{number % 10}").acquire(wait=5):
                await client.inspect(f"job-{number % 10}")

        tasks = [asyncio.create_task(lock(number)) for number in range(200)]
        for task in tasks:
            loop.call_later(chance.random() * 0.1, task.cancel)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(task.cancelled() for task in tasks) > 100
        for number in range(10):
            name = f"job-{number}"
            lease = await client.lock(name, label=name).acquire(wait=2)
            info = await client.inspect(name)
            assert info is not None
            assert (info.name, info.label, info.owner, info.token) == (name, name, lease.owner, lease.token)
            await lease.release()


class Waiters:
    """Threads of one client, each waiting for a lock of its own that another client holds."""

    def __init__(self, client: gripfast.Client, elsewhere: gripfast.Client) -> None:
        self._client = client
        self._elsewhere = elsewhere
        self._threads = concurrent.futures.ThreadPoolExecutor()
        self._held: dict[str, Any] = {}
        self._waiting: dict[str, concurrent.futures.Future[Any]] = {}

    def add(self, name: str, wait: float = 10.0, ttl: float = 30.0) -> None:
        self._held[name] = self._elsewhere.lock(name).acquire()
        lock = self._client.lock(name, ttl=ttl)
        self._waiting[name] = self._threads.submit(lock.acquire, wait)
        until(lambda: _waiters(self._elsewhere, name) == 1)

    def free(self, name: str) -> None:
        self._held.pop(name).release()

    def result(self, name: str) -> Any:
        return self._waiting.pop(name).result(timeout=10)

    def seconds_to_wake(self, name: str) -> float:
        started = time.monotonic()
        self.free(name)
        self.result(name).release()
        return time.monotonic() - started

    def __enter__(self) -> "Waiters":
        return self

    def __exit__(self, *exc: object) -> None:
        for name in list(self._held):
            self.free(name)
        self._threads.shutdown()


@pytest.fixture
def waiters(server: RedisServer, url: str) -> Iterator[Waiters]:
    with gripfast.connect(server.url) as elsewhere, gripfast.connect(url) as client:
        with Waiters(client, elsewhere) as waiters:
            yield waiters


def test_when_the_thread_that_reads_for_all_gets_its_lock_another_one_reads(waiters: Waiters) -> None:
    for name in "abcdef":
        waiters.add(name)
    for name in "adbfec":
        assert waiters.seconds_to_wake(name) < AT_ONCE, name


def test_when_the_thread_that_reads_for_all_gives_up_another_one_reads(waiters: Waiters) -> None:
    waiters.add("leader", wait=0.3)
    for name in "abc":
        waiters.add(name)
    with pytest.raises(LockTimeout):
        waiters.result("leader")
    for name in "cab":
        assert waiters.seconds_to_wake(name) < AT_ONCE, name


def test_whoever_is_granted_the_lock_by_asking_does_not_leave_the_others_without_a_reader(
    waiters: Waiters, proxy: Proxy
) -> None:
    """It was asking, not listening, when the one who read left."""
    waiters.add("asks", ttl=1.5)
    waiters.add("gives up", wait=1.3)
    waiters.add("waits")
    before, answered = proxy.arrived("requests"), proxy.passed("replies")
    until(lambda: proxy.passed("replies") > answered)  # "asks" has shown that it is there: now "gives up" reads
    claim = proxy.arrived("requests") - before
    before = proxy.arrived("requests")
    proxy.hold("replies")
    waiters.free("asks")  # it does not hear the push
    # It has asked once more, and "gives up" has left.
    until(lambda: proxy.arrived("requests") > before + claim, within=10)
    proxy.let_go()
    waiters.result("asks").release()
    with pytest.raises(LockTimeout):
        waiters.result("gives up")
    assert waiters.seconds_to_wake("waits") < AT_ONCE


# Forks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_has_connections_of_its_own_and_leaves_those_of_its_parent(
    server: RedisServer, admin: redis.Redis
) -> None:
    with gripfast.connect(server.url) as elsewhere, gripfast.connect(server.url) as client:
        with Waiters(client, elsewhere) as waiters:
            waiters.add("awaited")
            lease = client.lock("kept", ttl=0.9).acquire()
            before = connections(admin)
            assert in_a_child(lambda: _use_anew(client, server.port, before)) == [True, True]
            until(lambda: connections(admin) == before)
            until(renewal_of(lease))
            assert waiters.seconds_to_wake("awaited") < AT_ONCE
            lease.release()
            assert connections(admin) == before


def _use_anew(client: gripfast.Client, port: int, before: set[str]) -> list[bool]:
    """In the child: locked out by its parent, and connected by itself."""
    is_locked_out = client.lock("kept").try_acquire() is None
    client.lock("job").acquire().release()
    with redis.Redis("127.0.0.1", port) as mine:
        is_connected_anew = len(connections(mine) - before) >= 2  # one of its own, and the admin of its parent
    client.close()
    return [is_locked_out, is_connected_anew]


def in_a_child(answer: Callable[[], Any]) -> Any:
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.write(writing, json.dumps(answer()).encode())
        except BaseException as error:
            os.write(writing, json.dumps(repr(error)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        text = told.read()
    os.waitpid(pid, 0)
    return json.loads(text)
