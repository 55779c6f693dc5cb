"""What a server has and does: the production store asks it, and its scripts run on it.

As in `small.still`, that is a table. Contents are numbers; what comes of a request is a function of the contents, of
who the server is, of the time, and of which replicas acknowledge.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any, NamedTuple

from gripfast.core.ports import Granted
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis import protocol
from gripfast.stores.redis.conversation import Server
from gripfast.stores.redis.failover import Failover
from gripfast.stores.redis.followers import Replicas, address
from gripfast.stores.redis.store import RedisStore
from gripfast.stores.redis.unread import Unread
from gripfast_lab.sim.redis.group import GUARDED
from gripfast_lab.sim.redis.keyspace import Snapshot, Value
from gripfast_lab.sim.redis.replication import PORT, Follower, ReplicatedServer

START_US = 1_700_000_000_000_000
EMPTY = 0
STRANGER = -1


class Who(NamedTuple):
    """A server, as a request finds it."""

    contents: int
    place: int
    run: int
    replid: int
    followers: frozenset[int]
    """Those that it believes to have."""
    listeners: frozenset[bytes]
    """Channels that clients listen to at this server."""


class Acks(NamedTuple):
    """What followers do when a request has to be acknowledged. A stranger is one that is never promoted."""

    by: frozenset[int] = frozenset()
    """Replicas that acknowledge."""
    replaced: int | None = None
    """Which replica a stranger has taken the place of."""
    attaches: bool = False
    """A stranger begins to follow while it is waited."""


class Done(NamedTuple):
    contents: int
    answer: Any
    pushed: tuple[tuple[str, Granted], ...]
    wrote: bool
    waited: bool
    """It asked for acknowledgements."""


class Told:
    """An inbox that nobody reads."""

    def deliver(self, push: Granted | None) -> bool:
        return True

    async def hear(self, until: float) -> Granted | None:
        raise NotImplementedError


Request = Callable[[RedisStore], Coroutine[Any, Any, Any]]


class Servers:
    def __init__(self, failover: Failover | None, servers: int) -> None:
        self._failover = failover
        self._servers = servers
        self._now_us = START_US
        self._snapshots: list[Snapshot] = []
        self._numbers: dict[Hashable, int] = {}
        self._done: dict[Hashable, Done] = {}
        self.runs = 0
        self._number(ReplicatedServer(lambda: self._now_us, "server"))

    def do(self, who: Who, now_ms: int, acks: Acks, name: Hashable, channel: bytes, request: Request) -> Done:
        """`name`: of the request; the same does the same."""
        key = who, now_ms, acks, name
        done = self._done.get(key)
        if done is None:
            done = self._done[key] = self._found_out(who, now_ms, acks, channel, request)
        return done

    def is_free(self, contents: int, now_ms: int, lock: bytes) -> bool:
        values, expiries = self._snapshots[contents]
        return lock not in values or expiries.get(lock, now_ms) < START_US // 1000 + now_ms

    def _found_out(self, who: Who, now_ms: int, acks: Acks, channel: bytes, request: Request) -> Done:
        self.runs += 1
        self._now_us = START_US + now_ms * 1000
        server = ReplicatedServer(lambda: self._now_us, "server")
        server.run_id, server.replid = b"%040d" % (100 * who.place + who.run), b"%040x" % (2**40 + who.replid)
        server.database.restore(self._snapshots[who.contents])
        for place in sorted(who.followers - {acks.replaced}):
            _add(server, place)
        if acks.replaced is not None:
            _add(server, STRANGER)
        for script in GUARDED:
            server.remember(script.text)
        pushed: list[tuple[str, Granted]] = []
        for each in who.listeners:
            server.connect(lambda message: pushed.append(_push(message))).receive(protocol.subscribe(each))
        link = Direct(server, acks, channel)
        answer = _ran(request(RedisStore(link, self._for(who.place))))
        return Done(self._number(server), answer, tuple(pushed), server.offset > 0, link.waited)

    def _for(self, place: int) -> Failover | None:
        """As it is told who may be promoted instead of this server."""
        if self._failover is None:
            return None
        others = frozenset(
            address(_name(each).encode(), b"%d" % PORT) for each in range(self._servers) if each != place
        )
        return self._failover._replace(promotable=lambda: Replicas(others, others))

    def _number(self, server: ReplicatedServer) -> int:
        server.commit()
        contents = server.database.snapshot()
        number = self._numbers.setdefault(_frozen(contents), len(self._snapshots))
        if number == len(self._snapshots):
            self._snapshots.append(contents)
        return number


_TOKEN = re.compile(rb"^\d{16}(?:@\d+)?(?= )")


def _frozen(contents: Snapshot) -> Hashable:
    """Tokens aside: who believes what does not depend on them here."""
    values, expiries = contents
    return tuple((key, _plain(values[key]), expiries.get(key)) for key in sorted(values))


def _plain(value: Value) -> Hashable:
    return _TOKEN.sub(b"token", value) if isinstance(value, bytes) else repr(value)


def _push(message: Any) -> tuple[str, Granted]:
    push = protocol.read_push(message)
    assert push is not None
    assert push.granted is not None
    return push.owner, push.granted


def _name(place: int) -> str:
    return f"server-{place}"


def _add(server: ReplicatedServer, place: int) -> None:
    follower = Follower(_drop, _name(place))
    server.add(follower)
    server.acknowledge(follower, 0)


def _drop(_: object) -> None:
    pass


def _ran(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """As in the blocking colour: nothing suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a request has suspended")


class Direct:
    """A link without a network: whatever is asked is answered at once."""

    suspends = False

    def __init__(self, server: ReplicatedServer, acks: Acks, channel: bytes) -> None:
        self.server = Server("a server", 1.0)
        self.inboxes = Inboxes()
        self.waited = False
        self._acks = acks
        self._channel = channel
        self._redis = server
        self._late: list[Any] = []
        self._session = server.connect(None, self._late.extend)

    def inbox(self) -> Told:
        return Told()

    def send(self, unread: Unread) -> bool:
        """Everybody waits."""
        return False

    async def read_late(self, within: float = 0.0) -> bool:
        return False

    def ask(self, packed: bytes, owner: str | None = None, name: str | None = None) -> Any:
        return self._answers(packed, 1)[0]

    def ask_many(self, commands: Sequence[bytes], within: float = 0.0) -> Any:
        return self._answers(b"".join(commands), len(commands))

    def ask_acked(
        self, commands: Sequence[bytes], wait: Sequence[bytes], within: float = 0.0, owner: str | None = None
    ) -> list[Any]:
        return self._answers(b"".join([*commands, *wait]), len(commands) + len(wait))

    async def aside(self, call: Callable[[], Any]) -> Any:
        return call()

    def _answers(self, packed: bytes, count: int) -> list[Any]:
        self.waited = self.waited or b"\r\nWAIT\r\n" in packed
        replies = self._session.receive(packed)
        while len(replies) < count:
            if self._acks.attaches:
                _add(self._redis, STRANGER)
            names = [_name(each) for each in (*self._acks.by, STRANGER)]
            for follower in [each for each in self._redis.followers if each.name in names]:
                self._redis.acknowledge(follower, self._redis.offset)
            if not self._late:
                self._session.time_out()
            replies += self._late
            self._late.clear()
        return replies

    async def listen(self) -> None:
        if self.server.channel is None:
            self._redis.connect().receive(protocol.subscribe(self._channel))
            self.server.channel = self._channel

    def stop_listening(self, channel: bytes) -> None:
        self.server.channel = None

    def clean_up(self, owner: str, packed: bytes) -> bool | None:
        return None

    def stop_waiting(self) -> None:
        pass

    async def close(self) -> None:
        pass
