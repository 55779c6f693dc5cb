"""`once()`: who comes first does it, and when it is done, nobody begins it again."""

import asyncio
from typing import Any

import pytest

from gripfast import ConfigurationError, GripfastError, LeaseLost, LockTimeout, current_lease
from gripfast.testing.colours import World
from gripfast.testing.fixtures import needs, unless
from gripfast.testing.waiting import auntil

LONG = 600.0


async def _nothing(run: Any) -> None:
    pass


def enters(actor: Any, body: Any = _nothing, name: str = "digest", keep: float = LONG, **settings: Any) -> Any:
    return actor.enters(lambda: actor.client.once(name, keep=keep, **settings), body)


async def outcome(actor: Any, **settings: Any) -> str:
    """What the block finds."""
    found: list[str] = []

    async def body(run: Any) -> None:
        assert (bool(run), run.done, run.busy).count(True) == 1
        found.append("to do" if run else "done" if run.done else "busy")

    await enters(actor, body, **settings)
    return found[0]


@needs("once")
async def test_what_is_done_is_not_begun_again(world: World) -> None:
    alice, bob = world.actors(2)
    tokens: list[int] = []

    async def body(run: Any) -> None:
        assert run
        assert run.lease.held
        tokens.append(run.lease.token)
        assert await outcome(bob) == "busy"

    await enters(alice, body, label="alice's")
    assert await outcome(alice) == "done"
    assert await outcome(bob) == "done"
    assert await outcome(bob, name="another") == "to do"
    info = await world.inspect("digest")
    assert (info.kept, info.token, info.label, info.pid) == ("done", tokens[0], "alice's", 0)
    assert LONG - 60 < info.expires_in <= LONG
    with pytest.raises(LockTimeout, match="done"):
        await bob.acquire("digest", wait=0.05)


@needs("once")
async def test_it_may_be_done_again_when_its_time_is_over(world: World) -> None:
    alice, bob = world.actors(2)
    await enters(alice, keep=0.3)

    async def is_to_do() -> bool:
        return await outcome(bob) == "to do"

    await auntil(is_to_do)


@needs("once")
async def test_an_exception_releases_without_done(world: World) -> None:
    alice, bob = world.actors(2)

    async def failing(run: Any) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await enters(alice, failing)
    assert await outcome(bob) == "to do"
    with pytest.raises(LookupError):
        await enters(alice, failing, name="other", done_on_error=True)
    assert await outcome(bob, name="other") == "done"


@needs("once")
async def test_who_waits_is_told_that_it_is_done(world: World) -> None:
    """It does not wait until the record is forgotten."""
    alice, bob = world.actors(2)
    waiting: list[Any] = []

    async def body(run: Any) -> None:
        waiting.append(asyncio.ensure_future(outcome(bob, wait=60, ttl=1)))
        await world.queued("digest", 1)

    await enters(alice, body)
    assert await asyncio.wait_for(waiting[0], 15) == "done"
    info = await world.inspect("digest")
    assert (info.kept, info.waiters) == ("done", 0)


@needs("once")
async def test_who_waits_for_one_that_fails_is_to_do_it(world: World) -> None:
    alice, bob = world.actors(2)
    waiting: list[Any] = []

    async def body(run: Any) -> None:
        waiting.append(asyncio.ensure_future(outcome(bob, wait=60)))
        await world.queued("digest", 1)
        raise LookupError

    with pytest.raises(LookupError):
        await enters(alice, body)
    assert await asyncio.wait_for(waiting[0], 15) == "to do"


@needs("once")
async def test_what_is_not_waited_for_is_busy(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("digest", label="at work")
    seen: list[Any] = []

    async def body(run: Any) -> None:
        assert run.busy
        seen.append(run)

    await enters(bob, body, wait=0.05)
    assert seen[0].holder.label == "at work"
    with pytest.raises(ConfigurationError, match="if run"):
        seen[0].lease  # noqa: B018
    await alice.release(lease)


@needs("once")
async def test_what_is_not_yours_any_more_is_not_recorded(world: World) -> None:
    """Somebody else has begun: "not yours" is no success."""
    alice, bob = world.actors(2)

    async def body(run: Any) -> None:
        await bob.force_release("digest")
        assert await bob.try_acquire("digest")

    with pytest.raises(LeaseLost):
        await enters(alice, body, ttl=20)
    assert (await world.inspect("digest")).kept is None


@needs("once")
async def test_a_force_release_leaves_alone_what_is_done(world: World, caplog: pytest.LogCaptureFixture) -> None:
    alice, bob = world.actors(2)
    await enters(alice)
    assert await bob.force_release("digest") is False
    assert await bob.force_release("digest", "again") is False
    assert await outcome(bob) == "done"
    assert "client.forget('digest')" in caplog.text


@needs("once")
async def test_what_is_done_can_be_forgotten(world: World) -> None:
    alice, bob = world.actors(2)
    assert await bob.does(lambda: bob.client.forget("digest")) is False
    lease = await bob.acquire("digest")
    assert await alice.does(lambda: alice.client.forget("digest")) is False
    assert lease.held
    await bob.release(lease)
    await enters(alice)
    token = (await world.inspect("digest")).token
    assert await bob.does(lambda: bob.client.forget("digest")) is True
    assert await world.inspect("digest") is None
    tokens: list[int] = []

    async def body(run: Any) -> None:
        tokens.append(run.lease.token)

    await enters(bob, body)
    assert tokens[0] > token


@needs("once")
async def test_a_client_that_is_closed_in_the_middle_has_not_done_it(world: World) -> None:
    alice, bob = world.actors(2)

    async def body(run: Any) -> None:
        await world.colour.disconnect(alice.client)

    with pytest.raises(GripfastError):
        await enters(alice, body)
    assert await outcome(bob) == "to do"


@needs("once")
async def test_a_decorated_function_runs_once(world: World) -> None:
    alice, bob = world.actors(2)
    days: list[str] = []

    def digest(day: str) -> str:
        assert current_lease().held
        days.append(day)
        return f"digest of {day}"

    first, second = (actor.client.once("digest:{day}", keep=LONG)(actor.function(digest)) for actor in (alice, bob))
    assert await alice.calls(first, "monday") == "digest of monday"
    assert await bob.calls(second, "monday") is None
    assert await bob.calls(second, day="tuesday") == "digest of tuesday"
    assert days == ["monday", "tuesday"]


@needs("once")
async def test_a_crowd_does_everything_once(world: World) -> None:
    actors = world.actors(3)
    begun: list[str] = []

    async def body(run: Any) -> None:
        if run:
            begun.append(run.name)

    async def work(actor: Any) -> None:
        for number in range(4):
            await enters(actor, body, name=f"digest:{number}", wait=30, ttl=1)

    await asyncio.wait_for(asyncio.gather(*map(work, actors)), 60)
    assert sorted(begun) == [f"digest:{number}" for number in range(4)]


@needs("once")
async def test_bad_settings_are_refused(world: World) -> None:
    client = world.connect()
    for keep in (0, -1, float("inf"), "7d", True):
        with pytest.raises(ConfigurationError, match="keep"):
            client.once("digest", keep=keep)
    with pytest.raises(ConfigurationError, match="done_on_error"):
        client.once("digest", keep=1, done_on_error="yes")
    with pytest.raises(TypeError, match="write keep=60"):
        client.once("digest", period=60, keep=1)
    with pytest.raises(TypeError, match="if run"):
        bool(client.once("digest", keep=1))
    with pytest.raises(TypeError, match="pickle"):
        client.once("digest", keep=1).__reduce_ex__(2)


@unless("once")
async def test_a_store_that_may_forget_what_is_done_refuses_it(world: World) -> None:
    with pytest.raises(ConfigurationError, match=r"once\(\)"):
        world.connect().once("digest", keep=1)
