"""How threads look after nodes that are down, and how connections to several are made at once.

When a node is down, and what is told of it, `talk.Health` decides. From then on a thread looks after it, with
connections of its own, until it answers: the next request uses the last of these connections.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from gripfast.bounded import Call
from gripfast.interrupts.threads import Background
from gripfast.machine import boottime
from gripfast.stores.faults import Fault, LinkDown
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.shared import outcome_of
from gripfast.stores.redis.wire import Wire
from gripfast.stores.redlock.lent import LentServer
from gripfast.stores.redlock.talk import Health
from gripfast.timed_queue import TimedQueue, next_in_own_thread


class Losses:
    """Of any node."""

    latest: object = None


class Node(Health):
    server: LentServer
    lost_at_once = 50
    """A node does not have to take more than the system keeps for it: that can be less than 100 kB."""

    def __init__(self, place: int, dialer: Dialer, down: set[Health], losses: Losses) -> None:
        super().__init__(place, LentServer(dialer.where, dialer.timeout), boottime, down)
        self.dialer = dialer
        self.listens_at = b""
        """Another one for each connection. Empty if nobody does."""
        self.era: object = None
        """Since it was last given up for lost: connections that are older are not used any more."""
        self._losses = losses
        self._is_closed = False
        self._calls: SimpleQueue[object] = SimpleQueue()
        """Wakes whoever looks after it: there is nobody left to do that for."""
        self._owner: Callable[[], object] = _nobody
        self._spares: list[Wire] = []
        self._prober: threading.Thread | None = None

    @property
    def channel(self) -> bytes:
        return self.listens_at

    def belongs_to(self, owner: object) -> None:
        self._owner = weakref.ref(owner, self._calls.put)

    def failed(self, fault: Fault, on: Any) -> None:
        """If that is older than the last loss, it says nothing."""
        if on.era is self.era:
            self.goes_down(fault)

    def goes_down(self, fault: Fault) -> None:
        super().goes_down(fault)
        self.era = self._losses.latest = object()
        self.look_after()

    def still_down(self) -> Fault:
        self.look_after()
        return super().still_down()

    def spare(self) -> Wire | None:
        try:
            return self._spares.pop()
        except IndexError:
            return None

    def drop_spares(self) -> None:
        while (wire := self.spare()) is not None:
            wire.close()

    def close(self) -> None:
        self._is_closed = True
        self._calls.put(None)
        self.drop_spares()
        self.server.close()

    def look_after(self) -> None:
        """One thread at most does; an interrupt may have come before it began."""
        if not self._is_closed and (self._prober is None or not self._prober.is_alive()):
            self._prober = Background(self._probe, "gripfast-dial")
            try:
                self._prober.start()
            except RuntimeError:  # the interpreter is about to end
                pass

    def _probe(self) -> None:
        while not self._is_told_to_end() and self.trouble is not None:
            try:
                wire = self.dialer.dial_and_ask()
            except LinkDown as down:
                super().goes_down(down.fault)
                continue
            self._is_back(wire)
            return

    def _is_told_to_end(self) -> bool:
        try:
            next_in_own_thread(self._calls, self.next_pause())
        except Empty:
            pass
        return self._owner() is None or self._prober is not threading.current_thread() or self._is_closed

    def _is_back(self, wire: Wire) -> None:
        self._spares.append(wire)
        self.comes_up()
        if self._is_closed:
            self.drop_spares()


def _nobody() -> None:
    return None


# Several at once ------------------------------------------------------------------------------------------------------


def make_all(makes: Mapping[int, Callable[[], Wire]], nodes: Sequence[Node], seconds: float) -> dict[int, Wire | Fault]:
    """A connection, or why there is none, for each; those that are not made in time are dropped."""
    done: TimedQueue[Call[Wire]] = TimedQueue()
    made: dict[int, Wire | Fault] = {}
    calls: dict[Call[Wire], int] = {}
    for at, make in makes.items():
        try:
            calls[nodes[at].dialer.calls.begin(make, done.put)] = at
        except TimeoutError as error:
            made[at] = nodes[at].dialer.late(error)
    for call in ended(calls, done, seconds):
        dialer = nodes[calls[call]].dialer
        outcome = outcome_of(call, dialer.where, dialer.late)
        made[calls[call]] = outcome
        calls.pop(call, None)
    return made


def ended(calls: Mapping[Call[Wire], object], done: TimedQueue[Call[Wire]], seconds: float) -> Iterator[Call[Wire]]:
    """As they end; those that have not ended in time come last. The caller takes each of them out."""
    until = boottime() + seconds  # from now on: a busy machine needs a while to start so many threads
    while calls:
        try:
            call = done.get(until - boottime())
        except Empty:
            call = next(iter(calls))
        if call in calls:  # else it was given up earlier
            yield call
