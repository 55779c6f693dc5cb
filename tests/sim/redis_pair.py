"""A real redis-server and the simulated one side by side: the same is done to both, and the answers are compared.

The simulated one has the real clock here, so that both expire the same keys. Times may differ by a little: `About`.
"""

import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hiredis import ReplyError
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gripfast.stores.redis import protocol
from gripfast.stores.redis.wire import Wire
from gripfast_lab.sim.redis.server import Server, Session
from support.redis_server import HOST, RedisServer
from support.waiting import until

END = b"end"
LISTENERS = 2
GRAIN = 3000
"""Milliseconds that two times may differ, and still be the same."""


class About(int):
    """A time left. What is negative is no time: it says that there is no expiry, or no key."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int):
            return False
        mine, others = int(self), int(other)
        return mine == others or (min(mine, others) >= 0 and abs(mine - others) <= GRAIN)

    __hash__ = None  # type: ignore[assignment]


class Real:
    """A redis-server, asked over sockets."""

    def __init__(self, server: RedisServer) -> None:
        self._port = server.port
        self._asker = self._connect()
        self._listeners = [self._connect() for _ in range(LISTENERS)]
        self._inboxes: list[list[Any]] = [[] for _ in range(LISTENERS)]
        for wire in self._listeners:
            wire.ask(protocol.subscribe(END))

    def many(self, *commands: Sequence[bytes]) -> list[Any]:
        return self.packed(b"".join(protocol.command(*words) for words in commands), len(commands))

    def packed(self, packed: bytes, count: int = 1) -> list[Any]:
        return self._asker.ask_many(packed, count)

    def talk(self, parts: Sequence[tuple[bytes, int]]) -> list[Any]:
        """On a connection of its own: bytes, and the number of replies that they bring."""
        wire = self._connect()
        try:
            return [wire.ask_many(packed, count) for packed, count in parts]
        finally:
            wire.close()

    def listens(self, number: int, channel: bytes, really: bool) -> None:
        wire, inbox = self._listeners[number], self._inboxes[number]
        reply = wire.ask(protocol.command(b"SUBSCRIBE" if really else b"UNSUBSCRIBE", channel))
        while reply[0] == b"message":  # sent before
            inbox.append(reply)
            reply = wire.hear(10.0)

    def heard(self, asks: bool = True) -> list[list[Any]]:
        """What each listener was sent since the last time. `asks`: otherwise another server has told them the end."""
        if asks:
            self.many((b"PUBLISH", END, b""))
        before, self._inboxes = self._inboxes, [[] for _ in range(LISTENERS)]
        return [inbox + _until_the_end(wire) for inbox, wire in zip(before, self._listeners, strict=True)]

    def close(self) -> None:
        for wire in (self._asker, *self._listeners):
            wire.close()

    def _connect(self) -> Wire:
        return Wire(socket.create_connection((HOST, self._port)), 10.0)


def _until_the_end(wire: Wire) -> list[Any]:
    messages = []
    while (message := wire.hear(10.0))[1] != END:
        messages.append(message)
    return messages


class Simulated:
    """The same, without a socket."""

    def __init__(self) -> None:
        self.server = Server(lambda: time.time_ns() // 1000)
        self._asker = self.server.connect()
        self._inboxes: list[list[Any]] = [[] for _ in range(LISTENERS)]
        self._listeners: list[Session] = [self.server.connect(inbox.append) for inbox in self._inboxes]

    def many(self, *commands: Sequence[bytes]) -> list[Any]:
        return self.packed(b"".join(protocol.command(*words) for words in commands), len(commands))

    def packed(self, packed: bytes, count: int = 1) -> list[Any]:
        replies = self._asker.receive(packed)
        assert len(replies) == count
        return replies

    def talk(self, parts: Sequence[tuple[bytes, int]]) -> list[Any]:
        session = self.server.connect()
        try:
            return [session.receive(packed) for packed, _ in parts]
        finally:
            session.close()

    def listens(self, number: int, channel: bytes, really: bool) -> None:
        self._listeners[number].receive(protocol.command(b"SUBSCRIBE" if really else b"UNSUBSCRIBE", channel))

    def heard(self) -> list[list[Any]]:
        messages = [list(inbox) for inbox in self._inboxes]
        for inbox in self._inboxes:
            inbox.clear()
        return messages


class Pair:
    def __init__(self, server: RedisServer) -> None:
        self.real = Real(server)
        self.simulated = Simulated()
        self._channels: list[tuple[int, bytes]] = []

    def reset(self) -> None:
        for number, channel in self._channels:
            self.listens(number, channel, False)
        self._channels.clear()
        self.do(b"FLUSHALL")
        for side in (self.real, self.simulated):
            side.heard()

    def do(self, *words: bytes) -> Any:
        """One command on both. Returns the reply, which was the same."""
        real, simulated = (shape(words, side.many(words)[0]) for side in (self.real, self.simulated))
        assert simulated == real, f"{words}: the real server says {real}, the simulated one {simulated}"
        return simulated

    def on_each(self, action: Callable[[Any], Any]) -> Any:
        """The same on both, where it is not the same command. Returns what came of it, which was the same."""
        real, simulated = action(self.real), action(self.simulated)
        assert simulated == real, f"the real server has {real}, the simulated one {simulated}"
        return simulated

    def listens(self, number: int, channel: bytes, really: bool) -> None:
        self.on_each(lambda side: side.listens(number, channel, really))
        if really:
            self._channels.append((number, channel))

    def waits_for_the_end_of(self, key: bytes) -> None:
        until(lambda: all(side.many((b"EXISTS", key)) == [0] for side in (self.real, self.simulated)), within=1.0)

    def compare(self, read: Callable[[bytes], bytes] = bytes) -> None:
        """All that both have and all that was published. `read`: of each text, what has to be the same."""
        self.on_each(lambda side: [[[read(word) for word in message] for message in inbox] for inbox in side.heard()])
        self.on_each(lambda side: contents(side, read))

    def scan(self, *options: bytes) -> None:
        self.on_each(lambda side: scanned(side, options))

    def close(self) -> None:
        self.real.close()


@contextmanager
def pair_of_servers() -> Iterator[Pair]:
    with RedisServer() as server:
        pair = Pair(server)
        yield pair
        pair.close()


def shape(words: Sequence[bytes], reply: Any) -> Any:
    """What of a reply has to be the same: order and time aside where Redis promises none."""
    name = words[0].upper()
    if isinstance(reply, ReplyError):
        return "error", error_text(reply)
    if name in (b"PTTL", b"TTL"):
        return About(reply)
    if name == b"KEYS":
        return sorted(reply)
    if name == b"HGETALL":
        return sorted(zip(reply[::2], reply[1::2], strict=True))
    if isinstance(reply, list):
        return [shape((b"",), each) for each in reply]
    return reply


def error_text(error: ReplyError) -> str:
    """Without the line of a script: the simulated server does not always know it."""
    return re.sub(r"@user_script:\d+\.$", "@user_script", str(error))


def scanned(side: Any, options: Sequence[bytes]) -> Any:
    cursor, found = b"0", []
    while True:
        reply = side.many((b"SCAN", cursor, *options))[0]
        if isinstance(reply, ReplyError):
            return error_text(reply)
        cursor, keys = reply
        found += keys
        if cursor == b"0":
            return sorted(set(found))


def contents(side: Any, read: Callable[[bytes], bytes]) -> dict[bytes, Any]:
    keys = sorted(side.many((b"KEYS", b"*"))[0])
    kinds = side.many(*[(b"TYPE", key) for key in keys]) if keys else []
    queries = [_query(key, kind) for key, kind in zip(keys, kinds, strict=True)]
    values = side.many(*queries, *[(b"PTTL", key) for key in keys]) if keys else []
    found = {}
    for at, (key, kind) in enumerate(zip(keys, kinds, strict=True)):
        value = values[at]
        texts = [read(each) for each in value] if isinstance(value, list) else read(value)
        found[key] = kind, shape(queries[at], texts), About(values[len(keys) + at])
    return found


def _query(key: bytes, kind: bytes) -> tuple[bytes, ...]:
    return {
        b"string": (b"GET", key),
        b"zset": (b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"),
        b"hash": (b"HGETALL", key),
    }[kind]


def hold_alike(
    pair: Pair,
    cases: st.SearchStrategy[Any],
    check: Callable[[Pair, Any], None],
    examples: int,
    planted: bool = False,
) -> None:
    """Run the check on so many cases, each on empty servers. What was planted is found by the same ones each time."""
    phases = (Phase.generate,) if planted else (Phase.generate, Phase.shrink)

    @settings(
        max_examples=examples,
        phases=phases,
        report_multiple_bugs=False,
        database=None,
        derandomize=planted,
    )
    @given(cases)
    def run(case: Any) -> None:
        pair.reset()
        check(pair, case)

    run()
