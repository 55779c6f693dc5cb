"""Why a request has no answer that a store could use: one kind of fault, and one way to be down, for all engines.

A fault is an answer like any other: the store has to look at it. What it tells people names the server and says what
to do next; `kind` is for the store.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from gripfast.core.ports import Unreachable, to_raise, unreachable
from gripfast.errors import StoreUnavailable

Kind = Literal[
    "busy", "retry", "no_table", "no_rights", "read_only", "full", "gone", "broken_off", "login", "unfit",
    "unstorable", "other"
]  # fmt: skip
"""busy: another has it locked; retry: deadlock, or not serialisable; full: no connection left; gone: the session is;
broken_off: the statement is, and perhaps the session; unfit: this kind of server, or what stands before it, can't do
that; unstorable: a name or label that it has no characters for."""

PERMANENT: frozenset[str] = frozenset({"no_rights", "read_only", "login", "unfit", "unstorable"})
"""To retry will not help."""

TRANSIENT: frozenset[str] = frozenset({"down", "busy", "retry", "full", "gone", "broken_off"})
"""They have nothing to do with what was requested."""


class Fault(NamedTuple):
    error: StoreUnavailable
    kind: Kind | Literal["down"] = "down"
    was_idle: bool = False
    """The connection had worked before and was closed while it was idle: on a new one the request may be repeated."""
    was_sent: bool = True
    """False only if nothing of the request left this machine."""
    was_refused: bool = False
    """The connection was: nothing listens there."""

    @property
    def is_permanent(self) -> bool:
        return self.kind in PERMANENT

    def copy(self) -> Fault:
        """For another caller: both may raise it at the same time."""
        return self._replace(error=to_raise(self.error))


def may_take_effect(name: str) -> Unreachable:
    """To a clean-up that could not follow a claim."""
    return unreachable(StoreUnavailable(f"a request for {name!r} that got no answer may still take effect"))


class LinkDown(Exception):
    """There is no connection. However that came about: nothing was requested, so no outcome is unknown."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault.error))
        self.fault = fault._replace(error=StoreUnavailable(*fault.error.args), was_sent=False)
