"""What the scripts on the server should do, in plain Python: one lock, its line of waiters, and who is pushed to.

Times are intervals, (earliest, latest) in milliseconds: a request was carried out sometime between its sending and the
arrival of its answer.
"""

from dataclasses import dataclass, field

from gripfast.core.ports import Broken

WINDOW_MS = 10_000
DAY_MS = 24 * 3600 * 1000

Interval = tuple[float, float]


def plus(moment: Interval, ms: float) -> Interval:
    return moment[0] + ms, moment[1] + ms


def later(one: Interval | None, another: Interval) -> Interval:
    return another if one is None else (max(one[0], another[0]), max(one[1], another[1]))


@dataclass
class Waiter:
    owner: bytes
    ttl_ms: int
    is_stale: bool = False
    """It was not seen for longer than the window."""


@dataclass
class Line:
    """After every call, `pushed` and `writes` tell what that call did."""

    muted: set[bytes] = field(default_factory=set)
    """Owners whose channel nobody listens to."""
    holder: bytes | None = None
    ends: Interval | None = None
    """None if the lock never ends."""
    waiters: list[Waiter] = field(default_factory=list)
    last_token: int | None = None
    """None if the server has forgotten it."""
    forgets: Interval | None = None
    """When it forgets the token, unless that lies in the future."""
    broken: bytes | None = None
    notes: dict[bytes, str] = field(default_factory=dict)
    """What who was force-released is to be told: of the last one that has a note."""
    pushed: tuple[bytes, int] | None = None
    """Owner and ttl."""
    writes: int = 0
    now: Interval = (0.0, 0.0)

    def begin(self, now: Interval) -> None:
        self.now, self.pushed, self.writes = now, None, 0

    def claim(self, owner: bytes, ttl_ms: int, waits: bool) -> bool:
        """Whether it is granted."""
        if self.holder == owner:
            self._keep(owner, ttl_ms)
            return True
        if self.holder is None:
            following = self._settle(owner)
            if following in (None, owner):
                self._leave(owner)
                self._write(owner, ttl_ms)
                return True
        before = self.find(owner)
        if waits:
            place = self.waiters.index(before) if before else len(self.waiters)
            self.waiters[place : place + 1] = [Waiter(owner, ttl_ms)]
        return False

    def release(self, owner: bytes) -> bool:
        was_mine = self.holder == owner
        if was_mine:
            self.holder = None
        if self.holder is None:
            self._settle()
        return was_mine

    def abandon(self, owner: bytes) -> None:
        self._leave(owner)
        self.release(owner)

    def force_release(self, note: str | None) -> bool:
        was_held = self.holder is not None
        if self.holder is not None and self.ends is not None:
            self.broken = self.holder
            if note is not None:
                self.notes = {self.holder: note}
        self.holder = None
        self._settle()
        return was_held

    def renew(self, owner: bytes, ttl_ms: int, shortens: bool) -> bool:
        if self.holder != owner:
            return False
        until = plus(self.now, ttl_ms)
        self.ends = until if shortens else later(self.ends, until)
        self._remember(ttl_ms)
        return True

    def why(self, owner: bytes) -> str | Broken:
        if self.broken == owner:
            return Broken(self.notes[owner]) if owner in self.notes else "broken"
        return "expired" if self.holder is None else "taken"

    def find(self, owner: bytes) -> Waiter | None:
        return next((each for each in self.waiters if each.owner == owner), None)

    def _settle(self, asker: bytes | None = None) -> bytes | None:
        """The first who is still there is next."""
        for waiter in list(self.waiters):
            if waiter.owner == asker:
                return asker
            if waiter.is_stale:
                self._leave(waiter.owner)
            elif waiter.owner not in self.muted:
                self._push(waiter)
                return waiter.owner
        return None

    def _push(self, waiter: Waiter) -> None:
        granted = min(waiter.ttl_ms, WINDOW_MS)
        self._write(waiter.owner, granted)
        self._leave(waiter.owner)
        self.pushed = (waiter.owner, granted)

    def _keep(self, owner: bytes, ttl_ms: int) -> None:
        if self.last_token is None:
            self._write(owner, ttl_ms)
            return
        self.ends = later(self.ends, plus(self.now, ttl_ms))
        self._remember(ttl_ms)

    def _write(self, owner: bytes, ttl_ms: int) -> None:
        self.writes += 1
        self.holder = owner
        self.ends = plus(self.now, ttl_ms)
        self.forgets = plus(self.now, ttl_ms + DAY_MS)

    def _remember(self, ttl_ms: int) -> None:
        if self.last_token is not None:
            self.forgets = later(self.forgets, plus(self.now, ttl_ms + DAY_MS))

    def _leave(self, owner: bytes) -> None:
        self.waiters = [each for each in self.waiters if each.owner != owner]
