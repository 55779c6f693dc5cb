"""Locks on nodes that are reached in every way there is: passwords, TLS, sockets, clients of redis-py, prefixes."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
import redis
import redis.asyncio

import gripfast
from gripfast import ConfigurationError
from support.both_colours import both_colours, each, staged
from support.redis_server import HOST, RedisServer
from support.redlock_nodes import redlock_url

THREE = 3
PATIENT = {"request_timeout": 2.0}
"""A node has more time here: these tests are about who is reached, not about how soon."""
PASSWORD = "se,cr/et@%2F"


@contextlib.contextmanager
def three(*arguments: str, **kind: Any) -> Iterator[list[RedisServer]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(RedisServer(*arguments, **kind)) for _ in range(THREE)]


async def assert_locks(target: Any, where: str, **options: Any) -> None:
    """Both colours lock there, exclude each other, wait and are woken."""
    async with both_colours(target, **PATIENT, **options) as actors:
        first, second = actors
        assert [actor.client.where for actor in actors] == [where, where]
        lease = await first.acquire("job")
        assert await second.try_acquire("job") is None
        waiting = second.acquire("job")
        assert await first.does(lambda: lease.held)
        await first.release(lease)
        next_one = await waiting
        assert next_one.token > lease.token
        await second.release(next_one)
        assert await each(actors, lambda actor: actor.inspect("job")) == [None, None]


@staged
async def test_passwords_of_strange_characters(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), three("--requirepass", PASSWORD) as servers:
        hosts = [f"{HOST}:{server.port}" for server in servers]
        where = f"redlock://{','.join(hosts)}/0"
        login = f":{quote(PASSWORD, safe='')}@"
        await assert_locks(f"redlock://{login}{','.join(hosts)}", where)
        await assert_locks(f"redlock://{','.join(login + host for host in hosts)}/0", where)
        await assert_locks([f"redis://{login}{host}" for host in hosts], where)
        await assert_locks(where, where, password=PASSWORD)
    assert PASSWORD not in caplog.text
    assert quote(PASSWORD, safe="") not in caplog.text


@staged
async def test_tls() -> None:
    with three(tls=True) as servers:
        hosts = ",".join(f"{HOST}:{server.port}" for server in servers)
        await assert_locks([server.url for server in servers], f"redlocks://{hosts}/0")
        authority = [server.url.partition("ssl_ca_certs=")[2] for server in servers]
        clients = [
            redis.Redis(HOST, server.port, ssl=True, ssl_ca_certs=path)
            for server, path in zip(servers, authority, strict=True)
        ]
        await assert_locks(clients, f"redlocks://{hosts}/0")


@staged
async def test_tls_by_one_url() -> None:
    with three(tls=True) as servers:
        url = redlock_url(servers, ssl_cert_reqs="none", ssl_check_hostname="false").replace("redlock:", "redlocks:")
        await assert_locks(url, f"redlocks://{','.join(f'{HOST}:{server.port}' for server in servers)}/0")


@staged
async def test_nodes_of_every_kind_together() -> None:
    with RedisServer(unix=True) as first, RedisServer() as second, RedisServer(tls=True) as third:
        with redis.Redis(HOST, second.port, db=3) as client:
            where = f"Redlock on unix://{first.folder}/socket, redis://{HOST}:{second.port}/3, rediss://{HOST}:{third.port}/0"
            await assert_locks([first.url, client, third.url], where)
            assert client.keys()  # what it has accepted is there, in that database


@pytest.mark.parametrize("make", [redis.Redis, redis.asyncio.Redis])
@staged
async def test_clients_of_either_colour_will_do_for_either_colour(make: Callable[..., Any]) -> None:
    with three() as servers:
        theirs = [make(host=HOST, port=server.port) for server in servers]
        await assert_locks(theirs, f"{redlock_url(servers)}/0")
        for client in theirs:
            closing = client.aclose() if hasattr(client, "aclose") else client.close()
            if closing is not None:
                await closing


def has_key(server: RedisServer, key: str) -> bool:
    with redis.Redis(HOST, server.port, db=2) as client:
        return client.exists(key) == 1


@staged
async def test_prefixes_and_databases_are_lock_spaces_of_their_own() -> None:
    with three() as servers:
        hosts = redlock_url(servers)
        async with (
            both_colours(f"{hosts}/2?prefix=a:", **PATIENT) as one,
            both_colours(f"{hosts}/2", **PATIENT) as other,
        ):
            leases = await each([one[0], other[1]], lambda actor: actor.acquire("job"))
            assert await each(one, lambda actor: actor.try_acquire("job")) == [None, None]
            for key in ("a:job", "lock:job"):  # a majority is enough for a grant
                assert len([server for server in servers if has_key(server, key)]) >= 2
            await one[0].release(leases[0])
            await other[1].release(leases[1])


@staged
async def test_an_extension_that_nodes_are_not_prepared_for_is_refused_and_the_lease_stays() -> None:
    with three() as servers:
        async with both_colours(redlock_url(servers, max_ttl=10), **PATIENT) as actors:
            for actor in actors:
                lease = await actor.acquire("job")
                assert lease.ttl == 10
                with pytest.raises(ConfigurationError, match=r"at most max_ttl \(10 seconds\)"):
                    await actor.extend(lease, 11)
                assert lease.held
                await actor.extend(lease, 9)
                assert lease.ttl == 9
                await actor.release(lease)


@pytest.mark.parametrize("colour", ["blocking", "asyncio"])
def test_no_request_is_refused_for_want_of_its_script(colour: str) -> None:
    """A clean-up that nobody waits for would be lost if its client is closed at that moment."""

    async def with_tasks(url: str) -> None:
        async with gripfast.connect_async(url) as client, client.lock("job"):
            pass

    def with_threads(url: str) -> None:
        with gripfast.connect(url) as client, client.lock("job"):
            pass

    with three() as servers:
        url = redlock_url(servers, request_timeout=1)
        if colour == "asyncio":
            asyncio.run(with_tasks(url))
        else:
            with_threads(url)
        for server in servers:
            with server.client() as client:
                assert "errorstat_NOSCRIPT" not in client.info("errorstats")
