"""What the tests of Redlock's nodes on an event loop share: five servers, and how to ask them."""

import functools
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

from gripfast.core.redlock.ballot import Roll, VoteBallot
from gripfast.core.redlock.nodes import Answer, Each, Failed, Free, Request, Unlock, Vote
from gripfast.stores.redis import plain
from gripfast.stores.redis.factory import RedisFactory
from gripfast.stores.redis.keys import side_key
from gripfast.stores.redis.store import card_of_this_process
from gripfast.stores.redlock.aio import AioNodes
from gripfast.stores.redlock.protocol import Wording
from support.redis_server import HOST, RedisServer
from support.redlock_nodes import NODES
from support.waiting import auntil

PATIENT = 20.0
"""Seconds that a node may take where nobody should have to wait for it."""
SOON = 5.0
SHORT = 0.6
NAME = "job"


@contextmanager
def five_servers() -> Iterator[list[RedisServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(RedisServer()) for _ in range(NODES)]


def nodes_at(ports: Sequence[int], timeout: float, **settings: Any) -> AioNodes:
    dialers = [
        RedisFactory("redis", plain.connect, {"host": HOST, "port": port, **settings}).dialer(timeout) for port in ports
    ]
    return AioNodes(dialers, wording())


def wording() -> Wording:
    return Wording(0.0, functools.lru_cache(card_of_this_process))


@asynccontextmanager
async def asking(
    ports: Sequence[int], timeout: float, connected: bool = True, **settings: Any
) -> AsyncIterator[AioNodes]:
    nodes = nodes_at(ports, timeout, **settings)
    try:
        if connected:
            await everyone_answers(nodes)
        yield nodes
    finally:
        await nodes.close()


def ports_of(servers: Sequence[RedisServer]) -> list[int]:
    return [server.port for server in servers]


def vote(owner: str, name: str = NAME, waits: bool = False) -> Vote:
    return Vote(name, owner, 1, 30.0, None, time.time_ns() // 1000, waits)


async def ask_all(nodes: AioNodes, request: Request) -> list[Answer]:
    """What everyone says."""
    roll = Roll(NODES, NODES)
    await nodes.poll([request] * NODES, roll)
    return roll.answers


async def votes(nodes: AioNodes, owner: str) -> VoteBallot:
    ballot = VoteBallot(NODES, NODES)
    await nodes.poll([vote(owner)] * NODES, ballot)
    return ballot


def clean_up(nodes: AioNodes, owner: str) -> list[bool | None]:
    """From any thread, and also when the loop is gone."""
    packed = wording().in_full(Free(NAME, owner), b"")
    return [talk.clean_up(owner, packed) for talk in nodes.talk.talks]


async def everyone_answers(nodes: AioNodes) -> None:
    """And has the scripts, from then on."""

    async def answered() -> bool:
        asked = Each([vote("nobody", "nothing"), Free("nothing", "nobody"), Unlock("nothing", "nobody", 1)])
        return all(isinstance(each, list) and not failed(each) for each in await ask_all(nodes, asked))

    await auntil(answered)


def failed(answers: Sequence[Answer]) -> list[int]:
    return [place for place, answer in enumerate(answers) if isinstance(answer, Failed)]


def owner_at(server: RedisServer, name: str = NAME) -> str | None:
    with server.client() as client:
        value = client.get(name)
        return value if value is None else value.decode().rpartition(".")[0]


def has_voted(server: RedisServer, name: str = NAME) -> bool:
    """Whether a vote has ever arrived there: what it accepted stays when the lock goes."""
    with server.client() as client:
        return bool(client.exists(side_key(name.encode(), b"token")))


@contextmanager
def paused(*servers: RedisServer) -> Iterator[None]:
    for server in servers:
        server.pause()
    try:
        yield
    finally:
        for server in servers:
            server.resume()


class Stopwatch:
    def __init__(self) -> None:
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started
