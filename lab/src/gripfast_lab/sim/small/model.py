"""What can happen in a small world, as a model for the explorer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gripfast.core import rules
from gripfast.stores.redis.scripts import LINE_MS
from gripfast_lab.sim.checks import violations
from gripfast_lab.sim.clocks import RATE_PROMISED
from gripfast_lab.sim.history import ANY, Event
from gripfast_lab.sim.plan import Errand, Host, Plan
from gripfast_lab.sim.small import faults
from gripfast_lab.sim.small.alone import SAME_MOMENT
from gripfast_lab.sim.small.state import Draft, Parts, State

TOO_LONG = 100.0
"""Seconds after which whoever is not done is stuck."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A small world."""

    name: str
    text: str
    errands: tuple[Errand, ...]
    sharing: tuple[str, ...] = ("p2",)
    """The processes that have one connection for all, as asyncio clients do."""
    request_timeout: float = 2.0
    connect_patience: float = 5.0
    knows_scripts: bool = True
    kinds: tuple[str, ...] = ()
    """Of faults."""
    faults: int = 0
    passes: int = 0
    """How often time passes while something is under way."""
    slow: tuple[str, ...] = ()
    """The processes whose messages may be under way then; if empty, all."""
    slow_from: float = 0.0
    """Before this moment it does not."""
    most_states: int = 2_000_000

    def __str__(self) -> str:
        whose = f" of {', '.join(self.slow)}" if self.slow else ""
        slow = f"messages{whose} are slow {self.passes} ×" if self.passes else "no slow messages"
        faults = f"{self.faults} × {', '.join(self.kinds)}" if self.faults else "no faults"
        return f"{self.text}; {faults}; {slow}"

    def plan(self) -> Plan:
        names = tuple(dict.fromkeys(errand.actor.partition("/")[0] for errand in self.errands))
        return Plan(
            seed=0,
            items=self.errands,
            hosts=tuple(Host(name, 1000.0, 1.0 - RATE_PROMISED, name in self.sharing) for name in names),
            nodes=(Host("node", 2000.0, 1.0 + RATE_PROMISED, False),),
            names=tuple(dict.fromkeys(errand.name for errand in self.errands)),
            request_timeout=self.request_timeout,
            connect_patience=self.connect_patience,
            heals_at=0.0,
            closes_at_once=True,
            is_warm=self.knows_scripts,
            shares=tuple({each.name: each.share for each in self.errands if each.share is not None}.items()),
        )


class Small:
    """The model of a small world."""

    def __init__(self, bounds: Bounds) -> None:
        self.name = f"{bounds.name} ({bounds})"
        self.bounds = bounds
        self.plan = bounds.plan()
        self.parts = Parts(self.plan)

    def starts(self) -> Iterator[State]:
        bounds, places = self.bounds, range(len(self.plan.hosts))
        start = State(0.0, (0,) * len(places), self.parts.still.start, (), (), bounds.faults, bounds.passes, 0, None)
        draft = Draft(self.parts, start)
        for place in places:
            draft.tell(place, ("starts",))
        yield draft.state()

    def steps(self, state: State) -> Iterator[tuple[Any, State]]:
        if state.trouble is not None or self._is_end(state) or state.now > TOO_LONG:
            return
        yield from self._arrivals(state)
        yield from self._passing(state)
        if state.faults:
            for kind in self.bounds.kinds:
                for label in faults.KINDS[kind](self.parts, state):
                    yield label, self._after(state, label, faults=state.faults - 1)
        for place in state.paused:
            label = ("goes_on", place)
            yield label, self._after(state, label)

    def wrong(self, state: State) -> str | None:
        may_be_unreachable = state.faults < self.bounds.faults or state.passes < self.bounds.passes
        wrong = state.trouble or self.parts.told.wrong(state.history, may_be_unreachable)
        if wrong is not None:
            return wrong
        if self._is_end(state):
            return self._wrong_at_the_end(state, may_be_unreachable)
        if state.now > TOO_LONG:
            return "stuck: not everyone is done, and it is late"
        if _is_quiet(state) and self._next(state) == math.inf:
            return "stuck: not everyone is done, and nothing will happen any more"
        return None

    def tell(self, label: Any) -> str:
        kind, *what = label
        return TEXTS[kind].format(*[self._named(each) for each in what])

    def _named(self, each: Any) -> str:
        if isinstance(each, int):
            return self.plan.hosts[each].name
        if isinstance(each, tuple):
            return f"{self.plan.hosts[each[0]].name} {each[1]}"
        return f"{each:.6f}" if isinstance(each, float) else str(each)

    def _is_end(self, state: State) -> bool:
        return _is_quiet(state) and all(known.is_over or known.is_dead for known in self.parts.known(state))

    # What can happen --------------------------------------------------------------------------------------------------

    def _arrivals(self, state: State) -> Iterator[tuple[Any, State]]:
        for connection, there, back, _ in state.carried:
            if there:
                label: Any = ("arrives_there", connection, there[0])
                yield label, self._after(state, label)
            if back and connection[0] not in state.paused:
                label = ("arrives_back", connection, back[0])
                yield label, self._after(state, label)

    def _passing(self, state: State) -> Iterator[tuple[Any, State]]:
        is_free = _is_quiet(state)
        if not is_free and (not state.passes or self._is_fast(state)):
            return
        moment = self._next(state)
        if not is_free:
            moment = min(moment, self.parts.still.next_expiry(state.node, state.now))
        if moment < math.inf:
            label = ("passes", moment)
            yield label, self._after(state, label, passes=state.passes - (not is_free))

    def _is_fast(self, state: State) -> bool:
        """It is too early, or something that is not slow is under way."""
        hosts, slow = self.plan.hosts, self.bounds.slow
        if state.now < self.bounds.slow_from:
            return True
        if not slow:
            return False
        return any((there or back) and hosts[place].name not in slow for (place, _), there, back, _ in state.carried)

    def _next(self, state: State) -> float:
        """When something will happen by itself."""
        later = state.now + SAME_MOMENT
        return min((known.wakes_at for known in self.parts.known(state) if known.wakes_at > later), default=math.inf)

    def _after(self, state: State, label: Any, **left: int) -> State:
        draft = Draft(self.parts, state)
        getattr(draft, label[0])(*label[1:])
        return draft.state(**left)

    # The end ----------------------------------------------------------------------------------------------------------

    def _wrong_at_the_end(self, state: State, may_be_unreachable: bool) -> str | None:
        """Clients may be closed at once, or when they had the time to tidy up by themselves."""
        draft = Draft(self.parts, state)
        draft.wait(self._forgotten_within)
        waited = draft.state()
        for known in self.parts.known(waited):
            if known.owes and not known.is_dead:
                return f"left behind: ledger entry {known.owes[0]}"
        draft = Draft(self.parts, state)
        draft.close()
        return waited.trouble or self._wrong_when_closed(draft.state(), may_be_unreachable)

    @property
    def _forgotten_within(self) -> float:
        return rules.forgotten_at(0.0, self.plan.longest_ttl) * 1.1

    def _wrong_when_closed(self, closed: State, may_be_unreachable: bool) -> str | None:
        if closed.trouble is not None:
            return closed.trouble
        # Where messages are lost, the node may remember what nobody could take back, until it forgets that by itself.
        loses = not faults.LOSES_NOTHING.issuperset(self.bounds.kinds)
        moment = closed.now + (self._forgotten_within + LINE_MS / 1000 if loses else 0.0)
        left = [
            Event(moment, "node", ANY, "left", note=f"key {key!r}")
            for key in self.parts.still.keys(closed.node, moment)
        ]
        for host, known in zip(self.plan.hosts, self.parts.known(closed), strict=True):
            if not known.is_dead:
                left += [Event(moment, host.name, ANY, "left", note=note) for note in known.left]
        history = [*self.parts.told.events(closed.history), *left]
        return next((str(each) for each in violations(history, may_be_unreachable=may_be_unreachable)), None)


def _is_quiet(state: State) -> bool:
    return not state.paused and not any(there or back for _, there, back, _ in state.carried)


TEXTS = {
    "arrives_there": "the node gets, from {0}: {1}",
    "arrives_back": "{0} gets: {1}",
    "passes": "time passes, to {0}",
    "goes_on": "{0} goes on",
    "loses_there": "lost on its way from {0}, with all behind it: {1}",
    "loses_back": "lost on its way to {0}, with all behind it: {1}",
    "resets": "{0} is reset",
    "arrives_twice": "the node gets, from {0}, twice: {1}",
    "dies": "{0} dies",
    "vanishes": "{0} dies, with its machine",
    "stops": "{0} is paused",
    "cancels": "{0} is cancelled",
    "forgets_scripts": "the node forgets its scripts",
    "restarts": "the node restarts",
}
"""By what happens: a method of Draft."""
