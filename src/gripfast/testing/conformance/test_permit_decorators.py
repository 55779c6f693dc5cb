"""`@client.limited(…)`, `@client.read_locked(…)`, `@client.write_locked(…)`: functions that run only while they have
permits."""

import asyncio
from typing import Any

import pytest

import gripfast
from gripfast import ConfigurationError, LockTimeout
from gripfast.testing.colours import World
from gripfast.testing.fixtures import needs
from gripfast.testing.observing import Recorder
from gripfast.testing.waiting import auntil

SEMAPHORE: dict[str, Any] = {"kind": "semaphore"}
RWLOCK: dict[str, Any] = {"kind": "rwlock"}


def look() -> tuple[str, int]:
    lease = gripfast.current_lease()
    lease.ensure_held()
    return lease.name, lease.token


@needs("semaphores")
async def test_a_limited_function_has_a_permit_while_it_runs(world: World) -> None:
    alice = world.actor()
    with gripfast.connect(world.url) as onlooker:

        def call(user: int) -> Any:
            slots = gripfast.current_lease().slots  # type: ignore[union-attr]
            return look(), slots, onlooker.inspect(f"api:{user}", kind="semaphore")

        limited = alice.client.limited("api:{user}", limit=3, label="the label")(world.colour.function(call))
        found, slots, info = await alice.calls(limited, 7)
    (holder,) = info.holders
    assert (found, slots) == (("api:7", holder.token), (0,))
    assert (info.limit, holder.n, holder.slots, holder.label) == (3, 1, (0,), "the label")
    assert await world.inspect("api:7", **SEMAPHORE) is None


@needs("semaphores")
async def test_as_many_calls_run_as_the_limit_says_and_others_do_as_busy_says(world: World) -> None:
    alice, bob = world.actors(2)

    def call(user: int) -> str:
        return f"called for {user}"

    def limited(**settings: Any) -> Any:
        return alice.client.limited("api:{user}", 2, **settings)(world.colour.function(call))

    taken = bob.client.semaphore("api:7", 2)
    first = await bob.acquire(taken)
    assert await alice.calls(limited(wait=0), 7) == "called for 7"
    await bob.acquire(taken)
    with pytest.raises(LockTimeout, match="semaphore 'api:7'"):
        await alice.calls(limited(wait=0), 7)
    assert await alice.calls(limited(wait=0, busy="skip"), 7) is None
    assert await alice.calls(limited(wait=0, busy=lambda busy: busy.name), 7) == "api:7"
    assert await alice.calls(limited(wait=0), 8) == "called for 8"
    calling = alice.calls(limited(), 7)
    await world.queued("api:7", 1, **SEMAPHORE)
    await bob.release(first)
    assert await calling == "called for 7"


@needs("semaphores")
async def test_an_error_of_a_limited_function_frees_the_permit(world: World) -> None:
    alice = world.actor()

    def fail() -> None:
        raise KeyError("the function's own")

    with pytest.raises(KeyError, match="the function's own"):
        await alice.calls(alice.client.limited("api", 1)(world.colour.function(fail)))
    assert await world.inspect("api", **SEMAPHORE) is None


@needs("semaphores")
async def test_a_function_with_another_limit_is_told_both(world: World) -> None:
    alice, bob = world.actors(2)
    await bob.acquire(bob.client.semaphore("api", 3))
    limited = alice.client.limited("api", 2)(world.colour.function(look))
    with pytest.raises(ConfigurationError, match=r"\b3\b.*\b2\b|\b2\b.*\b3\b"):
        await alice.calls(limited)


@needs("semaphores")
async def test_the_group_of_a_limited_function_is_the_template_of_its_name(world: World) -> None:
    seen = Recorder()
    alice = world.actor(observers=[seen])

    def decorated(**settings: Any) -> Any:
        return alice.client.limited("api:{user}", 2, **settings)(world.colour.function(lambda user: None))

    for user, settings, group in ((7, {}, "api:{user}"), (8, {"group": "calls"}, "calls")):
        await alice.calls(decorated(**settings), user)
        name = f"api:{user}"
        await auntil(lambda name=name: seen.kinds(name) == ["claimed", "granted", "released"])  # type: ignore[misc]
        assert {event.group for event in seen.of(name)} == {group}


@needs("rwlocks")
async def test_readers_run_together_and_a_writer_alone(world: World) -> None:
    alice, bob = world.actors(2)
    index = bob.client.rwlock("index:7")

    def decorated(decorate: Any) -> Any:
        return decorate("index:{shard}", wait=0, busy="skip")(world.colour.function(lambda shard: look()))

    read, write = decorated(alice.client.read_locked), decorated(alice.client.write_locked)
    reader = await bob.acquire(index.read())
    name, token = await alice.calls(read, 7)
    assert (name, token > reader.token) == ("index:7", True)
    assert await alice.calls(write, 7) is None
    assert await alice.calls(write, 8) is not None
    await bob.release(reader)
    writer = await bob.acquire(index.write())
    assert await alice.calls(read, 7) is None
    await bob.release(writer)
    assert (await alice.calls(write, 7))[1] > writer.token
    assert await world.inspect("index:7", **RWLOCK) is None


@needs("rwlocks")
async def test_a_writing_function_may_call_a_reading_one(world: World) -> None:
    alice = world.actor()
    if world.colour.colour == "blocking":

        @alice.client.read_locked("index", wait=0)  # type: ignore[untyped-decorator]
        def read() -> int:
            return gripfast.current_lease().token

        @alice.client.write_locked("index", wait=0)  # type: ignore[untyped-decorator]
        def write() -> tuple[int, int]:
            return gripfast.current_lease().token, read()

    else:

        @alice.client.read_locked("index", wait=0)  # type: ignore[untyped-decorator]
        async def read() -> int:
            return gripfast.current_lease().token

        @alice.client.write_locked("index", wait=0)  # type: ignore[untyped-decorator]
        async def write() -> tuple[int, int]:
            return gripfast.current_lease().token, await read()

    outer, inner = await alice.calls(write)
    assert outer == inner
    assert await world.inspect("index", **RWLOCK) is None


@needs("downgrades")
async def test_a_writing_function_becomes_a_reader(world: World) -> None:
    alice, bob = world.actors(2)
    if world.colour.colour == "blocking":

        @alice.client.write_locked("index")  # type: ignore[untyped-decorator]
        def write() -> Any:
            gripfast.current_lease(gripfast.WriteLease).downgrade()
            return asyncio.run_coroutine_threadsafe(bob_reads(), loop).result()

    else:

        @alice.client.write_locked("index")  # type: ignore[untyped-decorator]
        async def write() -> Any:
            await gripfast.current_lease(gripfast.AsyncWriteLease).downgrade()
            return await bob_reads()

    async def bob_reads() -> Any:
        return await bob.try_acquire(bob.client.rwlock("index").read())

    loop = asyncio.get_running_loop()
    assert (await alice.calls(write)).held


@needs("semaphores", "rwlocks")
async def test_a_blocking_client_gives_permits_to_async_functions_too(threads: World) -> None:
    client = threads.connect()
    bob = threads.actor()
    index = bob.client.rwlock("index")

    @client.limited("api:{user}", 1, wait=5)  # type: ignore[untyped-decorator]
    async def call(user: int) -> Any:
        assert await bob.try_acquire(bob.client.semaphore("api:7", 1)) is None
        return gripfast.current_lease(gripfast.AsyncSemaphoreLease).slots

    @client.read_locked("index", wait=5)  # type: ignore[untyped-decorator]
    async def read() -> Any:
        return await bob.try_acquire(index.write()), await bob.try_acquire(index.read())

    @client.write_locked("index", wait=5)  # type: ignore[untyped-decorator]
    async def write() -> Any:
        return await bob.try_acquire(index.read())

    assert await call(7) == (0,)
    writer, reader = await read()
    assert (writer, reader.held) == (None, True)
    await bob.release(reader)
    assert await write() is None


@needs("semaphores", "rwlocks")
async def test_an_async_client_refuses_to_limit_plain_functions(tasks: World) -> None:
    client = tasks.connect()
    for decorate in (client.limited("api", 2), client.read_locked("index"), client.write_locked("index")):
        with pytest.raises(ConfigurationError, match="is not async"):
            decorate(lambda: None)
