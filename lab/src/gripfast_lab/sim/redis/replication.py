"""A simulated server that has replicas, or is one: still a pure state machine, without time and network.

What a request changes, a script with all that it calls included, is one *effect*: the keys that were written, as they
are afterwards, and what was published. Each follower is sent the effects in their order. So a replica has what its
primary had at some earlier moment, and never half of a script. Redis sends the commands instead, with expiries that are
moments; applied to equal data they come to the same. A write that changes nothing (a DEL of nothing) has no effect.

- A replica refuses writes. It expires nothing by itself: what is over counts as absent, and goes when its primary says
  so. What was published at the primary reaches the subscribers of replicas, too; NUMSUB counts one's own only.
- *Run id*: of a server's process; a restart changes it. *Replid* (`master_replid`): of the history that the data belong
  to; a replica has its primary's from its sync on, a promotion changes it. A server that is demoted keeps its
  own until it has synced, its run id always, and its clients' connections.
- *ROLE* tells which followers have acknowledged how much, by name.
- *WAIT* counts the followers that have acknowledged what this connection has written, whoever they are; one that has
  written nothing is answered at once. (Redis 7.0 waits for all that was written before this connection's last command;
  later ones as it is here, which acknowledges less.) Its time-out comes in steps of 100 ms. Until it is answered,
  nothing else on its connection is. A demotion ends it with an error, and closes the connection.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from hiredis import ReplyError

from gripfast_lab.sim.redis.database import Database
from gripfast_lab.sim.redis.keyspace import About, Snapshot, Value
from gripfast_lab.sim.redis.replies import Reply, integer, wrong_number
from gripfast_lab.sim.redis.server import Deliver, Server, Session

WAIT_STEP_MS = 100
NOT_SYNCED = -1
PORT = 6379
"""Of every server, as others are told it."""

Entry: TypeAlias = "tuple[bytes, Value | None, int | None]"
"""A key, what it has, and its expiry."""


class Effect(NamedTuple):
    offset: int
    """How many there were, with this one."""
    entries: tuple[Entry, ...]
    published: tuple[tuple[bytes, bytes], ...]
    seen: Any
    """What an observer of the primary knows after it."""


class Sync(NamedTuple):
    """All that a primary has, for one that begins to follow."""

    offset: int
    replid: bytes
    contents: Snapshot
    seen: Any


class ReplicatedDatabase(Database):
    __slots__ = ("_touched", "is_read_only")

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.is_read_only = False
        self._touched: dict[bytes, None] = {}

    def find(self, key: bytes) -> Value | None:
        expiry = self._expiries.get(key)
        if expiry is not None and self.now_us() // 1000 > expiry:
            if not self.is_read_only:
                self.remove(key)
            return None
        return self._values.get(key)

    def sweep(self) -> None:
        if not self.is_read_only:
            super().sweep()

    # What is written ------------------------------------------------------------------------------------------------

    def touch(self, key: bytes) -> None:
        self._touched[key] = None

    def put(self, key: bytes, value: bytes, expiry_ms: int | None) -> None:
        self._touched[key] = None
        super().put(key, value, expiry_ms)

    def replace(self, key: bytes, value: bytes) -> None:
        self._touched[key] = None
        super().replace(key, value)

    def remove(self, key: bytes) -> None:
        self._touched[key] = None
        super().remove(key)

    def expire_at(self, key: bytes, expiry_ms: int) -> None:
        self._touched[key] = None
        super().expire_at(key, expiry_ms)

    def persist(self, key: bytes) -> bool:
        is_changed = super().persist(key)
        if is_changed:
            self._touched[key] = None
        return is_changed

    def clear(self) -> None:
        self._touched.update(dict.fromkeys(self._values))
        super().clear()

    def take_written(self) -> tuple[Entry, ...]:
        """Since the last time."""
        if not self._touched:
            return ()
        written = tuple((key, _copied(self._values.get(key)), self._expiries.get(key)) for key in self._touched)
        self._touched.clear()
        return written

    def apply(self, entries: tuple[Entry, ...]) -> None:
        """What a primary has written."""
        for key, value, expiry_ms in entries:
            self._values.pop(key, None)
            self._expiries.pop(key, None)
            if value is not None:
                self._values[key] = _copied(value)  # type: ignore[assignment]
            if expiry_ms is not None:
                self._expiries[key] = expiry_ms


def _copied(value: Value | None) -> Value | None:
    return value if value is None or isinstance(value, bytes) else value.copy()


class Follower:
    """One that follows a primary, as the primary sees it."""

    __slots__ = ("acknowledged", "name", "send")

    def __init__(self, send: Callable[[Sync | Effect], None], name: str = "") -> None:
        self.send = send
        self.name = name
        self.acknowledged = NOT_SYNCED


class ReplicatedServer(Server):
    """`later`: calls something after so many seconds."""

    database: ReplicatedDatabase

    def __init__(
        self, now_us: Callable[[], int], name: str, later: Callable[[float, Callable[[], None]], None] | None = None
    ) -> None:
        self.name = name
        self._ids = 0
        self.run_id, self.replid = self._new_id(), self._new_id()
        self.offset = 0
        self.followers: list[Follower] = []
        self.seen: Callable[[], Any] = lambda: None
        """What its observer knows."""
        self._said: list[tuple[bytes, bytes]] = []
        self._waits: list[ReplicatedSession] = []
        self._later = later
        super().__init__(now_us)

    def _new_database(self, now_us: Callable[[], int]) -> Database:
        return ReplicatedDatabase(now_us, self._publish, self.receivers, self.about)

    def _new_id(self) -> bytes:
        self._ids += 1
        return hashlib.sha1(b"%b %d" % (self.name.encode(), self._ids), usedforsecurity=False).hexdigest().encode()

    @property
    def is_replica(self) -> bool:
        return self.database.is_read_only

    def about(self) -> About:
        return About(self.run_id, self.is_replica, self.replid, len(self.followers))

    def connect(self, deliver: Deliver | None = None, send: Deliver | None = None) -> ReplicatedSession:
        """`send`: where replies go that come later. None of them: the server closes the connection."""
        return ReplicatedSession(self, deliver, send)

    # As a primary ---------------------------------------------------------------------------------------------------

    def role(self) -> list[Reply]:
        """As ROLE tells it: of the followers those that have what they need to begin."""
        if self.is_replica:
            return [b"slave", b"primary", PORT, b"connected", self.offset]
        synced = [each for each in self.followers if each.acknowledged != NOT_SYNCED]
        followers: list[Reply] = [[each.name.encode(), b"%d" % PORT, b"%d" % each.acknowledged] for each in synced]
        return [b"master", self.offset, followers]

    def commit(self) -> bool:
        """A request was carried out: whether it has changed anything."""
        entries = self.database.take_written()
        if not entries and not self._said:
            return False
        published, self._said = tuple(self._said), []
        if not self.is_replica:
            self.offset += 1
            if self.followers:
                effect = Effect(self.offset, entries, published, self.seen())
                for follower in self.followers:
                    follower.send(effect)
        return True

    def add(self, follower: Follower) -> None:
        """From now on it is sent everything."""
        self.commit()
        self.followers.append(follower)
        follower.send(Sync(self.offset, self.replid, self.database.snapshot(), self.seen()))

    def acknowledge(self, follower: Follower, offset: int) -> None:
        follower.acknowledged = max(offset, follower.acknowledged)
        for session in list(self._waits):
            session.look_again()

    def drop(self, follower: Follower) -> None:
        if follower in self.followers:
            self.followers.remove(follower)

    def acknowledged(self, offset: int) -> int:
        return sum(1 for follower in self.followers if follower.acknowledged >= max(offset, 0))

    def block(self, session: ReplicatedSession, ms: int) -> None:
        self._waits.append(session)
        if ms and self._later is not None:
            self._later(math.ceil(ms / WAIT_STEP_MS) * WAIT_STEP_MS / 1000, session.time_out)

    def unblock(self, session: ReplicatedSession) -> None:
        if session in self._waits:
            self._waits.remove(session)

    # As a replica ---------------------------------------------------------------------------------------------------

    def receive(self, what: Sync | Effect) -> None:
        """From its primary, in order."""
        if isinstance(what, Sync):
            self.database.restore(what.contents)
            self.replid = what.replid
        else:
            self.database.apply(what.entries)
            for channel, payload in what.published:
                super()._publish(channel, payload)
        self.offset = what.offset

    # What an operator does to it ------------------------------------------------------------------------------------

    def promote(self) -> None:
        """REPLICAOF NO ONE."""
        if self.is_replica:
            self.database.is_read_only = False
            self.replid = self._new_id()

    def demote(self) -> None:
        """REPLICAOF somebody, whose data it gets by a sync, and then loses its own."""
        self.database.is_read_only = True
        self.followers.clear()
        for session in list(self._waits):
            session.give_up()

    def restart(self) -> None:
        self.run_id, self.replid = self._new_id(), self._new_id()
        self.followers.clear()
        self._waits.clear()

    def _publish(self, channel: bytes, payload: bytes) -> int:
        if not self.is_replica:
            self._said.append((channel, payload))
        return super()._publish(channel, payload)


class ReplicatedSession(Session):
    __slots__ = ("_needs", "_send", "_wrote")
    _server: ReplicatedServer

    def __init__(self, server: ReplicatedServer, deliver: Deliver | None, send: Deliver | None) -> None:
        super().__init__(server, deliver)
        self._send = send
        self._wrote = 0
        """The offset of its last write."""
        self._needs: int | None = None
        """While it is blocked by WAIT: how many acknowledgements."""

    def receive(self, packed: bytes) -> list[Reply]:
        self._reader.feed(packed)
        return self._answered()

    def close(self) -> None:
        self._server.unblock(self)
        super().close()

    def _answered(self) -> list[Reply]:
        reader, replies = self._reader, list[Reply]()
        while self._needs is None and (words := reader.gets()) is not False:
            if words:
                self._answer(words, replies)
        return replies

    def _answer(self, words: list[bytes], replies: list[Reply]) -> None:
        name = words[0].upper()
        if name == b"WAIT" and self._server.refusal is None:
            self._wait(words, replies)
            return
        if name == b"ROLE" and self._server.refusal is None:
            replies.append(self._server.role() if len(words) == 1 else wrong_number("role"))
            return
        super()._answer(words, replies)
        if self._server.commit():
            self._wrote = self._server.offset

    def _wait(self, words: list[bytes], replies: list[Reply]) -> None:
        try:
            number, ms = _waited_for(words, self._server)
        except ReplyError as error:
            replies.append(error.with_traceback(None))
            return
        have = self._server.acknowledged(self._wrote)
        if have >= number:
            replies.append(have)
        else:
            self._needs = number
            self._server.block(self, ms)

    def look_again(self) -> None:
        have = self._server.acknowledged(self._wrote)
        if self._needs is not None and have >= self._needs:
            self._end_wait(have)

    def time_out(self) -> None:
        if self._needs is not None:
            self._end_wait(self._server.acknowledged(self._wrote))

    def give_up(self) -> None:
        """The server was demoted."""
        text = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
        self._server.unblock(self)
        if self._send is not None:
            self._send([ReplyError(text)])
            self._send([])

    def _end_wait(self, reply: int) -> None:
        self._needs = None
        self._server.unblock(self)
        replies = [reply, *self._answered()]
        if self._send is not None:
            self._send(replies)


def _waited_for(words: list[bytes], server: ReplicatedServer) -> tuple[int, int]:
    if server.is_replica:
        raise ReplyError(
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is"
            " configured to be writable (which is not the default) writes to replicas are just local and are not"
            " propagated."
        )
    if len(words) != 3:
        raise wrong_number("wait")
    number, ms = integer(words[1]), integer(words[2])
    if ms < 0:
        raise ReplyError("ERR timeout is negative")
    return number, ms
