"""Five real nodes, asked at once from an event loop: who is waited for, and what becomes of those who fail."""

import asyncio
import functools
import gc
import logging
import random
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import gripfast
from gripfast import ClientClosed
from gripfast.core.ports import Granted, LockInfo
from gripfast.core.redlock.ballot import FreeBallot, Roll
from gripfast.core.redlock.nodes import LOCKED, Answer, Each, Free, Freed, Inspect, Unlock, Wake
from gripfast.stores.redlock import talk
from gripfast.stores.redlock.aio import AioNodes
from stores.redlock_asking import (
    HOST,
    NAME,
    PATIENT,
    SHORT,
    SOON,
    Stopwatch,
    ask_all,
    asking,
    clean_up,
    everyone_answers,
    failed,
    five_servers,
    has_voted,
    nodes_at,
    owner_at,
    paused,
    ports_of,
    vote,
    votes,
)
from support.both_colours import staged
from support.colours import open_files
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.redlock_nodes import NODES, redlock_url
from support.waiting import auntil, until


@pytest.fixture
def servers() -> Iterator[list[RedisServer]]:
    with five_servers() as servers:
        yield servers


# Who is waited for ----------------------------------------------------------------------------------------------------


@staged
async def test_everyone_is_asked_and_heard(servers: list[RedisServer]) -> None:
    async with asking(ports_of(servers), PATIENT) as nodes:
        assert list(nodes.names) == [f"redis://{HOST}:{server.port}/0" for server in servers]
        assert await ask_all(nodes, vote("me")) == [LOCKED] * NODES
        assert [owner_at(server) for server in servers] == ["me"] * NODES
        infos = await ask_all(nodes, Inspect(NAME))
        assert [info.owner for info in infos if isinstance(info, LockInfo)] == ["me"] * NODES
        assert await ask_all(nodes, Free(NAME, "me")) == [Freed(True, False)] * NODES


@staged
async def test_only_those_are_asked_that_are_to_be_asked(servers: list[RedisServer]) -> None:
    async with asking(ports_of(servers), PATIENT) as nodes:
        roll = Roll(NODES, 2)
        await nodes.poll([None, vote("me"), None, None, vote("me")], roll)
        assert roll.answers == [None, LOCKED, None, None, LOCKED]
        assert [owner_at(server) for server in servers] == [None, "me", None, None, "me"]
        await nodes.poll([None] * NODES, Roll(NODES, 0))


@staged
async def test_several_requests_to_one_node_are_answered_together(servers: list[RedisServer]) -> None:
    async with asking(ports_of(servers), PATIENT) as nodes:
        both = Each([vote("me", "one"), vote("me", "two")])
        assert await ask_all(nodes, both) == [[LOCKED, LOCKED]] * NODES
        looks = await ask_all(nodes, Each([Inspect("two"), Inspect("none"), Inspect("one")]))
        for look in looks:
            assert isinstance(look, list)
            assert [each.name if isinstance(each, LockInfo) else each for each in look] == ["two", None, "one"]


@staged
async def test_a_vote_is_decided_before_a_stopped_node_answers(servers: list[RedisServer]) -> None:
    async with asking(ports_of(servers), PATIENT) as nodes:
        with paused(servers[0], servers[3]):
            watch = Stopwatch()
            ballot = await votes(nodes, "me")
            assert ballot.is_won
            assert [place for place, answer in enumerate(ballot.answers) if answer is None] == [0, 3]
            freeing = FreeBallot(NODES, NODES)
            await nodes.poll([Free(NAME, "me")] * NODES, freeing)
            assert freeing.is_free
            assert watch.seconds < SOON
        await auntil(lambda: has_voted(servers[0]) and has_voted(servers[3]))
        assert failed(await ask_all(nodes, Inspect(NAME))) == []
        assert [owner_at(server) for server in servers] == [None] * NODES


@staged
async def test_a_stopped_node_costs_its_time_out_once(servers: list[RedisServer]) -> None:
    async with asking(ports_of(servers), SHORT) as nodes:
        with paused(servers[2]):
            watch = Stopwatch()
            answers = await ask_all(nodes, Inspect(NAME))
            assert failed(answers) == [2]
            assert SHORT <= watch.seconds < 2 * SHORT
            assert answers[2].was_asked
            assert "did not answer within 0.6 s" in str(answers[2].error)
            for _ in range(5):
                watch = Stopwatch()
                answers = await ask_all(nodes, Inspect(NAME))
                assert failed(answers) == [2]
                assert watch.seconds < SHORT
                assert not answers[2].was_asked
                told = answers[2].error
                assert "did not answer" in str(told) or "not made in time" in str(told)
                assert "keeps trying in the background" in told.nodes[nodes.names[2]]
        await everyone_answers(nodes)


@staged
async def test_a_node_that_was_not_waited_for_is_not_asked_again_either(servers: list[RedisServer]) -> None:
    """Somebody sees that its reply is overdue though nobody waits for it."""
    async with asking(ports_of(servers), SHORT) as nodes:
        with paused(servers[2]):
            assert (await votes(nodes, "me")).is_won
            await auntil(lambda: nodes.nodes[2].trouble is not None, within=2 * SHORT)
            watch = Stopwatch()
            assert failed(await ask_all(nodes, Inspect(NAME))) == [2]
            assert watch.seconds < SHORT
        await everyone_answers(nodes)


@staged
async def test_a_node_that_refuses_costs_nothing_and_comes_back(servers: list[RedisServer]) -> None:
    async with asking(ports_of(servers), PATIENT) as nodes:
        servers[1].kill()
        for _ in range(3):
            watch = Stopwatch()
            answers = await ask_all(nodes, Inspect(NAME))
            assert failed(answers) == [1]
            assert watch.seconds < SOON
        assert "Connection refused" in str(answers[1].error)
        servers[1].restart()
        await everyone_answers(nodes)


@staged
async def test_a_black_hole_costs_its_time_out_once_from_the_first_attempt_on(servers: list[RedisServer]) -> None:
    with socket.create_server((HOST, 0)) as hole:
        ports = [*ports_of(servers)[1:], hole.getsockname()[1]]
        async with asking(ports, SHORT, connected=False) as nodes:
            watch = Stopwatch()
            answers = await ask_all(nodes, Inspect(NAME))
            assert failed(answers) == [4]
            assert watch.seconds < 2 * SHORT
            assert not answers[4].was_asked
            for _ in range(5):
                watch = Stopwatch()
                assert failed(await ask_all(nodes, Inspect(NAME))) == [4]
                assert watch.seconds < SHORT


@staged
async def test_a_node_that_has_become_a_black_hole_comes_back(servers: list[RedisServer]) -> None:
    with Proxy((HOST, servers[0].port)) as proxy:
        async with asking([proxy.port, *ports_of(servers)[1:]], SHORT) as nodes:
            proxy.black_hole()
            assert failed(await ask_all(nodes, Inspect(NAME))) == [0]
            proxy.let_go()
            await everyone_answers(nodes)


@staged
async def test_without_a_majority_those_that_are_down_are_asked_again(
    servers: list[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known of them may be out of date: here nobody looks after them meanwhile."""
    monkeypatch.setattr(talk, "PAUSE_FIRST", 1000.0)
    async with asking(ports_of(servers), SHORT) as nodes:
        with paused(*servers[:3]):
            watch = Stopwatch()
            assert failed(await ask_all(nodes, Inspect(NAME))) == [0, 1, 2]
            assert failed(await ask_all(nodes, Inspect(NAME))) == [0, 1, 2]
            assert SHORT * 1.5 <= watch.seconds < 4 * SHORT
        await everyone_answers(nodes)


@staged
async def test_with_a_majority_those_that_are_down_are_left_alone(
    servers: list[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(talk, "PAUSE_FIRST", 1000.0)
    async with asking(ports_of(servers), SHORT) as nodes:
        with paused(*servers[:2]):
            assert failed(await ask_all(nodes, Inspect(NAME))) == [0, 1]
        for _ in range(3):
            assert failed(await ask_all(nodes, Inspect(NAME))) == [0, 1]


@staged
async def test_a_process_that_was_paused_itself_blames_no_node(servers: list[RedisServer]) -> None:
    async with asking(ports_of(servers), SHORT) as nodes:
        asked = asyncio.ensure_future(ask_all(nodes, Inspect(NAME)))
        await asyncio.sleep(0)
        watch = Stopwatch()
        until(lambda: watch.seconds > 2 * SHORT)  # nothing else runs on this loop meanwhile
        assert failed(await asked) == []


@staged
async def test_who_goes_and_comes_back_is_told_in_the_log(
    servers: list[RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "gripfast.connection"):
        for server in servers:
            with server.client() as admin:
                admin.config_set("requirepass", "secret")
        async with asking(ports_of(servers), SHORT, password="secret") as nodes:
            with paused(servers[4]):
                await ask_all(nodes, Inspect(NAME))
                await ask_all(nodes, Inspect(NAME))
            await everyone_answers(nodes)
    where = f"redis://{HOST}:{servers[4].port}/0"
    told = [message for message in caplog.messages if "marked down" in message or "is up" in message]
    assert told == [
        f"{where} marked down, probing in the background: "
        "did not answer within 0.6 s: check whether it is paused, overloaded or cut off",
        f"{where} is up: it answers again",
    ]
    assert "secret" not in caplog.text


# What goes wrong on the way -------------------------------------------------------------------------------------------


@staged
async def test_a_node_that_has_forgotten_the_scripts_is_told_them(servers: list[RedisServer]) -> None:
    async with asking(ports_of(servers), PATIENT) as nodes:
        for _ in range(2):
            for server in servers:
                with server.client() as admin:
                    admin.script_flush()
            assert await ask_all(nodes, vote("me")) == [LOCKED] * NODES
            assert await ask_all(nodes, Each([Inspect("x"), Inspect("y")])) == [[None, None]] * NODES
            assert await ask_all(nodes, Free(NAME, "me")) == [Freed(True, False)] * NODES


@staged
async def test_a_clean_up_is_repeated_for_a_forgotten_script_though_nobody_waits_for_it(
    servers: list[RedisServer],
) -> None:
    async with asking(ports_of(servers), PATIENT) as nodes:
        assert await ask_all(nodes, vote("me")) == [LOCKED] * NODES
        await ask_all(nodes, Free(NAME, "somebody"))
        with servers[0].client() as admin:
            admin.script_flush()
        with paused(servers[0]):
            ballot = FreeBallot(NODES, NODES)
            await nodes.poll([Free(NAME, "me")] * NODES, ballot)
            assert ballot.is_free
        await auntil(lambda: owner_at(servers[0]) is None)


@staged
async def test_nodes_that_are_restarted_between_two_polls_are_nobodys_trouble(servers: list[RedisServer]) -> None:
    async with asking(ports_of(servers), PATIENT) as nodes:
        for server in servers[:3]:
            server.restart()  # this loop has not seen the end of its connections
        assert await ask_all(nodes, vote("me")) == [LOCKED] * NODES
        for server in servers[3:]:
            server.restart()
        assert (
            await ask_all(nodes, Free(NAME, "me")) == [Freed(True, False)] * NODES
        )  # asked twice: it may have done it


@staged
async def test_what_was_only_sent_arrives(servers: list[RedisServer]) -> None:
    async with asking(ports_of(servers), PATIENT) as nodes:
        assert await ask_all(nodes, vote("me")) == [LOCKED] * NODES
        nodes.send(Unlock(NAME, "me", 1), [1, 2])
        await auntil(lambda: [owner_at(server) for server in servers] == ["me", None, None, "me", "me"])
        nodes.send(Free(NAME, "me"), range(NODES))
        await auntil(lambda: [owner_at(server) for server in servers] == [None] * NODES)


@staged
async def test_polls_that_are_cancelled_at_random_leave_everyone_else_the_right_answers(
    servers: list[RedisServer],
) -> None:
    chance = random.Random(5)
    async with asking(ports_of(servers), PATIENT) as nodes:
        names = [f"job {number}" for number in range(20)]
        for name in names:
            await nodes.poll([vote(f"owner of {name}", name)] * NODES, Roll(NODES, NODES))

        async def look(name: str) -> None:
            for _ in range(10):
                for info in await ask_all(nodes, Inspect(name)):
                    assert isinstance(info, LockInfo)
                    assert (info.name, info.owner) == (name, f"owner of {name}")

        async def be_cancelled(name: str) -> None:
            for _ in range(20):
                looking = asyncio.ensure_future(ask_all(nodes, chance.choice([Inspect(name), vote("other", name)])))
                for _ in range(chance.randrange(8)):
                    await asyncio.sleep(0)
                looking.cancel()
                await asyncio.wait([looking])

        await asyncio.gather(*(look(name) for name in names), *(be_cancelled(name) for name in names))


@staged
async def test_an_error_of_the_ballot_reaches_who_has_made_it(servers: list[RedisServer]) -> None:
    class Broken(Roll):
        def add(self, node: int, answer: Answer) -> bool:
            raise LookupError("no such node")

    async with asking(ports_of(servers), PATIENT) as nodes:
        with pytest.raises(LookupError, match="no such node"):
            await nodes.poll([Inspect(NAME)] * NODES, Broken(NODES, NODES))
        assert failed(await ask_all(nodes, Inspect(NAME))) == []


# Waking ---------------------------------------------------------------------------------------------------------------


@staged
async def test_a_waiter_is_woken_by_any_node(servers: list[RedisServer]) -> None:
    async with asking(ports_of(servers), PATIENT) as nodes:
        inbox = nodes.inbox()
        assert not nodes.hears("waiter", inbox)
        await nodes.listen()
        assert nodes.hears("waiter", inbox)
        assert await ask_all(nodes, vote("holder")) == [LOCKED] * NODES
        await ask_all(nodes, vote("waiter", waits=True))
        for place in range(NODES):
            nodes.send(Wake(NAME), [place])
            heard = await inbox.hear(time.clock_gettime(time.CLOCK_BOOTTIME) + SOON)
            assert heard is not None
            assert heard._replace(source=b"") == Granted(0, 0.0)


@staged
async def test_nobody_hears_without_a_majority_and_everyone_does_again_when_nodes_come_back(
    servers: list[RedisServer],
) -> None:
    async with asking(ports_of(servers), SHORT) as nodes:
        inbox = nodes.inbox()
        await nodes.listen()
        assert nodes.hears("waiter", inbox)
        for server in servers[:3]:
            server.kill()
        assert await inbox.hear(time.clock_gettime(time.CLOCK_BOOTTIME) + SOON) is None
        await auntil(lambda: not nodes.hears("waiter", inbox))
        await nodes.listen()
        for server in servers[:3]:
            server.restart()
        await everyone_answers(nodes)
        await auntil(lambda: nodes.hears("waiter", inbox))


@staged
async def test_listening_fails_without_a_word_and_in_time(servers: list[RedisServer]) -> None:
    async with asking(ports_of(servers), SHORT) as nodes:
        with paused(*servers):
            watch = Stopwatch()
            await nodes.listen()
            assert watch.seconds < 2 * SHORT
            assert not nodes.hears("waiter", nodes.inbox())


# The end --------------------------------------------------------------------------------------------------------------


@staged
async def test_closing_leaves_no_task_thread_or_socket(servers: list[RedisServer]) -> None:
    before, threads, tasks = open_files().items(), set(threading.enumerate()), asyncio.all_tasks()
    for _ in range(3):
        async with asking(ports_of(servers), SHORT) as nodes:
            await nodes.listen()
            with paused(*servers[:2]):
                assert (await votes(nodes, "me")).is_won
                await ask_all(nodes, Inspect(NAME))
                await nodes.close()
        del nodes
    await auntil(lambda: set(threading.enumerate()) <= threads)  # one of an earlier test may have ended meanwhile
    await auntil(lambda: open_files().items() <= before)
    assert asyncio.all_tasks() == tasks


@staged
async def test_a_connection_that_is_made_after_the_closing_is_closed(servers: list[RedisServer]) -> None:
    """The thread that made it keeps it for a moment longer than the loop, and nobody came to close it then."""
    before = open_files().items()
    nodes = nodes_at(ports_of(servers), PATIENT)
    with paused(*servers):
        asked = asyncio.ensure_future(ask_all(nodes, Inspect(NAME)))
        await auntil(lambda: len(open_files().items() - before) >= NODES)
        await nodes.close()
        assert failed(await asked) == list(range(NODES))
    await auntil(lambda: open_files().items() <= before)


@staged
async def test_who_is_asking_when_it_is_closed_is_told_and_nobody_can_ask_afterwards(
    servers: list[RedisServer],
) -> None:
    async with asking(ports_of(servers), PATIENT) as nodes:
        with paused(*servers):
            asked = asyncio.ensure_future(ask_all(nodes, Inspect(NAME)))
            await asyncio.sleep(0)
            await nodes.close()
            assert failed(await asked) == list(range(NODES))
        with pytest.raises(ClientClosed, match="this client is closed"):
            await ask_all(nodes, Inspect(NAME))
        nodes.send(Wake(NAME), range(NODES))


@staged
async def test_looking_after_a_node_keeps_nobody_alive(servers: list[RedisServer]) -> None:
    alive = await drop_with_a_node_down(servers)

    def is_gone() -> bool:
        gc.collect()
        return alive() is None

    await auntil(is_gone)


async def drop_with_a_node_down(servers: Sequence[RedisServer]) -> weakref.ref[Any]:
    nodes = nodes_at(ports_of(servers), SHORT)
    await everyone_answers(nodes)
    servers[0].kill()
    await auntil(functools.partial(first_has_failed, nodes))
    return weakref.ref(nodes.nodes[0])


async def first_has_failed(nodes: AioNodes) -> bool:
    return failed(await ask_all(nodes, Inspect(NAME))) == [0]


def test_when_the_loop_is_gone_a_clean_up_still_follows_its_vote(servers: list[RedisServer]) -> None:
    nodes = asyncio.run(vote_and_leave(servers))
    clean_up(nodes, "me")
    for server in servers[:2]:
        server.resume()
    until(lambda: all(has_voted(server) for server in servers))
    until(lambda: [owner_at(server) for server in servers[:2]] == [None, None])
    nodes.close_soon()


async def vote_and_leave(servers: Sequence[RedisServer]) -> AioNodes:
    """Without closing anything, as when an interrupt ends the loop."""
    nodes = nodes_at(ports_of(servers), PATIENT)
    await everyone_answers(nodes)
    for server in servers[:2]:
        server.pause()
    assert (await votes(nodes, "me")).is_won
    return nodes


def test_a_lease_whose_loop_is_gone_is_given_back(servers: list[RedisServer]) -> None:
    url = redlock_url(servers, restart_grace=0, prefix="")

    async def acquire_and_leave() -> None:
        client = gripfast.connect_async(url)
        lease = await client.lock(NAME).acquire()
        assert lease.held
        raise LookupError

    def is_given_back() -> bool:
        gc.collect()  # an error that leaves `asyncio.run` and the loop's future know each other, and all its frames
        return [owner_at(server) for server in servers] == [None] * NODES

    with pytest.raises(LookupError):
        asyncio.run(acquire_and_leave())
    until(is_given_back)
