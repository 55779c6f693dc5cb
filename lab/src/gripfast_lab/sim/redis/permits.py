"""The simulated server of semaphores and read/write locks: what it keeps, and what it really did.

As in `observer`, who waits follows from the requests alone. Who has permits is read from the server: whether these are
too many is for the checkers to say, from what the holders believe.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gripfast.core.ports import Kind
from gripfast.stores.redis import permit_protocol, permit_scripts
from gripfast_lab.sim.clocks import Clock
from gripfast_lab.sim.history import WORLD
from gripfast_lab.sim.redis.node import Node
from gripfast_lab.sim.redis.observer import Observer, _Line
from gripfast_lab.sim.redis.server import Server
from gripfast_lab.sim.world import World

SCRIPTS = (
    permit_scripts.CLAIM, permit_scripts.RENEW, permit_scripts.GIVE_BACK, permit_scripts.DOWNGRADE,
    permit_scripts.INSPECT, permit_scripts.RESIZE, permit_scripts.FORCE_RELEASE,
)  # fmt: skip
_WHAT = {key: script for script in SCRIPTS for key in (script.sha.encode(), script.text.encode())}
_CALLS = (b"EVALSHA", b"EVAL")
LIVES_ON = (b":holders", b":ends", b":free")
"""Keys that outlive the leases, as the token of a lock does."""


class Having(NamedTuple):
    n: int
    slots: tuple[int, ...]
    token: int
    ends_ms: float


def holders_of(server: Server, name: str, kind: Kind) -> dict[bytes, Having]:
    """Those whose time is not over."""
    database = server.database
    holders, ends, *_ = _keys_of(name, kind)
    found: dict[bytes, Having] = {}
    scores: Any = database.call([b"ZRANGE", ends, b"0", b"-1", b"WITHSCORES"])
    for owner, score in zip(scores[::2], scores[1::2], strict=True):
        text: Any = database.call([b"HGET", holders, owner])
        holder = _read_holder(text or b"")
        if holder is not None and float(score) >= database.now_us() // 1000:
            found[owner] = Having(holder.n, holder.slots, holder.token, float(score))
    return found


# Both are used before and after every request: a third of a run's time went into them.
_keys_of = functools.cache(permit_protocol.keys_of)
_read_holder = functools.lru_cache(1000)(permit_protocol.read_holder)


class PermitObserver(Observer):
    kinds: Mapping[str, Kind] = {}

    def __init__(self, now: Callable[[], float], note: Callable[..., None]) -> None:
        super().__init__(now, note)
        self._limits: dict[bytes, int] = {}
        """That are in force: those of the first who came, until one was resized."""

    def _may_vanish(self) -> bool:
        """Each that waits for permits writes the expiry of its queue."""
        return False

    def snapshot(self) -> object:
        return super().snapshot(), dict(self._limits)

    def restore(self, seen: Any) -> None:
        lines, limits = seen or (None, {})
        super().restore(lines)
        self._limits = {}
        for key, limit in limits.items():
            self._is_limited(key, limit)

    def _is_limited(self, key: bytes, limit: int) -> None:
        if self._limits.get(key) != limit:
            self._limits[key] = limit
            self._tell("resized", key, WORLD.encode(), token=limit)

    def _before(self, _: object, args: list[bytes]) -> None:
        self._what = _WHAT.get(args[1]) if args[0] in _CALLS else None
        if self._what is not None:
            self._name = next(each for each in self.kinds if args[3] == self._first_key(each))
            self._had = holders_of(self._server, self._name, self.kinds[self._name])

    def _first_key(self, name: str) -> bytes:
        return _keys_of(name, self.kinds[name])[0]

    def _after(self, _: object, args: list[bytes], reply: Any) -> None:
        what = self._what
        if what is None or what is permit_scripts.INSPECT or isinstance(reply, Exception):
            return
        key, values = self._name.encode(), args[3 + int(args[2]) :]
        owner, had = values[0], self._had
        has = holders_of(self._server, self._name, self.kinds[self._name])
        if what is permit_scripts.RENEW:
            if reply == 1 and owner not in had:
                self._tell("confirmed", key, owner, note="nobody")
            return
        line = self._lines.setdefault(key, {})
        is_claim = what is permit_scripts.CLAIM
        if is_claim and key not in self._limits:
            self._is_limited(key, int(values[3]))
        if what is permit_scripts.RESIZE:
            self._resized(key, line, int(owner))
        if what is permit_scripts.FORCE_RELEASE:
            self._broke(key, had, has, values)
        else:
            for each in had.keys() - has.keys() - {owner}:
                self._tell("removed", key, owner, note=each.decode())
        if what is permit_scripts.GIVE_BACK or (is_claim and owner not in has and reply[3]):
            line.pop(owner, None)
        self._note_grants(key, line, had, has, owner if is_claim else None)
        if is_claim and values[4] and owner not in has and not reply[3]:
            self._waits(line, owner, values[4])
            line[owner].n = line[owner].n or int(values[2])
        self._look_whether_idle(key, line, has, owner, is_claim)

    def _resized(self, key: bytes, line: _Line, limit: int) -> None:
        """Who waits for more than there will be is told so, and has to come again."""
        self._is_limited(key, limit)
        for owner in [owner for owner, place in line.items() if place.n > limit]:
            line.pop(owner)

    def _broke(self, key: bytes, had: dict[bytes, Having], has: dict[bytes, Having], values: list[bytes]) -> None:
        """As the operator wanted: whoever had them may still believe in them. Others may not lose theirs."""
        owner, slot = values[0], values[1]
        for each in had.keys() - has.keys():
            is_meant = (not owner and not slot) or each == owner or (slot and int(slot) in had[each].slots)
            if is_meant:
                self._note(each.decode().partition("#")[0], key.decode(), "forgot", until=self._now())
            else:
                self._tell("removed", key, b"an operator", note=each.decode())

    def _note_grants(
        self, key: bytes, line: _Line, had: dict[bytes, Having], has: dict[bytes, Having], asker: bytes | None
    ) -> None:
        """In their order: one request may serve several."""
        new = [owner for owner in has if owner not in had or had[owner].token != has[owner].token]
        for owner in sorted(new, key=lambda each: has[each].token):
            waiting = self._waiting_before(line, owner, asker)
            self._tell("handed", key, owner, token=has[owner].token, note=b" ".join(waiting).decode())
            line.pop(owner, None)

    def _look_whether_idle(
        self, key: bytes, line: _Line, has: dict[bytes, Having], owner: bytes, is_claim: bool
    ) -> None:
        """Whether the first who waits would have fitted. Who claims is there, heard or not; who lapsed may stand
        elsewhere."""
        if any(place.has_lapsed for place in line.values()):
            return
        waiting = self._live(line, owner if is_claim else None)
        if waiting and sum(each.n for each in has.values()) + line[waiting[0]].n <= self._limits[key]:
            self._tell("idle", key, owner, note=b" ".join(waiting).decode())


class PermitNode(Node):
    def __init__(
        self, world: World, name: str, clock: Clock, observer: PermitObserver, kinds: Mapping[str, Kind]
    ) -> None:
        super().__init__(world, name, clock, observer)
        self.kinds = kinds

    def warm_up(self) -> None:
        super().warm_up()
        for script in SCRIPTS:
            self.server.remember(script.text)

    def limit_of(self, name: str) -> int | None:
        """None if nobody has said so yet."""
        pool: Any = self.server.database.call([b"HGET", _keys_of(name, self.kinds[name])[0], b""])
        return int(pool.split()[1]) or None if pool else None

    def keeps_until(self, lock: str, owner: str) -> float:
        having = holders_of(self.server, lock, self.kinds[lock]).get(owner.encode())
        return -math.inf if having is None else self.clock.true_at((having.ends_ms + 1) / 1000)

    def holders(self, lock: str) -> list[str]:
        return [owner.decode() for owner in holders_of(self.server, lock, self.kinds[lock])]

    def has(self, lock: str, owner: str) -> bool:
        """Permits, or a position in the queue."""
        _, _, _, queue, waiters, *_ = _keys_of(lock, self.kinds[lock])
        if owner in self.holders(lock):
            return True
        database, who = self.server.database, owner.encode()
        return None not in (database.call([b"ZSCORE", queue, who]), database.call([b"HGET", waiters, who]))
