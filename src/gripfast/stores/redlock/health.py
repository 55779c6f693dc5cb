"""Which nodes are worth asking, in the blocking colour, and how connections to several are made at once.

A node is down from the moment at which it could not be reached or stayed silent. A thread then looks after it, with
connections of its own, until it answers: the last one is there for whoever asks next.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue

from gripfast.bounded import Call
from gripfast.core.redlock.nodes import Failed
from gripfast.machine import boottime
from gripfast.stores.faults import Fault, LinkDown
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.faults import cut
from gripfast.stores.redis.wire import Wire
from gripfast.stores.redlock.polls import still_down
from gripfast.stores.redlock.talk import PAUSE_FIRST, PAUSE_MOST
from gripfast.timed_queue import TimedQueue, next_in_own_thread

_log = logging.getLogger("gripfast.connection")
_DOWN = "%s marked down, probing in the background: %s"


class Known:
    """What is known about the nodes together. It knows nobody, so that threads may have it."""

    def __init__(self) -> None:
        self.version: object = object()
        """Another one after every change."""
        self.is_closed = False
        self.taught: dict[type, set[int]] = {}
        """By kind of request: the nodes that were sent its script, and have not shown since that they forgot it.

        To wait for that to show would be too late: a clean-up may be answered when nobody listens any more.
        """

    def has_to_teach(self, kind: type, node: int) -> bool:
        taught = self.taught.setdefault(kind, set())
        if node in taught:
            return False
        taught.add(node)
        return True

    def has_forgotten(self, node: int) -> None:
        for taught in list(self.taught.values()):
            taught.discard(node)


class Node:
    def __init__(self, dialer: Dialer, known: Known) -> None:
        self.where = dialer.where
        self.dialer = dialer
        self.era: object = object()
        """Since it was last given up for lost: connections that are older are not used any more."""
        self.is_up = True
        self._known = known
        self._calls: SimpleQueue[object] = SimpleQueue()
        """Wakes whoever looks after it: there is nobody left to do that for."""
        self._owner: Callable[[], object] = _nobody
        self._spares: list[Wire] = []
        self._fault = cut(self.where, None)
        self._since = 0.0
        self._prober: threading.Thread | None = None

    def belongs_to(self, owner: object) -> None:
        self._owner = weakref.ref(owner, self._calls.put)

    def give_up(self, fault: Fault, era: object) -> None:
        """It failed, on a connection of that era."""
        if era is self.era:
            what = fault.error.nodes.get(self.where, fault.error)
            _log.info(_DOWN, self.where, what, extra={"gripfast_store": self.where})
            self._fault, self._since = fault, boottime()
            self.is_up = False
            self.era = object()
            self._known.version = object()
            self.look_after()

    def failed(self) -> Failed:
        """For whoever would have asked it."""
        fault = still_down(self.where, self._fault, boottime() - self._since)
        return Failed(fault.error, was_asked=False, is_permanent=fault.is_permanent, was_refused=fault.was_refused)

    def spare(self) -> Wire | None:
        try:
            return self._spares.pop()
        except IndexError:
            return None

    def drop_spares(self) -> None:
        while (wire := self.spare()) is not None:
            wire.close()

    def close(self) -> None:
        self._calls.put(None)
        self.drop_spares()

    def look_after(self) -> None:
        """One thread at most does; an interrupt may have come before it began."""
        if not self._known.is_closed and (self._prober is None or not self._prober.is_alive()):
            self._prober = threading.Thread(target=self._probe, name="gripfast-dial", daemon=True)
            try:
                self._prober.start()
            except RuntimeError:  # the interpreter is about to end
                pass

    def _probe(self) -> None:
        pause = PAUSE_FIRST
        while not self._is_told_to_end(pause) and not self.is_up:
            pause = min(PAUSE_MOST, 2 * pause)
            try:
                wire = self.dialer.dial_and_ask()
            except LinkDown as down:
                self._fault = down.fault
                continue
            self._is_back(wire)
            return

    def _is_told_to_end(self, pause: float) -> bool:
        try:
            next_in_own_thread(self._calls, pause)
        except Empty:
            pass
        return self._owner() is None or self._prober is not threading.current_thread() or self._known.is_closed

    def _is_back(self, wire: Wire) -> None:
        self._spares.append(wire)
        self.is_up = True
        self._known.version = object()
        _log.info("%s is up: it answers again", self.where, extra={"gripfast_store": self.where})
        if self._known.is_closed:
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
    until = boottime() + seconds  # from now on: a busy machine needs a while to start so many threads
    ended: set[Call[Wire]] = set()
    while len(ended) < len(calls):
        try:
            ended.add(done.get(until - boottime()))
        except Empty:
            break
    made |= {at: _outcome(call, nodes[at].dialer) for call, at in calls.items()}
    return made


def _outcome(call: Call[Wire], dialer: Dialer) -> Wire | Fault:
    try:
        return call.outcome()
    except LinkDown as down:
        return down.fault
    except TimeoutError as error:
        return dialer.late(error)
    except Exception as error:  # whatever it is, somebody waits
        return cut(dialer.where, error)
