"""What both runtimes make an Env of."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from gripfast.core.lease import LeaseState, Want
from gripfast.core.ledger import Ledger, Mark
from gripfast.core.ports import Env, Store, Taken, Unreachable
from gripfast.machine import boottime
from gripfast.runtime.here import remember

if TYPE_CHECKING:
    from gripfast.runtime.observers import Observers

LOOK_AT_LEAST = 1.0
"""The timers of the system stop while it is suspended, the boot clock does not: no wait is longer than this."""

LINGER_ROUNDS = 5
"""Rounds without anything to do before a watchdog sleeps until it is called: being called costs more than a look."""

EXIT_PATIENCE = 2.0
"""Seconds that closing a client, or the end of the interpreter, may take to give everything back."""


class Patience(NamedTuple):
    """How long a client waits for its engine."""

    request_timeout: float = 5.0
    connect_patience: float = 30.0


class OwnerIds:
    """128 random bits, new for every attempt; asked of the system many at a time. One per runtime, so none per fork."""

    def __init__(self) -> None:
        self._ready: list[str] = []

    def __call__(self) -> str:
        try:
            return self._ready.pop()
        except IndexError:
            drawn = os.urandom(16 * 64).hex()
        mine, *others = (drawn[start : start + 32] for start in range(0, len(drawn), 32))
        self._ready.extend(others)
        return mine


def make_env(
    store: Store,
    patience: Patience,
    drop: Callable[[Mark], None],
    pause: Callable[[float], Awaitable[None]],
    announce: Callable[[LeaseState], None],
    watch: Callable[[Want, Taken | Unreachable], Callable[[], None]],
    observers: Observers | None,
) -> Env:
    return Env(
        store=store,
        ledger=remember(Ledger(drop)),
        now=boottime,
        pause=pause,
        new_owner=OwnerIds(),
        announce=announce,
        request_timeout=patience.request_timeout,
        connect_patience=patience.connect_patience,
        watch=watch,
        observers=None if observers is None else observers.stories,
    )
