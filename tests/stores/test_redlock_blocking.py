"""Five nodes, asked at once by threads: who is waited for and who is not, and that every reply finds its question."""

import contextlib
import gc
import random
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from gripfast.core.redlock.ballot import Roll
from gripfast.core.redlock.nodes import (
    Each,
    Failed,
    ForceRelease,
    Free,
    Freed,
    Inspect,
    Locked,
    Wake,
)
from gripfast.machine import boottime
from gripfast.stores.redis.conversation import NOBODY
from gripfast.stores.redis.factory import factory_of
from gripfast.stores.redlock.blocking import BlockingNodes
from stores.redlock_stage import (
    TIMEOUT,
    First,
    Held,
    ask,
    ask_all,
    dialers,
    drive,
    failed,
    free,
    goes_down,
    holders,
    is_up,
    lent_by,
    make_new,
    nobody_has_it,
    nodes_of,
    ours,
    own_servers,
    vote,
    vote_of,
    wording,
)
from support.redis_server import HOST, RedisServer
from support.redlock_nodes import NODES
from support.waiting import until

PATIENT = 4.0
"""For nodes that answer, however busy the machine is."""


@pytest.fixture(scope="module")
def five_servers() -> Iterator[list[RedisServer]]:
    with own_servers() as servers:
        yield servers


@pytest.fixture
def servers(five_servers: list[RedisServer]) -> Iterator[list[RedisServer]]:
    yield five_servers
    make_new(five_servers)


@pytest.fixture
def nodes(servers: list[RedisServer]) -> Iterator[BlockingNodes]:
    with nodes_of(servers) as nodes:
        yield nodes


# Who is waited for ----------------------------------------------------------------------------------------------------


def test_five_nodes_vote_and_are_freed(nodes: BlockingNodes, servers: list[RedisServer]) -> None:
    assert ask_all(nodes, vote_of("ann")) == [Locked(True)] * NODES
    assert holders(servers) == [b"ann.1"] * NODES
    assert vote(nodes, "bob").locked == 0
    assert ask_all(nodes, Free("job", "ann")) == [Freed(True, False)] * NODES
    assert vote(nodes, "bob").is_won


def test_a_vote_is_decided_before_a_stopped_node_answers(nodes: BlockingNodes, servers: list[RedisServer]) -> None:
    until(lambda: is_up(nodes))
    servers[0].pause()
    servers[3].pause()
    start = boottime()
    ballot = vote(nodes, "ann")
    assert boottime() - start < TIMEOUT
    assert ballot.is_plain
    assert ballot.answers[0] is ballot.answers[3] is None


def test_a_node_that_stays_silent_costs_its_time_out_once(nodes: BlockingNodes, servers: list[RedisServer]) -> None:
    until(lambda: is_up(nodes))
    servers[0].pause()
    servers[3].pause()
    start = boottime()
    first = ask_all(nodes, Inspect("job"))
    assert failed(first) == [0, 3]
    assert all(isinstance(first[node], Failed) and first[node].was_asked for node in (0, 3))
    for _ in range(49):
        answers = ask_all(nodes, Inspect("job"))
        assert failed(answers) == [0, 3]
        assert not any(isinstance(answer, Failed) and answer.was_asked for answer in answers)
    assert TIMEOUT <= boottime() - start < 4 * TIMEOUT
    assert "did not answer within 0.6 s" in str(first[0].error)
    assert "keeps trying in the background" in answers[0].error.nodes[nodes.names[0]]


def test_a_node_that_is_late_when_nobody_waits_for_it_is_not_asked_next_time(
    nodes: BlockingNodes, servers: list[RedisServer]
) -> None:
    until(lambda: is_up(nodes))
    servers[2].pause()
    sent_at = boottime()
    assert vote(nodes, "ann").is_won
    until(lambda: boottime() > sent_at + 1.5 * TIMEOUT)
    start = boottime()
    answers = ask_all(nodes, Inspect("job"))
    assert failed(answers) == [2]
    assert boottime() - start < TIMEOUT


def test_a_node_whose_late_reply_has_come_is_not_blamed(nodes: BlockingNodes, servers: list[RedisServer]) -> None:
    until(lambda: is_up(nodes))
    servers[2].pause()
    sent_at = boottime()
    assert vote(nodes, "ann").is_won
    servers[2].resume()
    until(lambda: holders(servers)[2] is not None and boottime() > sent_at + 1.5 * TIMEOUT)
    assert is_up(nodes)


def test_a_node_that_goes_on_is_asked_again(nodes: BlockingNodes, servers: list[RedisServer]) -> None:
    until(lambda: is_up(nodes))
    servers[0].pause()
    goes_down(nodes, 0)
    servers[0].resume()
    until(lambda: is_up(nodes), within=3.0)
    until(lambda: not ours())
    assert ask_all(nodes, vote_of("ann")) == [Locked(True)] * NODES


def test_a_refused_connection_is_told_at_once(servers: list[RedisServer]) -> None:
    with socket.socket() as nobody:
        nobody.bind((HOST, 0))  # and never listens
        refusing = redis.Redis(host=HOST, port=nobody.getsockname()[1])
        nodes = BlockingNodes([*dialers(servers[:4], PATIENT), factory_of(refusing, {}).dialer(PATIENT)], wording())
        start = boottime()
        answers = ask_all(nodes, Inspect("job"))
        assert failed(answers) == [4]
        assert "refused" in str(answers[4].error)
        assert not answers[4].was_asked
        for _ in range(20):
            assert vote(nodes, "ann").is_won
            free(nodes, "ann")
        assert boottime() - start < PATIENT
        drive(nodes.close())
        until(lambda: not ours())


def test_a_node_that_accepts_connections_and_says_nothing_costs_its_time_out_once(servers: list[RedisServer]) -> None:
    with socket.create_server((HOST, 0)) as hole:
        swallowing = redis.Redis(host=HOST, port=hole.getsockname()[1])
        nodes = BlockingNodes([factory_of(swallowing, {}).dialer(TIMEOUT), *dialers(servers[:4], PATIENT)], wording())
        start = boottime()
        assert failed(ask_all(nodes, Inspect("job"))) == [0]
        for _ in range(20):
            assert vote(nodes, "ann").is_won
            free(nodes, "ann")
        assert boottime() - start < 20 * TIMEOUT
        drive(nodes.close())
        until(lambda: not ours())


def test_without_a_majority_those_that_are_down_are_asked_all_the_same(
    nodes: BlockingNodes, servers: list[RedisServer]
) -> None:
    """What is known of them may be old."""
    until(lambda: is_up(nodes))
    for server in servers[:3]:
        server.kill()
    assert failed(ask_all(nodes, Inspect("job"))) == [0, 1, 2]
    for server in servers[:3]:
        server.restart()
    assert vote(nodes, "ann").is_won


# Every reply finds the one it is for ----------------------------------------------------------------------------------


def test_replies_that_nobody_waited_for_are_not_taken_for_others(
    nodes: BlockingNodes, servers: list[RedisServer]
) -> None:
    """Four threads, who leave after the first answer; meanwhile nodes stop and go on."""
    names = [f"job-{number}" for number in range(4)]
    for name in names:
        ask(nodes, vote_of(f"owner of {name}", name, f"label of {name}"), Roll(NODES, NODES))
    over = threading.Event()

    def look(name: str) -> int:
        looks = 0
        while not over.is_set():
            ballot = First(1 + looks % 3)
            request = Each([Inspect(name)] * 3) if looks % 4 == 0 else Inspect(name)
            ask(nodes, request, ballot)
            for answer in ballot.answers:
                for info in answer if isinstance(answer, list) else [answer]:
                    assert isinstance(info, Failed) or (info.name, info.label) == (name, f"label of {name}")
            looks += 1
        return looks

    chance = random.Random(5)
    with ThreadPoolExecutor(len(names)) as threads:
        looking = [threads.submit(look, name) for name in names]
        for _ in range(20):
            server = chance.choice(servers)
            server.pause()
            start, pause = boottime(), chance.choice([0.01, 0.05, 1.2 * TIMEOUT])
            until(lambda start=start, pause=pause: boottime() > start + pause)
            server.resume()
        over.set()
        assert all(each.result() > 20 for each in looking)
    until(lambda: is_up(nodes))


def test_twenty_threads_at_once(servers: list[RedisServer]) -> None:
    with nodes_of(servers, timeout=5.0) as nodes:  # a hundred connections are made at once
        lock_at_once(nodes, servers)


def lock_at_once(nodes: BlockingNodes, servers: list[RedisServer]) -> None:
    def lock_and_look(number: int) -> None:
        name = f"job-{number}"
        for turn in range(10):
            owner = f"{number}-{turn}"
            assert vote(nodes, owner, name).is_won
            infos = [info for info in ask_all(nodes, Inspect(name)) if info is not None]
            assert {info.name for info in infos} == {name}
            assert sum(info.owner == owner for info in infos) >= 3  # of the one before, a clean-up may still be to come
            assert free(nodes, owner, name).is_free

    with ThreadPoolExecutor(20) as threads:
        list(threads.map(lock_and_look, range(20)))
    for server in servers:
        with server.client() as client:
            until(lambda client=client: is_up(nodes) and len(client.client_list()) <= 8 + 1)
            until(lambda client=client: client.keys("job-*") == [])


def ask_much(nodes: BlockingNodes) -> None:
    """More than a socket takes at once; the replies, too."""
    looks = Each([Inspect(f"{number}" * 100) for number in range(4000)])
    assert ask_all(nodes, looks) == [[None] * 4000] * NODES


def test_requests_of_any_size(servers: list[RedisServer]) -> None:
    nodes = BlockingNodes(dialers(servers, timeout=5.0), wording())
    ask_much(nodes)
    assert vote(nodes, "ann").is_won
    for server in servers:
        with server.client() as client:
            client.script_flush()
    ask_much(nodes)
    drive(nodes.close())


def test_a_connection_that_has_taken_half_a_command_takes_nothing_more() -> None:
    """It would be taken for the other half."""
    with lent_by() as (_, _, conversation, node):
        conversation.ask_for(NOBODY, b"all of it")
        conversation.ask_for(NOBODY, b"x" * 50_000_000)
        assert conversation.is_silent
        node.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while node.recv(1_000_000):
                pass
        assert not conversation.follow(b"more")


# What a node may have forgotten ---------------------------------------------------------------------------------------


def test_a_node_that_has_forgotten_the_scripts_is_told_them_again(
    nodes: BlockingNodes, servers: list[RedisServer]
) -> None:
    ask_all(nodes, vote_of("ann"))
    ask_all(nodes, Free("job", "ann"))
    for server in servers[1:3]:
        with server.client() as client:
            client.script_flush()
    assert ask_all(nodes, vote_of("bob")) == [Locked(True)] * NODES
    assert ask_all(nodes, Each([Free("job", "bob"), Free("job", "ann")])) == [
        [Freed(True, False), Freed(False, False)]
    ] * NODES  # fmt: skip


def test_a_release_that_nobody_waited_for_is_not_lost_on_a_forgotten_script(
    nodes: BlockingNodes, servers: list[RedisServer]
) -> None:
    ask_all(nodes, vote_of("ann"))
    ask_all(nodes, Free("job", "ann"))
    ask_all(nodes, vote_of("bob"))
    with servers[1].client() as client:
        client.script_flush()
    servers[1].pause()
    assert free(nodes, "bob").is_free
    servers[1].resume()
    until(lambda: is_up(nodes) and nobody_has_it(servers))


def test_the_first_release_of_a_client_reaches_those_who_are_slow(
    nodes: BlockingNodes, servers: list[RedisServer]
) -> None:
    """They have not seen its script before, and nobody may come who would see that."""
    ask_all(nodes, vote_of("ann"))
    servers[4].pause()
    assert free(nodes, "ann").is_free
    servers[4].resume()
    until(lambda: nobody_has_it(servers))


def test_a_connection_that_was_closed_while_idle_is_made_again(
    nodes: BlockingNodes, servers: list[RedisServer]
) -> None:
    until(lambda: is_up(nodes))
    servers[0].restart()
    with servers[1].client() as client:
        client.execute_command("CLIENT", "KILL", "SKIPME", "yes")
    assert ask_all(nodes, vote_of("ann")) == [Locked(True)] * NODES
    assert ask_all(nodes, Free("job", "ann")) == [Freed(True, False)] * NODES
    assert ask_all(nodes, vote_of("bob")) == [Locked(True)] * NODES
    for server in servers:
        with server.client() as client:
            client.execute_command("CLIENT", "KILL", "SKIPME", "yes")
    answers = ask_all(nodes, Free("job", "bob"))
    assert [answer.was_held for answer in answers] == [True] * NODES  # also if the first of two has done it


def test_a_force_release_is_not_repeated(nodes: BlockingNodes, servers: list[RedisServer]) -> None:
    """If the first one arrived, the second would free the next one's."""
    until(lambda: is_up(nodes))
    with servers[1].client() as client:
        client.execute_command("CLIENT", "KILL", "SKIPME", "yes")
    assert failed(ask_all(nodes, ForceRelease("job"))) == [1]


# Waking ---------------------------------------------------------------------------------------------------------------


def test_a_waiter_is_woken_and_asks_when_a_connection_ends(nodes: BlockingNodes, servers: list[RedisServer]) -> None:
    inbox = nodes.inbox()
    assert not nodes.hears("bob", inbox)
    drive(nodes.listen())
    assert nodes.hears("bob", inbox)
    ask_all(nodes, vote_of("ann"))
    ask_all(nodes, vote_of("bob", waits=True))
    freed = ask_all(nodes, Free("job", "ann"))
    assert freed == [Freed(True, True)] * NODES
    nodes.send(Wake("job"), [3])
    assert hear(inbox) is not None
    for server in servers[:2]:
        with server.client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        assert hear(inbox) is None
    assert nodes.hears("bob", inbox)
    servers[2].kill()
    assert hear(inbox) is None
    assert not nodes.hears("bob", inbox)
    drive(nodes.listen())
    assert nodes.hears("bob", inbox)


def test_a_waiter_whom_nobody_can_wake_waits_all_the_same(nodes: BlockingNodes) -> None:
    start = boottime()
    assert hear(nodes.inbox(), 0.2) is None
    assert boottime() - start >= 0.2
    with ThreadPoolExecutor(1) as thread:
        inbox = nodes.inbox()
        nodes.hears("bob", inbox)
        hearing = thread.submit(hear, inbox)
        nodes.shut()
        assert hearing.result() is None


def hear(inbox: Any, seconds: float = 10.0) -> Any:
    """What came long before anybody was tired of waiting."""
    start = boottime()
    found: list[Any] = []

    async def listen() -> None:
        found.append(await inbox.hear(start + seconds))

    drive(listen())
    assert boottime() - start < 5
    return found[0]


# The end --------------------------------------------------------------------------------------------------------------


def connections(server: RedisServer) -> int:
    with server.client() as client:
        return len(client.client_list()) - 1


def test_nothing_is_left_when_it_is_closed(servers: list[RedisServer]) -> None:
    nodes = BlockingNodes(dialers(servers), wording())
    assert is_up(nodes)
    drive(nodes.listen())
    servers[0].pause()
    vote(nodes, "ann")
    goes_down(nodes, 0)
    assert ours()
    drive(nodes.close())
    until(lambda: not ours())
    servers[0].resume()
    until(lambda: all(connections(server) == 0 for server in servers))


def test_nothing_is_left_when_it_is_dropped(servers: list[RedisServer]) -> None:
    nodes = BlockingNodes(dialers(servers), wording())
    assert is_up(nodes)
    servers[0].pause()
    vote(nodes, "ann")
    goes_down(nodes, 0)
    assert ours()
    del nodes
    until(lambda: not ours())
    servers[0].resume()
    gc.collect()
    drive(BlockingNodes(dialers(servers), wording()).close())  # whoever comes next closes those of the dead
    until(lambda: all(connections(server) == 0 for server in servers))


def test_what_is_under_way_when_it_is_closed_leaves_no_connection(servers: list[RedisServer]) -> None:
    nodes = BlockingNodes(dialers(servers), wording())
    held = Held()
    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(ask, nodes, Inspect("job"), held)
        assert held.has_come.wait(10)
        drive(nodes.close())
        held.may_go.set()
        asking.result()
    until(lambda: all(connections(server) == 0 for server in servers))


def test_one_that_keeps_nothing_has_no_connection_between_requests(servers: list[RedisServer]) -> None:
    followed: list[str] = []
    ends: list[bool] = []
    beside = SimpleNamespace(clean_up=lambda owner, packed: followed.append(owner))
    nodes = BlockingNodes(
        dialers(servers),
        wording(),
        beside=[beside] * NODES,  # type: ignore[list-item]
        at_end=lambda: ends.append(True),
    )
    free(nodes, "ann")
    ask_all(nodes, Each([Free("job", "bob"), Free("job", "eve")]))
    assert followed == ["ann"] * NODES + ["bob", "eve"] * NODES
    until(lambda: all(connections(server) == 0 for server in servers))
    drive(nodes.close())
    assert ends == [True]


# TLS ------------------------------------------------------------------------------------------------------------------


def test_nodes_that_speak_tls() -> None:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(RedisServer(tls=True)) for _ in range(NODES)]
        nodes = BlockingNodes(dialers(servers, timeout=5.0), wording())
        for turn in range(20):
            assert vote(nodes, f"owner-{turn}").is_won
            assert free(nodes, f"owner-{turn}").is_free
        ask_much(nodes)
        servers[0].pause()
        assert vote(nodes, "ann").is_won
        assert free(nodes, "ann").is_free
        servers[0].resume()
        until(lambda: nobody_has_it(servers))
        drive(nodes.close())
        until(lambda: not ours())
