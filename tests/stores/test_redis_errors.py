"""A Redis server that can't be asked, or refuses, is reported by its address, with what to do about it, in time; what
is held meanwhile is kept, and what failed leaves nothing behind. Both colours are on stage at once."""

import asyncio
import contextlib
import functools
import logging
import re
import socket
import socketserver
import threading
import traceback
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
import redis

from gripfast import LeaseLost, StoreUnavailable
from gripfast.stores.redis.keys import LAYOUT
from support.both_colours import CLAIMS, LOOKS, Outcome, both_colours, each, outcome, outcomes, staged
from support.colours import renewal_of
from support.proxy import Proxy
from support.redis_server import RedisServer, shared_server
from support.redis_troubles import (
    DEAF,
    NO_WRITES,
    PASSWORD,
    command,
    guarded_server,
    holder_of,
    locks_on,
    out_of_memory,
    url_of,
    where,
)
from support.waiting import auntil

IMPATIENT = {"request_timeout": 0.2, "connect_patience": 0.2}
PATIENT = {"request_timeout": 0.2, "connect_patience": 60.0}
IN_TIME = 2.0
"""Seconds that no call may take: the patience of these tests and one request, and much for a slow machine."""


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with guarded_server() as server:
        yield server


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever is wrong with the server: no password in the log, and no thread or task stumbles."""
    caplog.set_level(logging.DEBUG)
    yield
    records = caplog.get_records("call")
    assert [record.getMessage() for record in records if PASSWORD in record.getMessage()] == []
    stumbles = [record for record in records if record.levelno >= logging.ERROR or "unexpected" in record.getMessage()]
    assert [record.getMessage() for record in stumbles] == []


def assert_clear(told: dict[str, Outcome], where: str, says: str) -> None:
    """Every one failed in time, with an error that names the server and says what is wrong and what to do."""
    for call, (result, error, seconds) in told.items():
        assert isinstance(error, StoreUnavailable), f"{call}: {error!r}, {result!r}"
        assert seconds < IN_TIME, call
        assert str(error).startswith(f"{where} "), f"{call}: {error}"
        assert list(error.nodes) == [where], call
        assert re.search(says, str(error)), f"{call}: {error}"
        assert re.search(says, error.nodes[where]), f"{call}: {error.nodes}"
        assert PASSWORD not in "".join(traceback.format_exception(error)) + repr(error), call


async def assert_all_fail(url: str, where: str, says: str, **options: Any) -> None:
    async with both_colours(url, **IMPATIENT | options) as actors:
        for told in await each(actors, lambda actor: outcomes(actor, CLAIMS | LOOKS)):
            assert_clear(told, where, says)
        for actor in actors:
            assert PASSWORD not in repr(actor.client)


async def assert_claims_fail_at_once(target: Any, where: str, says: str) -> None:
    """Asking again would not help: nobody is patient."""
    async with both_colours(target, **PATIENT) as actors:
        for told in await each(actors, lambda actor: outcomes(actor, CLAIMS)):
            assert_clear(told, where, says)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("trouble", DEAF)
@staged
async def test_who_can_not_ask_the_server_is_told_its_address_and_what_to_do(server: RedisServer, trouble: str) -> None:
    breaks, says = DEAF[trouble]
    with breaks(server):
        await assert_all_fail(url_of(server), where(server.port), says)
    assert locks_on(server) == []


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("trouble", NO_WRITES)
@staged
async def test_a_server_that_takes_no_writes_grants_nothing_and_says_why(server: RedisServer, trouble: str) -> None:
    breaks, says = NO_WRITES[trouble]
    command(server, "SET", "lock:taken", "somebody")
    command(server, "SET", LAYOUT, "1")
    with breaks(server):
        async with both_colours(url_of(server), **IMPATIENT) as actors:
            for told in await each(actors, lambda actor: outcomes(actor, CLAIMS)):
                assert_clear(told, where(server.port), says)
            # What can be known is told.
            assert await each(actors, lambda actor: actor.inspect("free")) == [None, None]
            for info in await each(actors, lambda actor: actor.inspect("taken")):
                assert info.owner == "somebody"
            for found in await each(actors, lambda actor: actor.listing()):
                assert [info.name for info in found] == ["taken"]
    assert locks_on(server) == ["lock:taken"]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("trouble", sorted(NO_WRITES.keys() - {"out of memory"}))
@staged
async def test_a_force_release_that_is_refused_is_no_answer(server: RedisServer, trouble: str) -> None:
    breaks, says = NO_WRITES[trouble]
    command(server, "SET", "lock:taken", "somebody", "PX", 60_000)
    with breaks(server):
        async with both_colours(url_of(server), **IMPATIENT) as actors:
            for actor in actors:
                told = {actor.colour: await outcome(actor.force_release("taken"))}
                assert_clear(told, where(server.port), says)
    assert holder_of(server, "taken") == "somebody"


@staged
async def test_a_force_release_works_when_memory_is_short_for_it_needs_none(server: RedisServer) -> None:
    async with both_colours(url_of(server)) as actors:
        leases = await each(actors, lambda actor: actor.acquire(actor.colour))
        with out_of_memory(server):
            assert await each(actors, lambda actor: actor.force_release(actor.colour)) == [True, True]
            for actor, lease in zip(actors, leases, strict=True):
                with pytest.raises(LeaseLost) as loss:
                    await actor.release(lease)
                assert loss.value.reason == "broken"
        assert locks_on(server) == []


# What was held before -------------------------------------------------------------------------------------------------


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("trouble", DEAF | NO_WRITES)
@staged
async def test_trouble_that_ends_in_time_costs_no_lease_and_no_release(server: RedisServer, trouble: str) -> None:
    breaks, _ = (DEAF | NO_WRITES)[trouble]
    async with both_colours(url_of(server), request_timeout=0.5) as actors, both_colours(url_of(server)) as others:
        kept = await each(actors, lambda actor: actor.acquire(f"kept-{actor.colour}", ttl=3.6))
        released = await each(actors, lambda actor: actor.acquire(actor.colour))
        waiting = [other.acquire(actor.colour, wait=20) for actor, other in zip(actors, others, strict=True)]
        for actor in actors:
            await auntil(functools.partial(has_a_waiter, actor))
        with breaks(server):
            await asyncio.gather(*(actor.release(lease) for actor, lease in zip(actors, released, strict=True)))
            # A renewal was due and failed; where memory is short it needs none.
            await auntil(lambda: trouble == "out of memory" or all(lease.remaining() < 1.8 for lease in kept))
            assert trouble == "out of memory" or not any(each.done() for each in waiting)
        for lease in kept:
            await auntil(renewal_of(lease))
        next_ones = await asyncio.wait_for(asyncio.gather(*waiting), 2.5)
        assert all(next_one.token > lease.token for next_one, lease in zip(next_ones, released, strict=True))
        for lease in kept + next_ones:
            assert lease.held
            assert holder_of(server, lease.name) == lease.owner


async def has_a_waiter(actor: Any) -> bool:
    info = await actor.inspect(actor.colour)
    return bool(info.waiters)


@staged
async def test_a_lock_whose_key_was_replaced_by_something_else_is_lost(server: RedisServer) -> None:
    async with both_colours(url_of(server)) as actors:
        for actor in actors:
            renewed, released = await actor.acquire("renewed", ttl=1), await actor.acquire("released")
            for lease in (renewed, released):
                command(server, "DEL", f"lock:{lease.name}")
                command(server, "HSET", f"lock:{lease.name}", "not", "a lock")
            assert await actor.hears_of_loss(renewed)
            for lease in (renewed, released):
                with pytest.raises(LeaseLost) as loss:
                    await actor.release(lease)
                assert loss.value.reason == "taken"
                assert command(server, "HGETALL", f"lock:{lease.name}") == {b"not": b"a lock"}
                command(server, "DEL", f"lock:{lease.name}")


@staged
async def test_whoever_may_not_publish_hands_over_all_the_same(server: RedisServer) -> None:
    """The server stops in the middle of the hand-over: the next one has the lock, and finds out when it asks."""
    command(server, "ACL", "SETUSER", "mute", "on", f">{PASSWORD}", "allkeys", "allcommands", "resetchannels")
    async with both_colours(url_of(server, "mute")) as mutes, both_colours(url_of(server)) as others:
        leases = await each(mutes, lambda actor: actor.acquire(actor.colour))
        waiting = [other.acquire(mute.colour, ttl=0.9) for mute, other in zip(mutes, others, strict=True)]
        for mute in mutes:
            await auntil(functools.partial(has_a_waiter, mute))
        await asyncio.gather(*(mute.release(lease) for mute, lease in zip(mutes, leases, strict=True)))
        for lease, next_one in zip(leases, await asyncio.gather(*waiting), strict=True):
            assert next_one.token > lease.token
            assert holder_of(server, next_one.name) == next_one.owner


# What asking again can not change -------------------------------------------------------------------------------------


@staged
async def test_a_wrong_or_missing_password_is_said_at_once(server: RedisServer) -> None:
    place = where(server.port)
    command(server, "ACL", "SETUSER", "bob", "on", ">another", "allkeys", "allcommands")
    for user in ("", "bob", "nobody"):
        url = url_of(server, user).replace(quote(PASSWORD, safe=""), "x" + quote(PASSWORD, safe=""))
        await assert_claims_fail_at_once(url, place, "refuses the user name or password: check them")
    await assert_claims_fail_at_once(f"redis://127.0.0.1:{server.port}/0", place, "wants a password: put it into")
    await assert_all_fail(f"redis://127.0.0.1:{server.port}/0", place, "wants a password: put it into")


@staged
async def test_a_password_that_the_server_has_not_asked_for_is_said_at_once() -> None:
    port = shared_server().port
    theirs = redis.Redis("127.0.0.1", port, password=PASSWORD)
    for target in (f"redis://:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/0", theirs):
        await assert_claims_fail_at_once(target, where(port), "refuses the user name or password: check them")


LEAST = [
    "~lock:*", "~{lock:*}?gripfast:*", "~gripfast?gripfast:layout", "&gripfast:*", "+evalsha", "+eval", "+get",
    "+set", "+del", "+exists", "+pttl", "+pexpire", "+time", "+zadd", "+zscore", "+zrange", "+zrem", "+zcard", "+hset",
    "+hget", "+hdel", "+publish", "+subscribe", "+scan",
]  # fmt: skip


@pytest.mark.parametrize("missing", ["+evalsha", "+eval", "+set", "~lock:*", "~{lock:*}?gripfast:*"])
@staged
async def test_a_missing_permission_is_said_at_once(server: RedisServer, missing: str) -> None:
    allow(server, *(rule for rule in LEAST if rule != missing))
    command(server, "SCRIPT", "FLUSH")
    await assert_claims_fail_at_once(url_of(server, "ann"), where(server.port), "grant it the commands, keys and")
    assert locks_on(server) == []


@pytest.mark.parametrize("missing", ["+subscribe", "&gripfast:*", "+zadd"])
@staged
async def test_a_permission_that_only_waiting_needs_is_said_when_someone_waits(
    server: RedisServer, missing: str
) -> None:
    allow(server, *(rule for rule in LEAST if rule != missing))
    command(server, "SET", "lock:acquire(wait)", "somebody")
    async with both_colours(url_of(server, "ann"), **PATIENT) as actors:
        for told in await each(actors, lambda actor: outcomes(actor, {"acquire(wait)": CLAIMS["acquire(wait)"]})):
            assert_clear(told, where(server.port), "grant it the commands, keys and channels")
        assert await each(actors, lambda actor: actor.try_acquire("acquire(wait)")) == [None, None]


def allow(server: RedisServer, *rules: str) -> None:
    command(server, "ACL", "SETUSER", "ann", "reset", "on", f">{PASSWORD}", *rules)


@staged
async def test_a_key_that_is_no_lock_is_said_at_once_and_left_alone(server: RedisServer) -> None:
    names = CLAIMS | {name: call for name, call in LOOKS.items() if name != "list"}
    for name in names:
        command(server, "RPUSH", f"lock:{name}", "a", "b")
    async with both_colours(url_of(server), **PATIENT) as actors:
        for told in await each(actors, lambda actor: outcomes(actor, names)):
            assert_clear(told, where(server.port), "choose another name or prefix")
        assert await each(actors, lambda actor: actor.listing()) == [[], []]
    for name in names:
        assert command(server, "LRANGE", f"lock:{name}", 0, -1) == [b"a", b"b"]


@staged
async def test_a_database_that_does_not_exist_is_said_at_once(server: RedisServer) -> None:
    await assert_claims_fail_at_once(url_of(server, database=99), where(server.port, 99), "databases")


# No Redis there -------------------------------------------------------------------------------------------------------


@pytest.fixture
def nobody() -> Iterator[socket.socket]:
    """A port at which nobody listens, unless told to."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        yield nobody


@staged
async def test_a_host_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*args: Any, **kwargs: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    await assert_all_fail("redis://nowhere:6379/2", "redis://nowhere:6379/2", "Name or service not known; check")


@staged
async def test_a_host_that_can_not_exist() -> None:
    host = "a" * 64
    await assert_all_fail(f"redis://{host}:6379/0", f"redis://{host}:6379/0", "can't be reached: .*; check")


@staged
async def test_a_connection_that_is_never_made(nobody: socket.socket) -> None:
    """The system drops what comes to a listener whose queue is full."""
    nobody.listen(0)
    address = nobody.getsockname()
    with contextlib.ExitStack() as queue:
        for _ in range(3):
            caller = queue.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(address)
        await assert_all_fail(f"redis://127.0.0.1:{address[1]}/0", where(address[1]), "not made in time; check")


@staged
async def test_a_server_that_falls_silent(server: RedisServer) -> None:
    with Proxy(("127.0.0.1", server.port)) as proxy:
        url = url_of(server).replace(str(server.port), str(proxy.port))
        async with both_colours(url, **IMPATIENT) as actors:
            await each(actors, lambda actor: actor.inspect("job"))
            proxy.black_hole()
            for told in await each(actors, lambda actor: outcomes(actor, CLAIMS | LOOKS)):
                assert_clear(told, where(proxy.port), "did not answer within 0.2 s|not made in time")


NO_REDIS = {
    "http": (b"", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
    "garbage": (b"", bytes(range(256))),
    "ends at once": (b"", b""),
    "garbage later": (b"+OK\r\n", b"\0\1\2\r\n"),
    "ends later": (b"+OK\r\n", b""),
}


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("kind", NO_REDIS)
@staged
async def test_a_server_of_another_kind(kind: str) -> None:
    with impostor(*NO_REDIS[kind]) as port:
        await assert_all_fail(f"redis://127.0.0.1:{port}/0", where(port), "closed the connection|can't be reached: ")


@contextlib.contextmanager
def impostor(hello: bytes, reply: bytes) -> Iterator[int]:
    """Says hello to whatever a client begins with, if it has one, and replies to the rest; without a reply it ends."""

    class Talk(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                while data := self.request.recv(65536):
                    if not (answer := hello * data.count(b"CLIENT") or reply):
                        return
                    self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Talk) as listener:
        listener.daemon_threads = True
        thread = threading.Thread(target=listener.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield listener.server_address[1]
        finally:
            listener.shutdown()
            thread.join()


@staged
async def test_plain_words_to_a_tls_server_and_tls_to_a_plain_one() -> None:
    with RedisServer(tls=True) as tls, RedisServer() as plain:
        await assert_all_fail(f"redis://127.0.0.1:{tls.port}/0", where(tls.port), "check")
        await assert_all_fail(f"rediss://127.0.0.1:{plain.port}/0", where(plain.port, scheme="rediss"), "TLS")
        stranger = f"rediss://127.0.0.1:{tls.port}/0"  # certificates take a busy machine a while
        await assert_all_fail(stranger, where(tls.port, scheme="rediss"), "certificate", request_timeout=1.0)


@staged
async def test_a_server_with_no_connection_left(server: RedisServer) -> None:
    with server.client(password=PASSWORD) as client:
        client.config_set("maxclients", 1)
        await assert_all_fail(url_of(server), where(server.port), "raise its maxclients or close some")
        client.config_set("maxclients", 1000)
