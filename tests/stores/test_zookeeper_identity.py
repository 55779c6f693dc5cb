"""Who one is: a login in the URL, or the caller's own KazooClient with its session, identity and ACLs."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import ACL, Permissions, make_acl, make_digest_acl

import gripfast
from support.both_colours import CLAIMS, LOOKS, another, both_colours, each, outcomes, staged
from support.waiting import auntil
from support.zookeeper_servers import new_root, zookeeper_server

ME, PASSWORD = "me", "s3cret/@:%"
LOGIN = "me:s3cret%2F%40:%25"
"""As it stands in a URL."""
MINE = [make_digest_acl(ME, PASSWORD, all=True)]
ANYBODY = "world"


@pytest.fixture
def root() -> str:
    return new_root()


def url_as(login: str, root: str) -> str:
    return zookeeper_server().url_with(root=root).replace("://", f"://{login}@" if login else "://")


@contextlib.contextmanager
def kazoo(*, running: bool = True, **settings: Any) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper_server().address, **({"timeout": 8.0} | settings))
    try:
        if running:
            client.start()
        yield client
    finally:
        client.stop()
        client.close()


def acls_below(root: str) -> dict[str, list[ACL]]:
    """Of the root and of all nodes that are there."""
    with kazoo(auth_data=[("digest", f"{ME}:{PASSWORD}")]) as client:
        names = client.get_children(root)
        nodes = [f"{root}/{name}/{node}" for name in names for node in client.get_children(f"{root}/{name}")]
        return {path: client.get_acls(path)[0] for path in (root, *(f"{root}/{name}" for name in names), *nodes)}


# A login in the URL ---------------------------------------------------------------------------------------------------


@staged
async def test_what_a_login_makes_is_its_own(root: str) -> None:
    async with both_colours(url_as(LOGIN, root)) as actors:
        await each(actors, lambda actor: actor.acquire(actor.colour))
        found = acls_below(root)
    assert len(found) == 6
    assert all(acls == MINE for acls in found.values()), found


@pytest.mark.parametrize("login", ["", "other:secret"])
@staged
async def test_everybody_else_is_told_so(root: str, login: str) -> None:
    calls = CLAIMS | LOOKS
    with gripfast.connect(url_as(LOGIN, root)) as owner:
        leases = [owner.lock(name).acquire() for name in calls]
        async with both_colours(url_as(login, root)) as actors:
            for actor in actors:
                for name, outcome in (await outcomes(actor, calls)).items():
                    assert type(outcome.error) is gripfast.StoreUnavailable, (name, outcome)
                    assert "identity may not do that" in str(outcome.error)
                    assert outcome.seconds < 3, name
        assert all(lease.held for lease in leases)


@staged
async def test_others_can_not_even_stand_in_line(root: str) -> None:
    path = f"{root}/job"
    async with both_colours(url_as(LOGIN, root)) as actors:
        for actor in actors:
            lease = await actor.acquire("job")
            with kazoo() as stranger:
                for attempt in (
                    lambda stranger: stranger.create(f"{path}/x__lock__", ephemeral=True, sequence=True),
                    lambda stranger: stranger.get_children(path),
                    lambda stranger: stranger.create(f"{root}/another", b""),
                ):
                    with pytest.raises(NoAuthError):
                        attempt(stranger)
            await actor.release(lease)


@staged
async def test_without_a_login_everybody_may(root: str) -> None:
    """As kazoo has it unless it is told otherwise."""
    async with both_colours(zookeeper_server().url_with(root=root)) as actors:
        await each(actors, lambda actor: actor.acquire(actor.colour))
        with kazoo() as client:
            assert client.get_acls(root)[0][0].id.scheme == ANYBODY


def test_a_password_is_in_no_word(root: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "gripfast"), gripfast.connect(url_as(LOGIN, root)) as client:
        with client.lock("job") as lease:
            told = [repr(client), str(client.where), repr(lease), repr(client.inspect("job"))]
        with (
            gripfast.connect(url_as("other:s3cret", root)) as other,
            pytest.raises(gripfast.StoreUnavailable) as caught,
        ):
            other.lock("job").try_acquire()
    told += [str(caught.value), repr(caught.value.nodes), *(record.getMessage() for record in caplog.records)]
    assert not [text for text in told if "s3cret" in text or LOGIN in text]


# The caller's own client ----------------------------------------------------------------------------------------------


@staged
async def test_a_running_client_goes_on_running(root: str) -> None:
    with kazoo() as mine:
        session = mine.client_id
        async with both_colours(mine, root=root) as actors:
            leases = await each(actors, lambda actor: actor.acquire(actor.colour))
            assert all(lease.held for lease in leases)
            (node,) = mine.get_children(f"{root}/blocking")
            assert mine.exists(f"{root}/blocking/{node}").ephemeralOwner == session[0]
        assert mine.connected
        assert mine.client_id == session
        assert [mine.get_children(f"{root}/{name}") for name in ("blocking", "asyncio")] == [[], []]


@staged
async def test_a_client_that_does_not_run_is_started(root: str) -> None:
    for colour in ("blocking", "asyncio"):
        with kazoo(running=False) as mine:
            async with both_colours(mine, root=root) as actors:
                (actor,) = [each for each in actors if each.colour == colour]
                assert (await actor.acquire("job")).held
                assert mine.connected
            assert not mine.connected


@staged
async def test_ttl_is_at_most_what_the_session_of_the_caller_has(root: str) -> None:
    with kazoo(timeout=8.0) as mine:
        async with both_colours(mine, root=root) as actors:
            for ttl, got in ((2.0, 2.0), (3600, 6.0)):
                leases = await each(actors, lambda actor, ttl=ttl: actor.acquire(f"{actor.colour} {ttl}", ttl=ttl))
                assert [lease.ttl for lease in leases] == [got, got]
                assert all(got - 1 < lease.remaining() < got for lease in leases)


@staged
async def test_two_that_share_a_client_exclude_each_other(root: str) -> None:
    with kazoo() as mine:
        async with both_colours(mine, root=root) as (one, other):
            lease = await one.acquire("job")
            assert await other.try_acquire("job") is None
            waiting = other.acquire("job")
            await auntil(lambda: len(mine.get_children(f"{root}/job")) == 2)
            await one.release(lease)
            assert (await waiting).token > lease.token
            assert await one.try_acquire("job") is None


@staged
async def test_threads_and_tasks_of_one_client_stand_in_line(root: str) -> None:
    with kazoo() as mine:
        async with both_colours(mine, root=root) as actors:
            for actor in actors:
                more = [another(actor) for _ in range(4)]
                lease = await actor.acquire("job")
                waiting = [one.acquire("job") for one in more]
                await auntil(lambda: len(mine.get_children(f"{root}/job")) == 5)
                await actor.release(lease)
                for done in asyncio.as_completed(waiting):
                    granted = await done
                    await actor.release(granted)
                for one in more:
                    await one.leaves()


@pytest.mark.parametrize("settings", [{"auth_data": [("digest", f"{ME}:{PASSWORD}")]}, {"default_acl": MINE}])
@staged
async def test_the_callers_identity_and_acls_are_used(root: str, settings: dict[str, Any]) -> None:
    with kazoo(**settings) as mine:
        mine.add_auth("digest", f"{ME}:{PASSWORD}")
        async with both_colours(mine, root=root) as actors:
            await each(actors, lambda actor: actor.acquire(actor.colour))
            found = acls_below(root)
    assert len(found) == 6
    assert all(acls == MINE for acls in found.values()), found


@staged
async def test_an_identity_that_was_given_after_connecting_counts(root: str) -> None:
    with kazoo() as mine:
        async with both_colours(mine, root=root) as actors:
            mine.add_auth("digest", f"{ME}:{PASSWORD}")
            await each(actors, lambda actor: actor.acquire(actor.colour))
            found = acls_below(root)
    assert all(acls == MINE for acls in found.values()), found


@staged
async def test_acls_of_the_caller_that_let_others_look_let_them_look(root: str) -> None:
    public = [*MINE, make_acl("world", "anyone", read=True)]
    with kazoo(default_acl=public, auth_data=[("digest", f"{ME}:{PASSWORD}")]) as mine:
        with gripfast.connect(mine, root=root) as client, client.lock("job", label="mine"):
            async with both_colours(zookeeper_server().url_with(root=root)) as actors:
                assert [info.label for info in await each(actors, lambda actor: actor.inspect("job"))] == ["mine"] * 2
                for actor in actors:
                    with pytest.raises(gripfast.StoreUnavailable, match="identity may not do that"):
                        await actor.force_release("job")
            assert not [
                acl for acl in mine.get_acls(root)[0] if acl.id.scheme == ANYBODY and acl.perms != Permissions.READ
            ]
