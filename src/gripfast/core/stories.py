"""What observers are told of each claim: its beginning, what came of it, and exactly one end.

    claimed ──▶ granted ──▶ renewed, … ──▶ released | lost
       └─────▶ refused | unreachable

Code that reports can't ensure that. Several threads may find out that a lease is over, and an interrupt may strike
between the step that ends it and the report. So this code decides nothing. It puts reports on a queue, in one step of
C, and one thread reads them and decides (`Stories.take`):

- What does not follow from what was told before is left out: the second end of a lease, the grant of a claim that was
  given up.
- If a lease object dies without a report, its death is the end. Its story is the weak reference to it, which the
  interpreter puts on the queue when it dies (as in `ledger.py`). A lease that nobody can use any more was released, or
  it was lost for the reason that stands in its `endings`.
- When the client is closed, whatever is still open ends (`Stories.close`).

If there is no room for a claim (the observers are too slow), none of its story is told. So counts of held leases and
of waiters are never wrong.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from gripfast.core.events import Event, EventKind, EventRequest
from gripfast.core.lease import LeaseState, Loss, reason_of
from gripfast.core.ports import Taken, Unreachable
from gripfast.errors import ClientClosed, GripfastError, Reason, StoreUnavailable

Phase = Literal["untold", "waiting", "holding", "over"]

_NEXT: Mapping[tuple[Phase, EventKind | EventRequest], Phase] = {
    ("untold", "claimed"): "waiting",
    ("waiting", "granted"): "holding",
    ("waiting", "refused"): "over",
    ("waiting", "claim"): "over",
    ("holding", "renewed"): "holding",
    ("holding", "renew"): "holding",
    ("holding", "release"): "holding",
    ("holding", "released"): "over",
    ("holding", "lost"): "over",
}
"""What is told in which phase, and what it leads to; what is not here is left out. By the kind of the event, or, if the
store was unreachable, by the request."""


class Story(weakref.ref[LeaseState]):
    """One claim. Its methods report; they may be called from any thread, and decide nothing."""

    __slots__ = (
        "claimed_at", "endings", "granted_at", "group", "holder_trace", "name", "owner", "phase", "queued", "stories",
        "token", "trace", "ttl",
    )  # fmt: skip

    stories: Stories
    name: str
    group: str | None
    owner: str
    ttl: float
    token: int | None
    claimed_at: float
    granted_at: float | None
    queued: bool
    trace: str | None
    holder_trace: str | None
    endings: list[list[Loss]]
    """Those of the lease: they outlive it here."""
    phase: Phase
    """For the reading thread only: what was told so far."""

    def granted(self, state: LeaseState) -> None:
        now = self.stories.now()
        self.token, self.ttl, self.granted_at = state.token, state.ttl, now
        self.stories.put((self, self.event("granted", now)))

    def waits(self, answer: Taken | Unreachable) -> None:
        """It was not granted at once."""
        self.queued = True
        if isinstance(answer, Taken) and answer.holder is not None:
            self.holder_trace = answer.holder.trace

    def refused(self) -> None:
        self._report("refused", reason="taken")

    def failed(self, error: BaseException) -> None:
        """The claim was ended by this exception."""
        if isinstance(error, StoreUnavailable):
            self._unreachable("claim", error)
        elif isinstance(error, ClientClosed):
            self._report("refused", reason="closed")
        elif isinstance(error, Exception):
            self._report("refused", reason="error", error=_copy(error))
        else:
            self._report("refused", reason="cancelled")

    def renewal(self, state: LeaseState, answer: Loss | Unreachable | None, now: float) -> None:
        """Call it before the answer counts: the time left must be the old one."""
        if isinstance(answer, Unreachable):
            self._unreachable("renew", answer.error)
        elif answer is None and (margin := state.remaining(now)) > 0.0 and self.stories.has_room():
            self.ttl = state.ttl
            self._report("renewed", margin=margin)

    def released(self, answer: Loss | Unreachable | None = None) -> None:
        """Its holder has released it; what the engine has answered."""
        if isinstance(answer, Unreachable):
            self._unreachable("release", answer.error)
        elif answer is not None:
            self.lost(reason_of(answer))
            return
        self._report("released")

    def detached(self) -> None:
        """Its holder has handed it over."""
        self._report("released", reason="detached")

    def lost(self, reason: Reason) -> None:
        self._report("lost", reason=reason)

    def _unreachable(self, request: EventRequest, error: Exception) -> None:
        if request == "claim" or self.stories.has_room():
            self._report("unreachable", request=request, error=_copy(error))

    def _report(self, kind: EventKind, **more: Any) -> None:
        self.stories.put((self, self.event(kind, self.stories.now(), **more)))

    def event(
        self,
        kind: EventKind,
        at: float,
        *,
        margin: float = 0.0,
        reason: str | None = None,
        error: GripfastError | None = None,
        request: EventRequest | None = None,
    ) -> Event:
        stories, granted_at = self.stories, self.granted_at
        waited = (at if granted_at is None else granted_at) - self.claimed_at
        held = 0.0 if granted_at is None else at - granted_at
        return Event(  # by position, in the order of the fields: with keywords it takes twice as long
            kind, self.name, self.group, self.owner, stories.where, at, stories.wall(), self.ttl, stories.engine,
            self.token, waited, held, margin, reason, error, request, self.queued, self.trace, self.holder_trace,
        )  # fmt: skip


Report = Story | tuple[Story, Event]
"""What is put on the queue. A story alone: its lease is dead."""


class Stories:
    """Of one client."""

    def __init__(
        self,
        where: str,
        put: Callable[[Report], None],
        has_room: Callable[[], bool],
        now: Callable[[], float],
        wall: Callable[[], float],
        traceparent: Callable[[], str | None] = lambda: None,
        engine: str = "",
    ) -> None:
        self.where = where
        self.engine = engine
        self.put = put
        self.has_room = has_room
        """Call it before you queue a claim, or an event that ends nothing. False: it is left out."""
        self.now = now
        self.wall = wall
        self.traceparent = traceparent
        self._open: dict[str, Story] = {}
        """By owner. For the reading thread only."""

    def claimed(self, state: LeaseState) -> str | None:
        """Before the claim leaves. The trace that it belongs to."""
        trace = self.traceparent()
        if not self.has_room():
            return trace
        story = Story(state, self.put)
        story.stories = self
        story.name, story.group, story.owner = state.name, state.want.group, state.owner
        story.ttl, story.token = state.ttl, None
        story.claimed_at, story.granted_at = self.now(), None
        story.queued, story.trace, story.holder_trace = False, trace, None
        story.endings = state.endings
        story.phase = "untold"
        state.story = story
        self.put((story, story.event("claimed", story.claimed_at)))
        return trace

    # -- by the one thread that reads the queue ------------------------------------------------------------------

    def take(self, report: Report) -> Event | None:
        """The event that is to be told."""
        if isinstance(report, Story):
            return None if report.phase == "over" else self._end(report, self.now(), "cancelled", "dropped")
        story, event = report
        phase = _NEXT.get((story.phase, event.request or event.kind))
        if phase is None:
            return None
        self._turn(story, phase)
        if event.kind == "refused":  # an interrupt may have struck after the grant, before it was put on the queue
            return event._replace(token=None, held=0.0, waited=event.at - story.claimed_at)
        return event

    def close(self) -> Iterator[Event]:
        """The ends of all that are open."""
        now = self.now()
        for story in list(self._open.values()):
            if (event := self._end(story, now, "closed", "closed")) is not None:
                yield event

    def _end(self, story: Story, now: float, why_refused: str, why_released: str) -> Event | None:
        """The end of a story that nobody reported."""
        phase = story.phase
        self._turn(story, "over")
        if phase == "waiting":
            story.token = story.granted_at = None  # what was not told was not granted
            return story.event("refused", now, reason=why_refused)
        if phase == "holding":
            ending = reason_of(story.endings[0][0]) if story.endings else None
            if ending is None or ending in ("released", "detached"):
                return story.event("released", now, reason="detached" if ending == "detached" else why_released)
            return story.event("lost", now, reason=ending)
        return None

    def _turn(self, story: Story, phase: Phase) -> None:
        story.phase = phase
        if phase == "over":
            self._open.pop(story.owner, None)
        else:
            self._open[story.owner] = story


def _copy(error: Exception) -> GripfastError | None:
    """Without the traceback and the cause: they keep frames, and these keep leases. None if it is no error of ours, or
    one of a store in another package that can't be made of its arguments."""
    try:
        return type(error)(*error.args) if isinstance(error, GripfastError) else None
    except Exception:
        return None
