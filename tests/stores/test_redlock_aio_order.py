"""In which order requests arrive at five real nodes, whatever becomes of the connections that carry them."""

import asyncio
from collections.abc import Iterator

import pytest

from gripfast.core.redlock.ballot import FreeBallot, VoteBallot
from gripfast.core.redlock.nodes import Each, Failed, Free, Freed, Unlock
from stores.redlock_asking import (
    HOST,
    NAME,
    PATIENT,
    SHORT,
    ask_all,
    asking,
    clean_up,
    everyone_answers,
    failed,
    five_servers,
    has_voted,
    owner_at,
    paused,
    ports_of,
    vote,
    votes,
)
from support.both_colours import staged
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.redlock_nodes import NODES
from support.waiting import auntil


@pytest.fixture
def servers() -> Iterator[list[RedisServer]]:
    with five_servers() as servers:
        yield servers


@staged
async def test_a_clean_up_follows_the_vote_on_the_connection_that_was_given_up(servers: list[RedisServer]) -> None:
    async with asking(ports_of(servers), SHORT) as nodes:
        with paused(servers[0]):
            assert (await votes(nodes, "me")).is_won
            await auntil(lambda: nodes.nodes[0].trouble is not None)
            answers = await ask_all(nodes, Free(NAME, "me"))
            assert answers == [Freed(True, False)] * NODES
            assert await ask_all(nodes, Free(NAME, "me")) != answers  # there is nothing left to follow
        await everyone_answers(nodes)
        await auntil(lambda: has_voted(servers[0]))
        assert owner_at(servers[0]) is None
        assert not nodes.nodes[0].server.has_unanswered


@staged
async def test_several_clean_ups_that_leave_together_follow_their_own_votes(servers: list[RedisServer]) -> None:
    async with asking(ports_of(servers), SHORT) as nodes:
        with paused(servers[0]):
            for owner in ("one", "two"):
                ballot = VoteBallot(NODES, NODES)
                await nodes.poll([vote(owner, owner)] * NODES, ballot)
                assert ballot.is_won
            await auntil(lambda: nodes.nodes[0].trouble is not None)
            frees = Each([Free("one", "one"), Free("three", "three"), Free("two", "two")])
            at_first, *_ = await ask_all(nodes, frees)
            assert isinstance(at_first, list)
            assert at_first[0] == at_first[2] == Freed(True, False)
            assert isinstance(at_first[1], Failed)
        await auntil(lambda: has_voted(servers[0], "one") and has_voted(servers[0], "two"))
        await everyone_answers(nodes)
        assert [owner_at(servers[0], name) for name in ("one", "two")] == [None, None]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("is_down", [False, True])
@staged
async def test_the_clean_up_of_an_attempt_follows_it_too(
    servers: list[RedisServer], waits: bool, is_down: bool
) -> None:
    """Who waits may have to be followed once more, because of its place in line."""
    async with asking(ports_of(servers), SHORT) as nodes:
        inbox = nodes.inbox()
        if waits:
            nodes.hears("me", inbox)
        node = nodes.nodes[0]
        with paused(servers[0]):
            assert (await votes(nodes, "me")).is_won
            if is_down:
                await auntil(lambda: nodes.nodes[0].trouble is not None)
            nodes.send(Unlock(NAME, "me", 1), range(NODES))
            assert node.server.has_unanswered == waits
            if waits:
                freeing = FreeBallot(NODES, NODES)
                await nodes.poll([Free(NAME, "me")] * NODES, freeing)
                assert not node.server.has_unanswered
        await everyone_answers(nodes)
        await auntil(lambda: has_voted(servers[0]))
        assert [owner_at(server) for server in servers] == [None] * NODES


@staged
async def test_after_a_node_has_come_back_a_clean_up_takes_both_ways(servers: list[RedisServer]) -> None:
    with Proxy((HOST, servers[0].port)) as proxy:
        async with asking([proxy.port, *ports_of(servers)[1:]], SHORT) as nodes:
            proxy.hold("requests")
            assert (await votes(nodes, "me")).is_won
            await auntil(lambda: nodes.nodes[0].trouble is not None)
            assert not has_voted(servers[0])
            proxy.let_go()
            await everyone_answers(nodes)
            assert await ask_all(nodes, Free(NAME, "me")) == [Freed(True, False)] * NODES  # by one of the two
            await auntil(lambda: has_voted(servers[0]))
            await auntil(lambda: owner_at(servers[0]) is None)


@staged
async def test_a_vote_that_can_not_be_followed_has_its_clean_up_asked_for_again(servers: list[RedisServer]) -> None:
    """Its connection is gone, and a network may still deliver what it carried."""
    with Proxy((HOST, servers[0].port)) as proxy:
        async with asking([proxy.port, *ports_of(servers)[1:]], PATIENT) as nodes:
            proxy.hold("requests")
            assert (await votes(nodes, "me")).is_won
            proxy.cut()
            proxy.let_go()
            await auntil(lambda: nodes.talk.talks[0].requests.connection is None)
            answers = await ask_all(nodes, Free(NAME, "me"))
            assert failed(answers) == [0]
            assert "may still receive a request for the lock" in str(answers[0].error)
            assert await ask_all(nodes, Free(NAME, "me")) == [Freed(False, False)] * NODES


@staged
async def test_a_vote_reaches_nodes_that_were_still_being_connected_when_it_was_decided(
    servers: list[RedisServer],
) -> None:
    async with asking(ports_of(servers), PATIENT, connected=False) as nodes:
        with paused(servers[0]):
            assert (await votes(nodes, "me")).is_won
        await auntil(lambda: owner_at(servers[0]) == "me")


@staged
async def test_a_vote_that_was_cancelled_before_it_could_leave_never_does(servers: list[RedisServer]) -> None:
    async with asking(ports_of(servers), PATIENT, connected=False) as nodes:
        with paused(*servers[:3]):
            voting = asyncio.ensure_future(votes(nodes, "me"))
            await auntil(lambda: owner_at(servers[3]) == "me")
            voting.cancel()
            await asyncio.wait([voting])
            assert voting.cancelled()
        await everyone_answers(nodes)
        assert [has_voted(server) for server in servers[:3]] == [False] * 3


@staged
async def test_a_vote_that_waits_for_its_connection_is_followed_by_a_clean_up_from_elsewhere(
    servers: list[RedisServer],
) -> None:
    async with asking(ports_of(servers), PATIENT, connected=False) as nodes:
        with paused(servers[0]):
            assert (await votes(nodes, "me")).is_won
            await asyncio.to_thread(clean_up, nodes, "me")
        await auntil(lambda: has_voted(servers[0]))
        await everyone_answers(nodes)
        assert owner_at(servers[0]) is None
