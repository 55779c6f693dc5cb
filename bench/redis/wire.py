"""Bare sockets: the least that a lock on Redis could cost, and the benchmarks' own questions to the server.

The bare lock is what every library's comes down to: `SET key owner NX PX ttl`, with an owner that is new each time, and
a script that deletes the key if the owner is still the same. Packed by hand, parsed by hiredis, nothing around it: no
time-out, no renewal, no token, no waiting. Nobody should use it; nobody can be faster.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any
from urllib.parse import urlsplit

NEEDS = ("hiredis",)
TTL_MS = 30000
KEY = b"bare"
DELETE_IF_MINE = b"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
OWNER = b"%032x"


def packed(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 6379


def reader() -> Any:
    return importlib.import_module("hiredis").Reader()


class Wire:
    """One connection that asks one thing at a time."""

    def __init__(self, url: str) -> None:
        self.socket = socket.create_connection(address(url))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = reader()

    def ask(self, *parts: bytes) -> Any:
        self.socket.sendall(packed(*parts))
        while (reply := self.reader.gets()) is False:
            self.reader.feed(self.socket.recv(65536))
        if isinstance(reply, Exception):
            raise reply
        return reply

    def text(self, *parts: str) -> str:
        return str(self.ask(*(part.encode() for part in parts)), "utf-8")

    def close(self) -> None:
        self.socket.close()


def requests(wire: Wire, key: bytes = KEY) -> tuple[bytes, bytes]:
    """To take and to give back, each with a gap for the owner."""
    digest = wire.ask(b"SCRIPT", b"LOAD", DELETE_IF_MINE)
    gap = b"%" * 32
    take = packed(b"SET", key, gap, b"NX", b"PX", b"%d" % TTL_MS)
    give = packed(b"EVALSHA", digest, b"1", key, gap)
    return take.replace(gap, OWNER), give.replace(gap, OWNER)


def owners() -> Callable[[], int]:
    """Unique as random ones are, and cheaper than drawing each."""
    return count(int.from_bytes(os.urandom(15), "big")).__next__


def pair_on(wire: Wire) -> Callable[[], None]:
    """A function that takes and gives back once."""
    take, give = requests(wire)
    send, receive, feed, reply, owner_id = (
        wire.socket.send,
        wire.socket.recv,
        wire.reader.feed,
        wire.reader.gets,
        owners(),
    )

    def pair() -> None:
        owner = owner_id()
        send(take % owner)
        feed(receive(4096))
        if reply() != b"OK":
            raise RuntimeError("the bare lock was not free")
        send(give % owner)
        feed(receive(4096))
        if reply() != 1:
            raise RuntimeError("the bare lock was lost")

    return pair


class Multiplexed(asyncio.Protocol):
    """One connection for all tasks: replies come in the order of the requests.

    With `joined`, what is asked in one turn of the loop leaves together.
    """

    def __init__(self, joined: bool) -> None:
        self._reader = reader()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._joined = joined
        self._unsent: list[bytes] = []
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        reply = self._reader.gets
        while (answer := reply()) is not False:
            self._waiting.popleft().set_result(answer)

    def ask(self, request: bytes) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        self._waiting.append(future)
        if not self._joined:
            self.transport.write(request)
        else:
            if not self._unsent:
                self._loop.call_soon(self._flush)
            self._unsent.append(request)
        return future

    def _flush(self) -> None:
        self.transport.write(b"".join(self._unsent))
        self._unsent.clear()


async def multiplexed(url: str, joined: bool = False) -> Multiplexed:
    host, port = address(url)
    _, protocol = await asyncio.get_running_loop().create_connection(lambda: Multiplexed(joined), host, port)
    return protocol
