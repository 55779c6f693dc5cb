"""What can go wrong in a small world: for each kind, all the ways in which it could happen now, as steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gripfast_lab.sim.small.messages import HANG_UP
from gripfast_lab.sim.small.state import Parts, State


def _lose(parts: Parts, state: State) -> Iterator[Any]:
    for connection, there, back, _ in state.carried:
        if there:
            yield "loses_there", connection, there[0]
        if back:
            yield "loses_back", connection, back[0]


def _reset(parts: Parts, state: State) -> Iterator[Any]:
    for place, known in enumerate(parts.known(state)):
        for connection in known.connections:
            yield "resets", (place, connection)


def _twice(parts: Parts, state: State) -> Iterator[Any]:
    for connection, there, _, _ in state.carried:
        if there and there[0] is not HANG_UP:
            yield "arrives_twice", connection, there[0]


def _living(parts: Parts, state: State) -> Iterator[int]:
    for place, known in enumerate(parts.known(state)):
        if not known.is_dead:
            yield place


def _kill(parts: Parts, state: State) -> Iterator[Any]:
    for place in _living(parts, state):
        yield "dies", place


def _vanish(parts: Parts, state: State) -> Iterator[Any]:
    for place in _living(parts, state):
        yield "vanishes", place


def _pause(parts: Parts, state: State) -> Iterator[Any]:
    for place in _living(parts, state):
        if place not in state.paused:
            yield "stops", place


def _cancel(parts: Parts, state: State) -> Iterator[Any]:
    for place, known in enumerate(parts.known(state)):
        if place not in state.paused:
            for actor in known.busy:
                yield "cancels", actor


def _forget(parts: Parts, state: State) -> Iterator[Any]:
    yield ("forgets_scripts",)


def _restart(parts: Parts, state: State) -> Iterator[Any]:
    yield ("restarts",)


KINDS: dict[str, Callable[[Parts, State], Iterator[Any]]] = {
    "lose": _lose,
    "reset": _reset,
    "twice": _twice,
    "kill": _kill,
    "vanish": _vanish,
    "pause": _pause,
    "cancel": _cancel,
    "forget": _forget,
    "restart": _restart,
}
LOSES_NOTHING = frozenset(("twice", "pause", "cancel", "forget"))
"""Every message arrives, sooner or later."""
