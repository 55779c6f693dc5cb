"""Every state of a small world, instead of some of a large one.

A Model says where it can start, what can happen next in a state, and what is wrong with a state. The explorer goes
breadth first and takes equal states for one. So it ends if there are finitely many, and the first wrong state that it
meets lies at the end of a path than which none is shorter.

It is made for millions of states. One dict has them all, each with the place of the state it was first reached from:
dicts keep their order, so a place is enough to find a state again. What happened on a path is not kept; it is asked of
the model once more when there is a path to be told. States are best tuples of small things: hashing and comparing them
is most of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeVar

State = TypeVar("State", bound=Hashable)

MOST_STATES = 5_000_000


class Model(Protocol[State]):
    """A step's label is anything; `tell` makes a line for the reader out of it."""

    @property
    def name(self) -> str: ...

    def starts(self) -> Iterable[State]: ...

    def steps(self, state: State, /) -> Iterable[tuple[Any, State]]: ...

    def wrong(self, state: State, /) -> str | None: ...

    def tell(self, label: Any, /) -> str: ...


class Found(NamedTuple):
    """What is wrong, and a shortest way there."""

    what: str
    path: tuple[str, ...]
    trail: tuple[tuple[Any, Any], ...] = ()
    """The same for who wants to tell it otherwise: label and state after each step."""

    def __str__(self) -> str:
        steps = (f"{number:5}  {step}" for number, step in enumerate(self.path, 1))
        return "\n".join([f"wrong after {len(self.path)} steps: {self.what}", *steps])


@dataclass(frozen=True, slots=True)
class Report:
    name: str
    states: int
    transitions: int
    depth: int
    """Steps to the farthest state."""
    ended: bool
    """There are no other states, and none is wrong."""
    violations: Sequence[Found] = ()

    def __str__(self) -> str:
        if self.ended:
            end = "complete: no other states exist"
        else:
            end = "stopped at a violation" if self.violations else "not complete: there are more states"
        counts = f"{self.states:,} states, {self.transitions:,} transitions, {self.depth} steps deep at most"
        return "\n".join([f"{self.name}: {counts}; {end}", *(str(found) for found in self.violations)])


def explore(model: Model[State], most_states: int = MOST_STATES) -> Report:
    """All of it, or as far as the first state that is wrong, or about that many states."""
    search = _Search(model, most_states)
    level = search.begin()
    while level and not search.is_stopped:
        level = search.go_on(level)
    return search.report()


_NOWHERE = -1


class _Search:
    def __init__(self, model: Model[Any], most_states: int) -> None:
        self.is_stopped = False
        self._model = model
        self._most_states = most_states
        self._reached_from: dict[Any, int] = {}
        """The place of its predecessor. Their own places are the order in which they were met."""
        self._found: list[Found] = []
        self._expanded = 0
        self._transitions = 0
        self._depth = 0

    def begin(self) -> list[Any]:
        for state in self._model.starts():
            self._reached_from[state] = _NOWHERE
        for state in self._reached_from:
            self._judge(state)
        return list(self._reached_from)

    def go_on(self, level: list[Any]) -> list[Any]:
        """One step from each state of the last level: the next level."""
        new = self._new_after(level)
        self._depth += bool(new)
        return new

    def _new_after(self, level: list[Any]) -> list[Any]:
        steps, wrong, reached_from = self._model.steps, self._model.wrong, self._reached_from
        place, known = self._expanded, len(reached_from)
        new: list[Any] = []
        for state in level:
            for _, after in steps(state):
                self._transitions += 1
                reached_from.setdefault(after, place)
                if len(reached_from) > known:
                    known += 1
                    new.append(after)
                    if wrong(after) is not None:
                        self._judge(after)
                        return new
            place += 1
            if known >= self._most_states:
                self.is_stopped = True
                return new
        self._expanded = place
        return new

    def report(self) -> Report:
        states, is_all = len(self._reached_from), not self.is_stopped
        return Report(self._model.name, states, self._transitions, self._depth, is_all, self._found)

    def _judge(self, state: Any) -> None:
        what = self._model.wrong(state)
        if what is not None:
            trail = self._trail(state)
            self._found.append(Found(what, tuple(self._model.tell(label) for label, _ in trail), trail))
            self.is_stopped = True

    def _trail(self, state: Any) -> tuple[tuple[Any, Any], ...]:
        states = list(self._reached_from)
        trail: list[tuple[Any, Any]] = []
        place = self._reached_from[state]
        while place != _NOWHERE:
            before = states[place]
            label = next(label for label, after in self._model.steps(before) if after == state)
            trail.append((label, state))
            state, place = before, self._reached_from[before]
        return tuple(reversed(trail))


# What can be explored by name ---------------------------------------------------------------------------------------


def _explored(module: str, name: str) -> Report:
    """Imported only now: what it needs may not be installed."""
    report: Report = import_module(module).explored(name)
    return report


def _table(name: str) -> Explored:
    table: Explored = import_module("gripfast_lab.sim.failover.rules").EXPLORATIONS[name]()
    return table


def _in_two_sizes(module: str, *names: str) -> dict[str, Callable[[], Explored]]:
    larger = (f"{name}-large" for name in names)
    return {name: partial(_explored, module, name) for name in (*names, *larger)}


class Explored(Protocol):
    """What came of it: tells itself as text."""

    @property
    def states(self) -> int: ...

    @property
    def ended(self) -> bool: ...

    @property
    def violations(self) -> Sequence[object]: ...


EXPLORATIONS: dict[str, Callable[[], Explored]] = {
    **_in_two_sizes(
        "gripfast_lab.sim.small.worlds",
        "claims",
        "faults",
        "hand-off",
        "cancelled",
        "expiry",
        "paused",
        "queue",
        "permits",
        "readers",
    ),
    **_in_two_sizes("gripfast_lab.sim.fence", "fence", "fence-order", "fence-time"),
    **_in_two_sizes("gripfast_lab.sim.etcd.small", "etcd"),
    **{name: partial(_table, name) for name in ("failover", "failover-large")},
}
