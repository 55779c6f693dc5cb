"""What the lab needs of an engine. States are small, hashable and know no absolute time: only what is left of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, TypeAlias

from gripfast_lab.moves import Ask

State: TypeAlias = Any


class Answer(NamedTuple):
    state: State
    reply: Any
    takes: int = 0
    """Seconds."""
    unreached: tuple[str, ...] = ()
    """Nodes that it did not get to."""


class Happening(NamedTuple):
    """Something that an engine does, or that is done to it."""

    fault: str
    """Its kind; empty: nothing is wrong with that, it may happen at any time."""
    where: str
    text: str
    state: State
    brief: str = ""
    """A word or two for a picture."""
    source: str = ""
    """The node that it comes from."""


class Engine(Protocol):
    @property
    def nodes(self) -> tuple[str, ...]: ...

    def start(self) -> State: ...

    def asked(self, state: State, who: str, what: Ask) -> tuple[str, ...]:
        """Which nodes this goes to."""

    def ask(self, state: State, who: str, what: Ask, missing: str = "") -> Answer | None:
        """None: the engine makes it wait. `missing`: the node that the request, one to all, does not reach."""

    def passes(self, state: State, seconds: int, silent: frozenset[str]) -> State:
        """`silent`: clients that it hears nothing of."""

    def lapsed(self, before: State, after: State) -> str:
        """What ended because time passed, for a reader; empty: nothing."""

    def next(self, state: State, silent: frozenset[str]) -> int | None:
        """Seconds until something changes by itself."""

    def closed(self, state: State, who: str) -> State:
        """That client's connection is closed: it has died."""

    def happenings(self, state: State) -> Iterator[Happening]: ...
