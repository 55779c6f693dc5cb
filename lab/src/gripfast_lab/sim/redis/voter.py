"""One of the nodes of Redlock: a Redis server in the world, and what it really did, for the checkers.

Values are `owner.attempt`, and nobody is handed anything: who waits is only told to ask. So what is noted here is what
must hold at each node for itself: nobody takes away another's lock, only the holder is told yes, and F never shrinks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gripfast.stores.redis import protocol
from gripfast.stores.redis import scripts as of_one
from gripfast.stores.redis.keys import MARK, side_key
from gripfast.stores.redlock import scripts
from gripfast_lab.sim.clocks import Clock
from gripfast_lab.sim.history import WORLD
from gripfast_lab.sim.redis.node import Node
from gripfast_lab.sim.redis.server import Server
from gripfast_lab.sim.world import World

BIRTH = b"gripfast" + MARK + b"birth"
SCRIPTS = (
    scripts.VOTE, scripts.ACCEPT, scripts.TAKE_BACK, scripts.UNLOCK, scripts.FREE, scripts.WAKE, scripts.FORCE_RELEASE,
    scripts.MARK, scripts.ESTABLISH, of_one.RENEW, of_one.WHY, of_one.INSPECT,
)  # fmt: skip
_CALLS = (b"EVALSHA", b"EVAL")
_FENCED = (scripts.VOTE, scripts.ACCEPT, scripts.TAKE_BACK)
_MAY_BE_TOLD_YES = (scripts.ACCEPT, of_one.RENEW)
_WHAT = {
    key: script
    for script in (*_FENCED, scripts.UNLOCK, scripts.FREE, scripts.FORCE_RELEASE, of_one.RENEW)
    for key in (script.sha.encode(), script.text.encode())
}


class Voter(Node):
    def __init__(self, world: World, name: str, clock: Clock, observer: VoteObserver, grace: float) -> None:
        super().__init__(world, name, clock, observer)
        self._grace = grace

    def warm_up(self) -> None:
        for script in SCRIPTS:
            self.server.remember(script.text)

    def establish(self) -> None:
        """It was there from the start."""
        self.server.database.put(BIRTH, b"0", None)

    @property
    def is_marked(self) -> bool:
        return self.server.database.text(BIRTH) is not None

    def votes_at(self) -> float:
        """The true moment from which on it votes."""
        born = self.server.database.text(BIRTH)
        if not self._grace:
            return -math.inf
        return math.inf if born is None else self.clock.true_at(int(born) / 1000 + self._grace)

    def keeps_until(self, lock: str, owner: str) -> float:
        """Also because it does not vote."""
        key, database = lock.encode(), self.server.database
        if not (database.text(key) or b"").startswith(f"{owner}.".encode()):
            return max(self.votes_at(), -math.inf)
        expiry_ms = database.expiry_ms(key)
        return math.inf if expiry_ms is None else self.clock.true_at((expiry_ms + 1) / 1000)

    def holder(self, lock: str) -> str:
        return super().holder(lock).rpartition(".")[0]

    def has(self, lock: str, owner: str) -> bool:
        if self.holder(lock) == owner:
            return True
        key, who, call = lock.encode(), owner.encode(), self.server.database.call
        line, places = (side_key(key, kind) for kind in (b"line", b"places"))
        return call([b"ZSCORE", line, who]) is not None or call([b"HGET", places, who]) is not None


class VoteObserver:
    def __init__(self, now: Callable[[], float], note: Callable[..., None], node: str) -> None:
        self._now = now
        self._note = note
        self._node = node
        self._what: object = None
        self._holder: bytes | None = None
        self._fence: bytes | None = None

    def watch(self, server: Server) -> None:
        self._database = server.database
        server.before = self._before
        server.after = self._after

    def snapshot(self) -> object:
        """It keeps no books: everything is seen in one request."""

    def restore(self, seen: Any) -> None:
        """See `snapshot`."""

    def lose_sight(self) -> None:
        """See `snapshot`."""

    def _before(self, _: object, args: list[bytes]) -> None:
        self._what = _WHAT.get(args[1]) if args[0] in _CALLS else None
        if self._what is not None:
            self._holder = self._database.text(args[3])
            self._fence = self._database.text(args[4]) if self._what in _FENCED else None

    def _after(self, _: object, args: list[bytes], reply: Any) -> None:
        what = self._what
        if what is None or isinstance(reply, Exception):
            return
        key, values = args[3], args[3 + int(args[2]) :]
        value = values[0] if values else b""
        before, holder = self._holder, self._database.text(key)
        if what is scripts.FORCE_RELEASE:
            if before is not None:  # as the operator wanted: whoever had it may still believe in it
                self._note(WORLD, key.decode(), "forgot", until=self._now())
        elif before is not None and holder != before and _owner(before) != _owner(value):
            self._tell("removed", key, value, note=_owner(before))
        if what in _MAY_BE_TOLD_YES and reply == 1 and before != value:
            self._tell("confirmed", key, value, note=(before or b"nobody").decode())
        if what in _FENCED:
            self._look_at_fence(key, value, args[4])

    def _look_at_fence(self, key: bytes, value: bytes, fence: bytes) -> None:
        now = self._database.text(fence)
        if now == self._fence:
            return
        token, before = protocol.last_token(now), protocol.last_token(self._fence)
        if token < before:
            self._tell("lowered", key, value, token=token, note=f"{self._node} had {before}")
        else:
            self._tell("accepted", key, value, token=token, note=self._node)

    def _tell(self, kind: str, key: bytes, value: bytes, **more: Any) -> None:
        self._note(_owner(value), key.decode(), kind, **more)


def _owner(value: bytes) -> str:
    """Of a value, or of the owner and dot that some requests have."""
    return value.rpartition(b".")[0].decode()
