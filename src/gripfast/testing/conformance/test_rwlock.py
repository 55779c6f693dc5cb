"""Read/write locks: many readers or one writer, first come first served; a writer may become a reader."""

import asyncio
from typing import Any

import pytest

from gripfast import ConfigurationError, LeaseLost, LockTimeout
from gripfast.testing.colours import World, renewal_of
from gripfast.testing.fixtures import needs, unless
from gripfast.testing.waiting import auntil

KIND: dict[str, Any] = {"kind": "rwlock"}


def reading(actor: Any, wait: Any = 10.0, **settings: Any) -> "asyncio.Future[Any]":
    return actor.acquire(actor.client.rwlock("index", **settings).read(), wait)  # type: ignore[no-any-return]


def writing(actor: Any, wait: Any = 10.0, **settings: Any) -> "asyncio.Future[Any]":
    return actor.acquire(actor.client.rwlock("index", **settings).write(), wait)  # type: ignore[no-any-return]


def try_reading(actor: Any) -> "asyncio.Future[Any]":
    return actor.try_acquire(actor.client.rwlock("index").read())  # type: ignore[no-any-return]


def try_writing(actor: Any) -> "asyncio.Future[Any]":
    return actor.try_acquire(actor.client.rwlock("index").write())  # type: ignore[no-any-return]


@needs("rwlocks")
async def test_many_read_and_one_writes(world: World) -> None:
    alice, bob, carol = world.actors(3)
    first, second = await reading(alice), await reading(bob)
    assert first.held
    assert second.held
    assert await try_writing(carol) is None
    await alice.release(first)
    assert await try_writing(carol) is None
    await bob.release(second)
    writer = await try_writing(carol)
    assert writer.token > max(first.token, second.token)
    assert await try_reading(alice) is None
    assert await try_writing(alice) is None
    await carol.release(writer)
    assert (await reading(alice)).token > writer.token


@needs("rwlocks")
async def test_blocks_read_and_write(world: World) -> None:
    alice, bob = world.actors(2)
    rwlock = alice.client.rwlock("index")

    async def shared(lease: Any) -> None:
        other = await try_reading(bob)
        assert other.held
        await bob.release(other)
        assert await try_writing(bob) is None

    async def alone(lease: Any) -> None:
        assert await try_reading(bob) is None

    await alice.inside(rwlock.read(), shared)
    await alice.inside_acquired(rwlock.read(), shared)
    await alice.inside(rwlock.write(), alone)
    await alice.inside_acquired(rwlock.write(), alone)
    assert await try_writing(bob)


@needs("rwlocks", "fair")
async def test_a_reader_does_not_pass_a_writer_that_waits(world: World) -> None:
    """Under a stream of readers the writer would never get its turn."""
    alice, bob, carol = world.actors(3)
    reader = await reading(alice)
    writer = writing(bob)
    await world.queued("index", 1, **KIND)
    late = reading(carol)
    await world.queued("index", 2, **KIND)
    await alice.release(reader)
    lease = await writer
    assert not late.done()
    await bob.release(lease)
    assert (await late).token > lease.token


@needs("rwlocks", "fair")
async def test_readers_that_wait_together_enter_together(world: World) -> None:
    alice, *readers = world.actors(6)
    writer = await writing(alice)
    waiting = []
    for place, actor in enumerate(readers, 1):
        waiting.append(reading(actor))
        await world.queued("index", place, **KIND)
    await alice.release(writer)
    leases = await asyncio.gather(*waiting)
    assert all(lease.held for lease in leases)


@needs("rwlocks")
async def test_a_writer_that_gives_up_lets_the_readers_in(world: World) -> None:
    alice, bob, carol = world.actors(3)
    await reading(alice)
    writer = writing(bob, wait=0.4)
    await world.queued("index", 1, **KIND)
    late = reading(carol)
    with pytest.raises(LockTimeout, match="write lock 'index' not acquired in"):
        await writer
    assert (await late).held


@needs("rwlocks")
@unless("session")
async def test_each_reader_expires_alone(world: World) -> None:
    alice, bob, carol = world.actors(3)
    short, long = await reading(alice, ttl=30, renew=False), await reading(bob, ttl=30, renew=False)
    await alice.extend(short, 0.05)
    writer = writing(carol)
    await world.queued("index", 1, **KIND)
    await auntil(lambda: not short.held)
    assert long.held
    assert not writer.done()
    await bob.release(long)
    assert (await writer).held


@needs("rwlocks")
async def test_readers_are_renewed(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await reading(alice, ttl=2)
    await auntil(renewal_of(lease), 5)
    assert await try_writing(bob) is None


# -- the same thread or task ------------------------------------------------------------------------------------------


@needs("rwlocks")
async def test_who_reads_may_read_again_although_a_writer_waits(world: World) -> None:
    alice, bob = world.actors(2)
    outer = await reading(alice)
    writer = writing(bob)
    await world.queued("index", 1, **KIND)
    inner = await try_reading(alice)
    assert inner.token == outer.token
    await alice.release(outer)
    assert inner.held
    assert not writer.done()
    await alice.release(inner)
    assert (await writer).held


@needs("rwlocks")
async def test_who_writes_may_read_and_write_again(world: World) -> None:
    alice, bob = world.actors(2)
    outer = await writing(alice)
    inner, innermost = await try_reading(alice), await try_writing(alice)
    assert outer.token == inner.token == innermost.token
    await alice.release(outer)
    await alice.release(innermost)
    assert await try_reading(bob) is None
    await alice.release(inner)
    assert await try_reading(bob)


@needs("rwlocks")
async def test_who_reads_can_not_write(world: World) -> None:
    alice = world.actor()
    lease = await reading(alice)
    with pytest.raises(ConfigurationError, match="reads 'index', and a reader can't become a writer"):
        await writing(alice, wait=None)
    with pytest.raises(ConfigurationError, match="a reader can't become a writer"):
        await try_writing(alice)
    await alice.release(lease)
    assert await try_writing(alice)


# -- downgrade --------------------------------------------------------------------------------------------------------


def downgrade(actor: Any, lease: Any) -> "asyncio.Future[None]":
    return actor.does(lambda: lease.downgrade())  # type: ignore[no-any-return]


@needs("rwlocks", "downgrades")
async def test_a_writer_that_becomes_a_reader_keeps_its_token_and_lets_readers_in(world: World) -> None:
    alice, bob, carol = world.actors(3)
    lease = await writing(alice)
    token = lease.token
    reader = reading(bob)
    await world.queued("index", 1, **KIND)
    writer = writing(carol)
    await world.queued("index", 2, **KIND)
    await downgrade(alice, lease)
    assert (await reader).held
    assert lease.held
    assert lease.token == token
    assert not writer.done(), "no writer comes in between"
    await downgrade(alice, lease)  # again: nothing
    info = await alice.inspect("index", **KIND)
    assert [each.is_writer for each in info.holders] == [False, False]
    await alice.release(lease)
    await bob.release(await reader)
    assert (await writer).token > token


@needs("rwlocks", "downgrades")
async def test_who_has_become_a_reader_can_not_write(world: World) -> None:
    alice = world.actor()
    lease = await writing(alice)
    await downgrade(alice, lease)
    with pytest.raises(ConfigurationError, match="a reader can't become a writer"):
        await try_writing(alice)
    inner = await try_reading(alice)
    assert inner.token == lease.token


@needs("rwlocks", "downgrades")
async def test_a_downgrade_is_refused_while_another_handle_lives(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await writing(alice)
    inner = await try_writing(alice)
    with pytest.raises(ConfigurationError, match="another handle of this thread or task"):
        await downgrade(alice, lease)
    assert await try_reading(bob) is None
    await alice.release(inner)
    await downgrade(alice, lease)
    assert await try_reading(bob)


@needs("rwlocks", "downgrades")
async def test_a_lost_lease_is_not_downgraded(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await writing(alice, ttl=1)
    await bob.force_release("index", **KIND)
    with pytest.raises(LeaseLost) as lost:
        await downgrade(alice, lease)
    assert lost.value.reason in (("broken", "session") if alice.client.capabilities.session else ("broken",))
    assert not lease.held
    assert await try_writing(bob)


# -- operators --------------------------------------------------------------------------------------------------------


@needs("rwlocks")
async def test_an_operator_sees_readers_and_writers(world: World) -> None:
    alice, bob = world.actors(2)
    first, second = await reading(alice), await reading(bob)
    info = await alice.inspect("index", **KIND)
    assert (info.name, info.kind) == ("index", "rwlock")
    assert {(each.owner, each.n, each.slots) for each in info.holders} == {
        (first.owner, 1, ()),
        (second.owner, 1, ()),
    }
    assert not any(each.is_writer for each in info.holders)
    assert await alice.force_release("index", owner=first.owner, **KIND)
    await bob.release(second)
    await auntil(lambda: not alice._kept[0].held, 15)
    lease = await writing(bob)
    info = await alice.inspect("index", **KIND)
    assert [(each.owner, each.is_writer) for each in info.holders] == [(lease.owner, True)]


async def test_what_a_store_can_not_keep_is_refused_with_the_way_out(world: World) -> None:
    client = world.connect()
    if client.capabilities.rwlocks:
        assert client.rwlock("index").name == "index"
        return
    with pytest.raises(ConfigurationError, match="can't keep read/write locks: connect to a store that can"):
        client.rwlock("index")


@needs("rwlocks")
async def test_a_rwlock_itself_is_not_acquired(world: World) -> None:
    rwlock = world.connect().rwlock("index")
    with pytest.raises(AttributeError, match=r"write rwlock.read\(\) or rwlock.write\(\)"):
        rwlock.acquire()
    with pytest.raises(TypeError, match="leave it out"):
        world.connect().rwlock("index", reentrant=True)
