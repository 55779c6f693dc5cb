"""The scripts for permits on a real server: requests by hand, and all that is pushed."""

from __future__ import annotations

import socket
import time
from typing import Any, NamedTuple

from gripfast.core.ports import RW_LIMIT, Claim, Granted, Hold, Kind, PermitInfo, Share, Taken
from gripfast.stores.redis import permit_protocol, permit_scripts, protocol
from gripfast.stores.redis.permit_parts import KEYS
from gripfast.stores.redis.scripts import Script
from gripfast.stores.redis.wire import Wire
from support.redis_server import HOST, RedisServer

NAME = "lock:job"
END = b"gripfast:end"
OTHER_END = b"gripfast:other end"


class Pool(NamedTuple):
    token: int
    limit: int
    used: int
    top: int
    tickets: int


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def channel_of(owner: str) -> bytes:
    return protocol.new_channel(owner)


class PermitBench:
    def __init__(self, server: RedisServer, kind: Kind = "semaphore", limit: int = 3) -> None:
        self.kind = kind
        self.limit = limit
        self.admin = server.client()
        self._requests, self._pushes, self._overhears = (
            Wire(socket.create_connection((HOST, server.port)), 10.0) for _ in range(3)
        )
        self._overhears.ask(protocol.command(b"PSUBSCRIBE", b"gripfast:*"))  # counts as nobody's listener
        self._pushes.ask(protocol.subscribe(END))
        self._listening: set[str] = set()
        self._before: list[Any] = []
        self._overheard = 0
        self.more = False
        """Whether the last reply said so."""

    def reset(self, kind: Kind = "semaphore", limit: int = 3) -> None:
        self.kind, self.limit = kind, limit
        self.admin.flushall()
        for owner in list(self._listening):
            self.listens(owner, False)
        self.heard()

    def close(self) -> None:
        for wire in (self._requests, self._pushes, self._overhears):
            wire.close()
        self.admin.close()

    # Requests ---------------------------------------------------------------------------------------------------------

    def ask(self, script: Script, packed: bytes) -> Any:
        reply = self._requests.ask(packed)
        return self._requests.ask(script.in_full(packed)) if protocol.forgot_script(reply) else reply

    def answered(self, script: Script, packed: bytes) -> Any:
        reply = self.ask(script, packed)
        assert isinstance(reply, list), reply
        self.more = protocol_says_more(reply)
        return reply

    def claim(
        self, owner: str, n: int = 1, ttl: float = 30.0, waits: bool = True, limit: int | None = None
    ) -> Granted | Taken:
        """Whoever waits listens, unless it was told not to."""
        share = Share(self.kind, n, limit or self.limit)
        claim = Claim(NAME, owner, ttl, f"label of {owner}", None, share)
        channel = channel_of(owner) if waits else b""
        if waits and owner not in self._listening:
            self.listens(owner, True)
        return self.claim_as(claim, channel)

    def claim_as(self, claim: Claim, channel: bytes) -> Granted | Taken:
        packed = permit_protocol.claim(claim, protocol.card(claim.label, "here", 7), channel)
        return permit_protocol.read_claim(self.answered(permit_scripts.CLAIM, packed), claim, channel)

    def read(self, owner: str, **how: Any) -> Granted | Taken:
        return self.claim(owner, 1, limit=RW_LIMIT, **how)

    def write(self, owner: str, **how: Any) -> Granted | Taken:
        return self.claim(owner, RW_LIMIT, limit=RW_LIMIT, **how)

    def hold(self, owner: str, ttl: float = 30.0, shortens: bool = False) -> Hold:
        return Hold(NAME, owner, ttl, shortens, Share(self.kind, 1, self.limit))

    def give_back(self, owner: str) -> str | None:
        """None if it had permits, otherwise why not."""
        reply = self.answered(permit_scripts.GIVE_BACK, permit_protocol.give_back(NAME, self.kind, owner))
        return None if reply[0] == 1 else reply[2].decode()

    def renew(self, owner: str, ttl: float = 30.0, shortens: bool = False) -> str | None:
        reply = self.ask(permit_scripts.RENEW, permit_protocol.renew(self.hold(owner, ttl, shortens)))
        return None if reply == 1 else reply.decode()

    def downgrade(self, owner: str) -> str | None:
        reply = self.answered(permit_scripts.DOWNGRADE, permit_protocol.downgrade(self.hold(owner), 1))
        return None if reply[0] == 1 else reply[2].decode()

    def resize(self, limit: int) -> None:
        self.answered(permit_scripts.RESIZE, permit_protocol.resize(NAME, limit))

    def force_release(self, owner: str | None = None, slot: int | None = None, note: str | None = None) -> bool:
        packed = permit_protocol.force_release(NAME, self.kind, owner, slot, note)
        return bool(self.answered(permit_scripts.FORCE_RELEASE, packed)[0] == 1)

    def inspect(self) -> PermitInfo | None:
        reply = self.ask(permit_scripts.INSPECT, permit_protocol.inspect(NAME, self.kind))
        return permit_protocol.read_info(NAME, self.kind, reply)

    # What the server has ----------------------------------------------------------------------------------------------

    def key(self, part: str) -> bytes:
        return permit_protocol.keys_of(NAME, self.kind)[KEYS.index(part)]

    def slots(self) -> dict[str, tuple[int, ...]]:
        info = self.inspect()
        return {} if info is None else {holder.owner: holder.slots for holder in info.holders}

    def queue(self) -> list[str]:
        return [owner.decode() for owner in self.admin.zrange(self.key("queue"), 0, -1)]

    def pool(self) -> Pool:
        text: Any = self.admin.hget(self.key("holders"), "")
        return Pool(*map(int, text.split()))

    def set_pool(self, **changes: int) -> None:
        text = " ".join(map(str, self.pool()._replace(**changes)))
        self.admin.hset(self.key("holders"), "", text)

    # What happens -----------------------------------------------------------------------------------------------------

    def ends(self, owner: str, ago_ms: int = 1000) -> None:
        """Its time is over."""
        assert self.admin.zadd(self.key("ends"), {owner: now_ms() - ago_ms}, xx=True, ch=True) == 1

    def ages(self, owner: str, by_ms: int) -> None:
        """It was not seen for a while."""
        waiter: Any = self.admin.hget(self.key("waiters"), owner)
        rest = waiter.partition(b" ")[2]
        self.admin.hset(self.key("waiters"), owner, b"%d %b" % (now_ms() - by_ms, rest))

    def listens(self, owner: str, really: bool) -> None:
        message = self._pushes.ask(protocol.command(b"SUBSCRIBE" if really else b"UNSUBSCRIBE", channel_of(owner)))
        while message[0] == b"message":  # pushed before
            self._before.append(message)
            message = self._pushes.hear(10.0)
        (self._listening.add if really else self._listening.discard)(owner)

    def heard(self) -> list[protocol.Push]:
        """The pushes that have arrived since the last call."""
        self.admin.publish(END, "end 0 0")
        messages, self._before = self._before, []
        while (message := self._pushes.hear(10.0))[1] != END:
            messages.append(message)
        pushes = [push for message in messages if (push := protocol.read_push(message))]
        assert [message[1] for message in messages] == [channel_of(push.owner) for push in pushes]
        return pushes

    def told(self) -> list[str]:
        """Who was pushed to."""
        return [push.owner for push in self.heard()]

    def published(self) -> list[bytes]:
        """Every message, also to a channel that nobody listens to."""
        self._overheard += 1
        last = b"end %d" % self._overheard
        self.admin.publish(OTHER_END, last)
        found = []
        while (message := self._overhears.hear(10.0))[3] != last:
            found += [message[3]] if message[2] != END else []
        return found


def protocol_says_more(reply: Any) -> bool:
    return permit_protocol.has_more(reply)


def slots_of(answer: Granted | Taken) -> tuple[int, ...]:
    assert isinstance(answer, Granted), answer
    return answer.slots


def token_of(answer: Granted | Taken) -> int:
    assert isinstance(answer, Granted), answer
    return answer.token


def is_taken(answer: Granted | Taken) -> bool:
    return isinstance(answer, Taken)
