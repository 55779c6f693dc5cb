"""`detach()` and `adopt()`: a held lock passes from one client to another."""

import asyncio
import base64
import json
from typing import Any

import pytest

from gripfast import ConfigurationError, LeaseLost
from gripfast.testing.colours import COLOURS, World
from gripfast.testing.fixtures import needs, unless
from gripfast.testing.waiting import auntil


def detach(actor: Any, lease: Any, *ttl: float) -> Any:
    return actor.does(lambda: lease.detach(*ttl))


def adopt(actor: Any, text: Any, **settings: Any) -> Any:
    return actor.does(lambda: actor.client.adopt(text, **settings), then=actor._keep)


@needs("hands_over")
async def test_a_detached_lock_is_adopted(world: World) -> None:
    alice, bob, carol = world.actors(3)
    lease = await alice.acquire("job", ttl=20)
    text = await detach(alice, lease)
    assert not lease.held
    with pytest.raises(LeaseLost, match="detached") as over:
        lease.ensure_held()
    assert over.value.reason == "detached"
    assert not lease.lost.is_set()
    assert await carol.try_acquire("job") is None
    adopted = await adopt(bob, text, label="bob's")
    assert adopted.held
    assert adopted.name == "job"
    assert adopted.token > lease.token
    assert adopted.owner != lease.owner
    assert adopted.ttl == 20
    info = await world.inspect("job")
    assert (info.owner, info.token, info.label) == (adopted.owner, adopted.token, "bob's")
    await alice.release(lease)
    assert await carol.try_acquire("job") is None
    await bob.release(adopted)
    assert await carol.try_acquire("job") is not None


@needs("hands_over")
async def test_an_adopted_lease_is_renewed(world: World) -> None:
    alice, bob = world.actors(2)
    adopted = await adopt(bob, await detach(alice, await alice.acquire("job", ttl=1)))
    loop = asyncio.get_running_loop()
    later = loop.time() + 1.5
    await auntil(lambda: loop.time() > later)
    assert adopted.held
    await bob.release(adopted)


@needs("hands_over")
async def test_a_detached_lock_that_nobody_adopts_expires(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job", ttl=20)
    text = await detach(alice, lease, 0.3)
    taken = await bob.acquire("job")
    assert taken.token > lease.token
    with pytest.raises(LeaseLost) as late:
        await adopt(alice, text)
    assert late.value.reason in ("taken", "expired")
    assert taken.held


@needs("hands_over")
async def test_a_longer_ttl_is_asked_for_before_it_is_detached(world: World) -> None:
    alice = world.actor()
    await detach(alice, await alice.acquire("job", ttl=1), 30)
    info = await world.inspect("job")
    assert info.expires_in > 20


@needs("hands_over")
async def test_only_one_can_adopt(world: World) -> None:
    alice, bob = world.actors(2)
    text = await detach(alice, await alice.acquire("job"))
    adopted = await adopt(bob, text)
    with pytest.raises(LeaseLost) as second:
        await adopt(alice, text)
    assert second.value.reason == "taken"
    assert adopted.held
    await bob.release(adopted)
    with pytest.raises(LeaseLost):
        await adopt(alice, text)


@needs("hands_over")
async def test_of_adopters_at_the_same_moment_one_believes(world: World) -> None:
    alice, *others = world.actors(4)
    for _ in range(5):
        text = await detach(alice, await alice.acquire("job"))
        answers: list[Any] = await asyncio.gather(*(adopt(actor, text) for actor in others), return_exceptions=True)
        adopted = [
            (actor, each) for actor, each in zip(others, answers, strict=True) if not isinstance(each, Exception)
        ]
        assert len(adopted) == 1, answers
        assert {each.reason for each in answers if isinstance(each, LeaseLost)} <= {"taken"}
        actor, lease = adopted[0]
        assert lease.held
        await actor.release(lease)


@needs("hands_over")
async def test_a_block_that_detaches_its_lease_ends_without_an_error(world: World) -> None:
    alice, bob = world.actors(2)
    texts: list[str] = []

    async def body(lease: Any) -> None:
        is_blocking = world.colour.colour == "blocking"
        texts.append(await (asyncio.to_thread(lease.detach) if is_blocking else lease.detach()))

    await alice.inside("job", body)
    assert await bob.try_acquire("job") is None
    await bob.release(await adopt(bob, texts[0]))


@needs("hands_over")
async def test_a_client_that_is_closed_leaves_alone_what_it_has_detached(world: World) -> None:
    alice, bob = world.actors(2)
    text = await detach(alice, await alice.acquire("job"))
    await world.colour.disconnect(alice.client)
    assert (await adopt(bob, text)).held


@needs("hands_over")
async def test_what_was_released_or_lost_can_not_be_detached(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job")
    await alice.release(lease)
    with pytest.raises(LeaseLost):
        await detach(alice, lease)
    lost = await alice.acquire("job")
    await bob.force_release("job")
    with pytest.raises(LeaseLost):
        await detach(alice, lost)
    detached = await alice.acquire("job")
    await detach(alice, detached)
    with pytest.raises(LeaseLost, match="detached"):
        await detach(alice, detached)


@needs("hands_over")
async def test_an_adopted_lease_that_nobody_keeps_is_released(world: World) -> None:
    alice, bob = world.actors(2)
    text = await detach(alice, await alice.acquire("job"))
    await bob.does(lambda: bob.client.adopt(text), then=lambda lease: None)
    await alice.acquire("job")


@needs("hands_over")
async def test_a_reentrant_lock_is_not_detached_while_another_lease_lives(world: World) -> None:
    alice, bob = world.actors(2)
    lock = alice.client.lock("job", reentrant=True)
    outer, inner = await alice.acquire(lock), await alice.acquire(lock)
    with pytest.raises(ConfigurationError, match="re-entrant"):
        await detach(alice, inner)
    assert inner.held
    await alice.release(inner)
    assert (await adopt(bob, await detach(alice, outer))).held


@needs("hands_over", "keeps")
async def test_the_rest_of_a_min_hold_travels_along(world: World) -> None:
    alice, bob = world.actors(2)
    text = await detach(alice, await alice.acquire("job", min_hold=600))
    await bob.release(await adopt(bob, text))
    info = await world.inspect("job")
    assert info.kept == "min_hold"
    assert 500 < info.expires_in <= 600


@needs("hands_over", "once")
async def test_what_is_to_be_done_once_is_not_detached(world: World) -> None:
    alice = world.actor()

    async def body(run: Any) -> None:
        with pytest.raises(ConfigurationError, match="once"):
            made = run.lease.detach()
            await made

    await alice.enters(lambda: alice.client.once("job", keep=60), body)
    assert (await world.inspect("job")).kept == "done"


@needs("hands_over")
async def test_the_text_has_no_secrets_of_the_store(world: World) -> None:
    alice = world.actor()
    text = await detach(alice, await alice.acquire("job"))
    assert isinstance(text, str)
    assert "\n" not in text
    inside = base64.urlsafe_b64decode(text.partition(".")[2]).decode()
    assert "job" in inside
    assert not {"@", "//"} & {part for part in ("@", "//") if part in inside}


@needs("hands_over")
async def test_a_text_that_makes_no_sense_is_refused(world: World) -> None:
    alice = world.actor()
    text = await detach(alice, await alice.acquire("job"))
    head, _, body = text.partition(".")
    fields = json.loads(base64.urlsafe_b64decode(body))

    def written(*changed: Any) -> str:
        return f"{head}.{base64.urlsafe_b64encode(json.dumps(changed).encode()).decode()}"

    bad: list[Any] = ["", "job", text[:-8], f"{head}.", f"{head}.!!", None, 7, text.encode(), written(*fields[:3])]
    bad += [written(fields[0], name, *fields[2:]) for name in ("", 7, "a\0b")]
    bad += [written(*fields[:2], owner, *fields[3:]) for owner in ("", 7, "done:x", "kept:x")]
    for each in bad:
        with pytest.raises(ConfigurationError):
            await adopt(alice, each)
    with pytest.raises(ConfigurationError, match="another engine"):
        await adopt(alice, written("another engine", *fields[1:]))
    assert (await adopt(alice, f"  {text}\n")).held


@needs("hands_over")
async def test_sync_and_async_adopt_from_each_other(url: str) -> None:
    worlds = [World(url, colour) for colour in COLOURS.values()]
    try:
        alice, bob = (world.actor() for world in worlds)
        lease = await alice.acquire("job")
        for giver, taker in ((alice, bob), (bob, alice)):
            token = lease.token
            lease = await adopt(taker, await detach(giver, lease))
            assert lease.token > token
        await alice.release(lease)
        assert await bob.try_acquire("job") is not None
    finally:
        for world in worlds:
            await world.close()


@unless("hands_over")
async def test_a_store_that_hands_nothing_over_refuses_it(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job")
    with pytest.raises(ConfigurationError, match=r"detach\(\)"):
        await detach(alice, lease)
    assert lease.held
    with pytest.raises(ConfigurationError, match=r"adopt\(\)"):
        await adopt(alice, "text")
