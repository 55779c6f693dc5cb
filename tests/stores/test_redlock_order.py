"""Requests of one owner arrive at each of five nodes in the order in which they were made, whatever happens between."""

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

import gripfast.stores.redlock
from gripfast.core.redlock.ballot import VoteBallot
from gripfast.core.redlock.nodes import (
    Answer,
    Each,
    Free,
    Freed,
    Inspect,
    Locked,
    TakeBack,
    Unlock,
)
from gripfast.stores.redis import keys
from gripfast.stores.redis.factory import factory_of
from gripfast.stores.redlock import polls
from gripfast.stores.redlock.blocking import BlockingNodes
from gripfast.stores.redlock.lent import LentConversation
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
    make_new,
    nobody_has_it,
    nodes_of,
    own_servers,
    vote,
    vote_of,
    wording,
)
from support.proxy import Proxy
from support.redis_server import HOST, RedisServer
from support.redlock_nodes import NODES
from support.sweeping import Interrupter
from support.waiting import until

FENCE = keys.side_key(b"job", b"token")
OURS = os.path.dirname(os.path.abspath(gripfast.stores.redlock.__file__)) + os.sep


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


# In order -------------------------------------------------------------------------------------------------------------


def has_voted(server: RedisServer) -> bool:
    with server.client() as client:
        return client.exists(FENCE) == 1


def test_a_release_follows_the_vote_to_a_node_that_is_stopped(nodes: BlockingNodes, servers: list[RedisServer]) -> None:
    until(lambda: is_up(nodes))
    servers[0].pause()
    assert vote(nodes, "ann").is_won
    assert free(nodes, "ann").is_free
    servers[0].resume()
    until(lambda: has_voted(servers[0]))
    until(lambda: nobody_has_it(servers))


def test_a_release_follows_the_vote_on_a_connection_that_was_given_up(
    nodes: BlockingNodes, servers: list[RedisServer]
) -> None:
    until(lambda: is_up(nodes))
    servers[0].pause()
    assert vote(nodes, "ann").is_won
    goes_down(nodes, 0)
    assert ask_all(nodes, Free("job", "ann")) == [Freed(True, False)] * NODES
    servers[0].resume()
    until(lambda: has_voted(servers[0]))
    until(lambda: nobody_has_it(servers))
    until(lambda: is_up(nodes))


def test_a_vote_that_nothing_can_follow_is_cleaned_up_twice(nodes: BlockingNodes, servers: list[RedisServer]) -> None:
    """Its connection broke, and it may still arrive: the first time it is not known to be gone."""
    until(lambda: is_up(nodes))
    servers[0].pause()
    assert vote(nodes, "ann").is_won
    servers[0].kill()
    servers[0].restart()
    until(lambda: is_up(nodes))
    assert failed(ask_all(nodes, Free("job", "ann"))) == [0]
    assert ask_all(nodes, Free("job", "ann")) == [Freed(False, False)] * NODES


def test_a_clean_up_waits_for_a_vote_of_its_own_owner_that_is_just_leaving(
    nodes: BlockingNodes, servers: list[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever closes a client releases also what another thread is asking for. Were that written before the vote, and
    noted behind it, the reply to one would be taken for the reply to the other."""
    until(lambda: is_up(nodes))
    plain, is_leaving, may_go = LentConversation.write, threading.Event(), threading.Event()

    def write(conversation: LentConversation, packed: bytes) -> None:
        if threading.current_thread() is not threading.main_thread() and not is_leaving.is_set():
            is_leaving.set()
            assert may_go.wait(10)
        plain(conversation, packed)

    monkeypatch.setattr(LentConversation, "write", write)
    with ThreadPoolExecutor(1) as thread:
        voting = thread.submit(ask_all, nodes, vote_of("ann"))
        assert is_leaving.wait(10)
        ask_all(nodes, Free("job", "ann"))
        may_go.set()
        assert voting.result() == [Locked(True)] * NODES
    ask_all(nodes, Free("job", "ann"))
    until(lambda: nobody_has_it(servers))


def test_a_clean_up_looks_for_unanswered_votes_before_it_leaves_itself(
    nodes: BlockingNodes, servers: list[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later it would be too late: a vote may arrive behind it, on a connection that another thread reads at once."""
    until(lambda: is_up(nodes))
    servers[0].pause()
    assert vote(nodes, "ann").is_won
    goes_down(nodes, 0)  # a connection on which a clean-up has to follow
    servers[0].resume()
    until(lambda: is_up(nodes))
    happened: list[str] = []
    follow, write = polls.follow, LentConversation.write
    monkeypatch.setattr(polls, "follow", lambda *args: happened.append("looks") or follow(*args))
    monkeypatch.setattr(LentConversation, "write", lambda *args: happened.append("leaves") or write(*args))
    ask_all(nodes, Free("job", "ann"))
    assert happened == ["looks", "leaves"] * NODES


@pytest.mark.parametrize("how", ["polled", "sent", "of several"])
def test_a_release_follows_the_vote_on_connections_that_are_lent_to_another_thread(
    nodes: BlockingNodes, servers: list[RedisServer], how: str
) -> None:
    until(lambda: is_up(nodes))
    servers[0].pause()
    assert vote(nodes, "ann").is_won
    with ThreadPoolExecutor(1) as thread:
        held = Held()
        other = thread.submit(ask, nodes, Inspect("other"), held)
        assert held.has_come.wait(10)
        if how == "polled":
            assert free(nodes, "ann").is_free
        elif how == "sent":
            nodes.send(Free("job", "ann"), range(NODES))
        else:
            ask(nodes, Each([Free("another", "bob"), Free("job", "ann")]), First(4))
        servers[0].resume()
        until(lambda: has_voted(servers[0]))
        held.may_go.set()
        other.result()
    until(lambda: nobody_has_it(servers))


def test_a_failed_attempt_is_undone_and_a_later_one_is_not(nodes: BlockingNodes, servers: list[RedisServer]) -> None:
    until(lambda: is_up(nodes))
    servers[0].pause()
    assert vote(nodes, "ann").is_won
    goes_down(nodes, 0)
    nodes.send(Unlock("job", "ann", 1), range(NODES))
    ballot = VoteBallot(NODES, NODES)
    ask(nodes, vote_of("ann")._replace(attempt=2), ballot)
    assert ballot.is_won
    servers[0].resume()
    until(lambda: holders(servers) == [None] + [b"ann.2"] * 4)
    until(lambda: is_up(nodes))


def test_a_release_follows_a_request_to_take_a_node_back(nodes: BlockingNodes, servers: list[RedisServer]) -> None:
    until(lambda: is_up(nodes))
    servers[0].pause()
    back = TakeBack("job", "ann", 1, 30.0, None, time.time_ns() // 1000)
    ask(nodes, Each([back]), First(4))
    ask(nodes, Each([Free("job", "ann")]), First(4))
    servers[0].resume()
    until(lambda: has_voted(servers[0]))
    until(lambda: nobody_has_it(servers))


@pytest.mark.parametrize("is_given_up", [False, True], ids=["", "that was given up"])
def test_a_release_that_was_lost_with_its_connection_is_sent_again(
    servers: list[RedisServer], is_given_up: bool
) -> None:
    """Nobody waited for the answer of this node."""
    with Proxy((HOST, servers[0].port)) as proxy:
        through = factory_of(redis.Redis(host=HOST, port=proxy.port), {}).dialer(TIMEOUT)
        nodes = BlockingNodes([through, *dialers(servers[1:])], wording())
        until(lambda: is_up(nodes))
        assert ask_all(nodes, vote_of("ann")) == [Locked(True)] * NODES
        proxy.hold("requests")
        assert free(nodes, "ann").is_free
        until(lambda: proxy.held("requests") > 0)
        if is_given_up:
            goes_down(nodes, 0)
        proxy.cut()
        proxy.let_go()
        assert holders(servers) == [b"ann.1", None, None, None, None]
        until(lambda: is_up(nodes) and nobody_has_it(servers))
        drive(nodes.close())


def test_owners_who_never_say_that_they_are_done_are_forgotten(nodes: BlockingNodes) -> None:
    for number in range(1500):
        ask(nodes, vote_of(f"owner-{number}"), First(1))
    assert is_up(nodes)
    assert not any(each.claims for node in nodes._nodes for each in node.server.conversations)


# Interrupts -----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:coroutine.*never awaited:RuntimeWarning")  # interrupted before its first step
def test_whatever_an_interrupt_leaves_can_be_cleaned_up(
    nodes: BlockingNodes, servers: list[RedisServer], is_sampled: bool
) -> None:
    ask_all(nodes, vote_of("ann"))
    ask_all(nodes, Free("job", "ann"))
    interrupted = 0
    for point in range(1, 2000, 37 if is_sampled else 13):
        owner = secrets.token_hex(8)
        interrupter = Interrupter(OURS, point)
        with contextlib.suppress(KeyboardInterrupt), interrupter:
            vote(nodes, owner)
            free(nodes, owner)
        ask_all(nodes, Free("job", owner))
        assert nobody_has_it(servers), interrupter.where
        interrupted += bool(interrupter.where)
        if not interrupter.where:
            break
    assert interrupted > (7 if is_sampled else 20)
    for server in servers:
        with server.client() as client:
            until(lambda client=client: is_up(nodes) and len(client.client_list()) <= 2)


def test_a_clean_up_follows_what_an_interrupt_has_dropped(nodes: BlockingNodes, servers: list[RedisServer]) -> None:
    class Interrupting(First):
        def add(self, node: int, answer: Answer) -> bool:
            raise KeyboardInterrupt

    until(lambda: is_up(nodes))
    servers[0].pause()
    with pytest.raises(KeyboardInterrupt) as caught:
        ask(nodes, vote_of("ann"), Interrupting())
    assert free(nodes, "ann").is_free  # while the frames of the other are still there
    servers[0].resume()
    until(lambda: has_voted(servers[0]))
    until(lambda: nobody_has_it(servers))
    del caught
    until(lambda: is_up(nodes))


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("size", [1, 300, 600, 900])
def test_what_waits_at_a_stopped_node_is_done_to_its_end(
    nodes: BlockingNodes, servers: list[RedisServer], size: int
) -> None:
    """More than it reads at a time. Were its connection closed meanwhile, it would do the first part alone, which may
    end with a vote."""
    until(lambda: is_up(nodes))
    servers[0].pause()
    ask(nodes, Inspect("x" * size), First())
    ends = time.monotonic() + TIMEOUT
    owners = 0
    while time.monotonic() < ends or owners <= 30:
        owners += 1
        vote(nodes, f"owner{owners}")
        free(nodes, f"owner{owners}")
    assert owners > 30
    goes_down(nodes, 0)
    servers[0].resume()
    until(lambda: is_up(nodes))
    until(lambda: nobody_has_it(servers))
