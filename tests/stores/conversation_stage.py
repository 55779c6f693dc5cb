"""A loop, a caller and a connection for tests of conversations: nothing happens by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gripfast.stores.faults import Fault
from gripfast.stores.redis.conversation import NOBODY, Conversation, Server
from gripfast.stores.redis.shared import Opening

TIMEOUT = 1.0


class Clock:
    """A loop on which time passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []

    def call_later(self, seconds: float, call: Callable[..., object], /, *args: Any) -> Clock:
        self._timers.append((self.now + seconds, len(self._timers), call, args))
        return self

    def call_soon(self, call: Callable[..., object], /, *args: Any) -> Clock:
        return self.call_later(0.0, call, *args)

    def cancel(self) -> None:
        """A timer that was cancelled finds nothing to do."""

    def pass_by(self, seconds: float) -> None:
        until = self.now + seconds
        while due := sorted(timer for timer in self._timers if timer[0] <= until + 1e-9):
            self._timers.remove(due[0])
            self.now = max(self.now, due[0][0])
            due[0][2](*due[0][3])
        self.now = until


class Told:
    """A caller, and what it was told."""

    def __init__(self) -> None:
        self.replies: list[Any] = []
        self.has_left = False

    def done(self) -> bool:
        return self.has_left

    def set_result(self, reply: Any, /) -> None:
        self.replies.append(reply)


class Talk(Conversation):
    """A driver that only writes down."""

    def __init__(self, server: Server, clock: Clock) -> None:
        super().__init__(server, clock)
        self.sent: list[bytes] = []
        self.is_kept: bool | None = None
        self.is_closed = False

    def write(self, packed: bytes) -> None:
        self.sent.append(packed)

    def let_go(self, keep: bool) -> None:
        self.is_kept = keep

    def follow(self, packed: bytes) -> bool:
        if self.is_open:
            self.ask_for(NOBODY, packed)
        elif self.is_silent:
            self.sent.append(packed)
        return self.is_open or self.is_silent

    def close(self) -> None:
        self.is_closed = True

    def ask(self, packed: bytes = b"", owner: str | None = None) -> Told:
        told = Told()
        self.ask_for(told, packed, owner)
        return told


def fault_of(told: Told) -> Fault:
    [fault] = told.replies
    assert isinstance(fault, Fault)
    return fault


class Begun(Opening):
    """A connection that is made when the test says so."""

    begun: Any = None

    def begin(self, dialing: Any) -> None:
        self.begun = dialing


class Once(Told):
    def done(self) -> bool:
        return bool(self.replies)
