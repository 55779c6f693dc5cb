"""The limit: the two requests that Gripfast sends for a free lock, and nothing around them.

They go over Gripfast's own frames, on one connection. There is one lease for all, no deadline, no renewal, no waiting
and no clean-up. (`grpcio.py` sends the same over grpcio.)
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from bench.etcd.server import address
from bench.redis.aio import Pair as AsyncPair
from bench.redis.aio import Pairs

if TYPE_CHECKING:
    from gripfast.stores.etcd.conversation import Conversation
    from gripfast.stores.etcd.messages import LeaseGrantRequest, TxnRequest

NEEDS = ("hpack",)
TTL = 30
NOT_FREE = "the bare lock was not free"
LOST = "the bare lock was lost"
CARD = b'{"host": "bench", "pid": 12345, "label": null, "ttl": 30.0, "since": 1763456789012345}'
"""As long as Gripfast's."""
WAITING = CARD[:-1] + b', "waits": true}'

Pair = Callable[[], None]
"""Takes a lock and gives it back."""


class Requests:
    """What is sent for one name, by an owner that is new each time."""

    def __init__(self, name: str, lease: int) -> None:
        self._queue = f"bare:{name}/".encode()
        self._lease = lease
        self._new = new_keys(self._queue)
        self._key = b""
        from gripfast.stores.etcd import protocol

        self._protocol = protocol

    def take(self) -> TxnRequest:
        self._key = next(self._new)
        return self._protocol.claim(self._queue, self._key, CARD, WAITING, self._lease)

    def give(self, taken: Any) -> TxnRequest:
        if not taken.succeeded:
            raise RuntimeError(NOT_FREE)
        return self._protocol.release(self._key, taken.header.revision)


def new_keys(queue: bytes) -> Iterator[bytes]:
    """In this queue, one for each owner."""
    return (queue + b"%032x" % owner for owner in count(int.from_bytes(os.urandom(15), "big")))


def check(given: Any) -> None:
    if not given.succeeded:
        raise RuntimeError(LOST)


class Bare:
    """One connection that asks one thing at a time."""

    def __init__(self, url: str) -> None:
        self._socket = socket.create_connection(address(url))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._conversation = _conversation(url)
        from gripfast.stores.etcd.wire import Answer

        self._new_answer = Answer

    def ask(self, request: Any) -> Any:
        conversation, answer = self._conversation, self._new_answer()
        conversation.call(request, answer)
        self._socket.sendall(conversation.to_send())
        while answer.answer is None:
            conversation.receive(self._socket.recv(65536))
        if conversation.has_output:
            self._socket.sendall(conversation.to_send())
        return answer.answer

    def close(self) -> None:
        self._socket.close()


def _conversation(url: str) -> Conversation:
    from gripfast.stores.etcd.conversation import Conversation

    return Conversation(url, "{}:{}".format(*address(url)))


def lasting() -> LeaseGrantRequest:
    from gripfast.stores.etcd.messages import LeaseGrantRequest

    return LeaseGrantRequest(TTL * 100)


def lease_of(granted: Any) -> int:
    from gripfast.stores.etcd.messages import LeaseGrantResponse

    if not isinstance(granted, LeaseGrantResponse):
        raise RuntimeError(f"no lease: {granted}")
    return granted.id


@contextmanager
def bare(url: str) -> Iterator[Pair]:
    with closing(Bare(url)) as wire:
        requests, ask = Requests("bench", lease_of(wire.ask(lasting()))), wire.ask

        def pair() -> None:
            check(ask(requests.give(ask(requests.take()))))

        yield pair


class Multiplexed(asyncio.Protocol):
    """One connection for all tasks. What is asked in one turn of the loop leaves together, if it is `joined`."""

    def __init__(self, url: str, joined: bool) -> None:
        self._conversation = _conversation(url)
        self._joined = joined
        self._is_flushing = False
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._conversation.receive(data)
        if self._conversation.has_output:
            self._flush()

    def ask(self, request: Any) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        self._conversation.call(request, future)
        if not self._joined:
            self._flush()
        elif not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)
        return future

    def _flush(self) -> None:
        self._is_flushing = False
        self.transport.write(self._conversation.to_send())


def bare_pairs(joined: bool) -> Pairs:
    @asynccontextmanager
    async def pairs(url: str) -> AsyncIterator[Callable[[str], AsyncPair]]:
        connecting = asyncio.get_running_loop().create_connection(lambda: Multiplexed(url, joined), *address(url))
        _, protocol = await connecting
        lease = lease_of(await protocol.ask(lasting()))
        yield lambda name: _awaited(Requests(name, lease), protocol.ask)
        protocol.transport.close()

    return pairs


def _awaited(requests: Requests, ask: Callable[[Any], Any]) -> AsyncPair:
    async def pair() -> None:
        check(await ask(requests.give(await ask(requests.take()))))

    return pair
