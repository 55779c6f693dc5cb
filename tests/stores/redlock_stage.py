"""Nodes in the blocking colour, five servers of their own, and what tests ask them."""

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

import pytest

from gripfast.core.redlock.ballot import FreeBallot, Roll, VoteBallot
from gripfast.core.redlock.nodes import Answer, Ballot, Failed, Free, Inspect, Request, Vote
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.factory import factory_of
from gripfast.stores.redis.protocol import card
from gripfast.stores.redis.wire import Wire
from gripfast.stores.redlock.blocking import BlockingNodes
from gripfast.stores.redlock.bundle import LentOpening, Loan
from gripfast.stores.redlock.lent import LentConversation
from gripfast.stores.redlock.protocol import Wording
from support.redis_server import RedisServer
from support.redlock_nodes import NODES
from support.waiting import until

TIMEOUT = 0.6
"""Seconds: five times the usual, because a machine that runs tests is slow."""
THREAD = "gripfast-dial"


@contextlib.contextmanager
def own_servers() -> Iterator[list[RedisServer]]:
    """Each test may do to them what it likes."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(RedisServer()) for _ in range(NODES)]


def make_new(servers: Sequence[RedisServer]) -> None:
    """They run again, and are empty, for the next test."""
    for server in servers:
        server.resume() if server.running else server.restart()
        with server.client() as client:
            client.flushall()
            client.script_flush()


@contextlib.contextmanager
def nodes_of(servers: Sequence[RedisServer], timeout: float = TIMEOUT) -> Iterator[BlockingNodes]:
    nodes = BlockingNodes(dialers(servers, timeout), wording())
    try:
        yield nodes
    finally:
        drive(nodes.close())
        until(lambda: not ours())


@contextlib.contextmanager
def lent_by(timeout: float = 0.05) -> Iterator[tuple[BlockingNodes, list[Loan], LentConversation, socket.socket]]:
    """A client with one node, a bundle that somebody has (the one loan), its connection, and the node's end of that."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire = Wire(ours, timeout)
        nodes = BlockingNodes([Dialer("redis://there", refuse, timeout)], wording())
        loans = [nodes._pool.borrow(Inspect("job"))]
        opening = loans[0].bundle.talk.talks[0].requests
        assert isinstance(opening, LentOpening)
        opening.latest = conversation = opening.use(wire)
        yield nodes, loans, conversation, theirs
        drive(nodes.close())


def refuse() -> Wire:
    raise ConnectionRefusedError


def dialers(servers: Sequence[RedisServer], timeout: float = TIMEOUT) -> list[Dialer]:
    found = []
    for server in servers:
        with server.client(socket_timeout=None) as client:
            found.append(factory_of(client, {}).dialer(timeout))
    return found


def wording() -> Wording:
    return Wording(0.0, functools.partial(card, host="here", pid=1))


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD]


def drive(coroutine: Coroutine[Any, Any, None]) -> None:
    with pytest.raises(StopIteration):
        coroutine.send(None)


class First:
    """Decided by so many answers."""

    is_lost = False

    def __init__(self, wanted: int = 1) -> None:
        self.wanted = wanted
        self.answers: list[Answer] = []

    def add(self, node: int, answer: Answer) -> bool:
        self.answers.append(answer)
        return len(self.answers) == self.wanted


class Held(First):
    """Keeps whoever asks, and its bundle, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.has_come = threading.Event()
        self.may_go = threading.Event()

    def add(self, node: int, answer: Answer) -> bool:
        self.has_come.set()
        assert self.may_go.wait(10)
        return super().add(node, answer)


def ask(nodes: BlockingNodes, request: Request, ballot: Ballot) -> None:
    drive(nodes.poll([request] * NODES, ballot))


def ask_all(nodes: BlockingNodes, request: Request) -> list[Answer]:
    roll = Roll(NODES, NODES)
    ask(nodes, request, roll)
    return roll.answers


def vote_of(owner: str, name: str = "job", label: str | None = None, waits: bool = False) -> Vote:
    return Vote(name, owner, 1, 30.0, label, time.time_ns() // 1000, waits)


def vote(nodes: BlockingNodes, owner: str, name: str = "job") -> VoteBallot:
    ballot = VoteBallot(NODES, NODES)
    ask(nodes, vote_of(owner, name), ballot)
    return ballot


def free(nodes: BlockingNodes, owner: str, name: str = "job") -> FreeBallot:
    ballot = FreeBallot(NODES, NODES)
    ask(nodes, Free(name, owner), ballot)
    return ballot


def failed(answers: Sequence[Answer]) -> list[int]:
    return [node for node, answer in enumerate(answers) if isinstance(answer, Failed)]


def holders(servers: Sequence[RedisServer], name: str = "job") -> list[bytes | None]:
    found = []
    for server in servers:
        with server.client() as client:
            found.append(client.get(name))
    return found


def nobody_has_it(servers: Sequence[RedisServer], name: str = "job") -> bool:
    return holders(servers, name) == [None] * len(servers)


def goes_down(nodes: BlockingNodes, node: int) -> None:
    """As other requests find out."""

    def is_down() -> bool:
        answer = ask_all(nodes, Inspect("other"))[node]
        return isinstance(answer, Failed) and not answer.was_asked

    until(is_down)


def is_up(nodes: BlockingNodes) -> bool:
    return not failed(ask_all(nodes, Inspect("other")))
