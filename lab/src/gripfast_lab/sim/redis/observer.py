"""What a node really did, for the checkers: noted beside the scripts, by books of its own.

Nothing here reads what the scripts keep about their line: who waits, since when and where it listens follows from the
requests alone. So a script that keeps a wrong line is found out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gripfast.stores.redis import protocol, scripts
from gripfast_lab.sim.history import WORLD
from gripfast_lab.sim.redis.server import Server

_NEVER = -(1 << 62)
_CALLS = (b"EVALSHA", b"EVAL")
_WHAT = {
    key: script
    for script in (scripts.CLAIM, scripts.RELEASE, scripts.RENEW, scripts.ABANDON, scripts.FORCE_RELEASE)
    for form in (script, script.guarded, script.acked)
    for key in (form.sha.encode(), form.text.encode())
}


@dataclass(slots=True)
class _Place:
    seen_ms: int
    channel: bytes
    n: int = 0
    """Permits that it wants, if these are what it waits for."""
    has_lapsed: bool = False
    """It was not seen for so long that the node may have dropped it, or not: its place may be the old or a new one."""


_Line = dict[bytes, _Place]
"""Those who wait for one lock, in the order in which they came."""


class Observer:
    def __init__(self, now: Callable[[], float], note: Callable[..., None]) -> None:
        self._now = now
        self._note = note
        self._lines: dict[bytes, _Line] = {}
        self._what: object = None
        self._holder: bytes | None = None
        self._jumped_ms = _NEVER

    def watch(self, server: Server) -> None:
        self._server = server
        server.before = self._before
        server.after = self._after

    def snapshot(self) -> object:
        return {key: {owner: replace(place) for owner, place in line.items()} for key, line in self._lines.items()}

    def restore(self, lines: Any) -> None:
        self._lines = lines or {}

    def lose_sight(self) -> None:
        """The node's clock has jumped: it may have dropped anyone who waits, or not."""
        self._jumped_ms = self._now_ms()
        for line in self._lines.values():
            for place in line.values():
                place.seen_ms, place.has_lapsed = _NEVER, True

    def _before(self, _: object, args: list[bytes]) -> None:
        self._what = _WHAT.get(args[1]) if args[0] in _CALLS else None
        if self._what is not None:
            self._holder = self._server.database.text(args[3])

    def _after(self, _: object, args: list[bytes], reply: Any) -> None:
        what = self._what
        if what is None or isinstance(reply, Exception):
            return
        key, values = args[3], args[3 + int(args[2]) :]
        owner = values[0] if values and what is not scripts.FORCE_RELEASE else b""
        before, holder = self._holder, self._server.database.text(key)
        if what is scripts.RENEW:
            if reply == 1 and before != owner:
                self._tell("confirmed", key, owner, note=(before or b"nobody").decode())
            return
        line = self._lines.setdefault(key, {})
        asker = owner if what is scripts.CLAIM else None
        if what is scripts.ABANDON:
            line.pop(owner, None)
        if holder != before:
            if what is scripts.FORCE_RELEASE:
                self._broken(key)
            elif before is not None and before != owner:
                self._tell("removed", key, owner, note=before.decode())
            if holder is not None:
                self._handed(key, line, holder, asker, args[4])
                line.pop(holder, None)
        if asker is not None and values[4] and holder != owner:
            self._waits(line, owner, values[4])
        if holder is None and line and (waiting := self._live(line, None)):
            self._tell("idle", key, owner, note=b" ".join(waiting).decode())

    def _broken(self, key: bytes) -> None:
        """As the operator wanted: whoever had it may still believe in it."""
        self._note(WORLD, key.decode(), "forgot", until=self._now())

    def _handed(self, key: bytes, line: _Line, holder: bytes, asker: bytes | None, fence: bytes) -> None:
        waiting = self._waiting_before(line, holder, asker)
        token = protocol.last_token(self._server.database.text(fence))
        self._tell("handed", key, holder, token=token, note=b" ".join(waiting).decode())

    def _waiting_before(self, line: _Line, holder: bytes, asker: bytes | None) -> list[bytes]:
        """Nobody, if it is not known whether the one that was served had been dropped: being dropped ends a position,
        and a node drops whoever it has not seen for long when it looks, not at that moment. But who has come before it
        stands before it either way."""
        place = line.get(holder)
        if place is None or not (place.has_lapsed or (holder == asker and self._is_stale(place))):
            return self._live(line, asker)
        known = list(line)[: list(line).index(holder)] if not place.has_lapsed else []
        return [each for each in self._live(line, asker) if each in known and not line[each].has_lapsed]

    def _live(self, line: _Line, asker: bytes | None) -> list[bytes]:
        """Where somebody stands that was dropped, or not, and asks again just now, is not known."""
        return [
            owner
            for owner, place in line.items()
            if (owner == asker and not place.has_lapsed and not self._is_stale(place)) or self._can_be_reached(place)
        ]

    def _can_be_reached(self, place: _Place) -> bool:
        return not self._is_stale(place) and self._server.receivers(place.channel) > 0

    def _is_stale(self, place: _Place) -> bool:
        return self._now_ms() - place.seen_ms > scripts.WINDOW_MS

    def _now_ms(self) -> int:
        return self._server.database.now_us() // 1000

    def _may_vanish(self) -> bool:
        """Not everyone who joins a line writes its expiry: one from before a jump may end too soon."""
        return self._now_ms() - self._jumped_ms <= scripts.LINE_MS

    def _waits(self, line: _Line, owner: bytes, channel: bytes) -> None:
        now_ms = self._now_ms()
        place = line.get(owner)
        if place is not None and not self._is_stale(place):
            place.seen_ms, place.channel = now_ms, channel
        else:
            line.pop(owner, None)
            if place is None and self._may_vanish():
                line[owner] = _Place(_NEVER, channel, has_lapsed=True)
                return
            n = 0 if place is None else place.n
            line[owner] = _Place(now_ms, channel, n, has_lapsed=place is not None)

    def _tell(self, kind: str, key: bytes, owner: bytes, **more: Any) -> None:
        self._note(owner.decode(), key.decode(), kind, **more)
