"""Which thread or task of this process has acquired a lease. Messages name it, and `locks()` refuses to acquire what
its caller has acquired before; nothing else is decided by it.

A lease notes who acquired it, weakly: a thread or task that has the lease in its frames must not be kept by it. Nobody
keeps a list of those who wait: who holds what is looked up, by owner id, when somebody has to be told.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import Any

from gripfast.core.lease import LeaseState
from gripfast.core.ledger import Ledger
from gripfast.core.ports import LockInfo
from gripfast.interrupts.living import Living


class _Me(threading.local):
    """The calling thread. An id of it would not do: when a thread ends, the next one gets its id."""

    def __init__(self) -> None:
        self.thread = weakref.ref(threading.current_thread())


me = _Me()

_ledgers: Living[Ledger] = Living()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ledgers.clear)  # what the parent holds, this process does not


def remember(ledger: Ledger) -> Ledger:
    """Of a client of this process."""
    _ledgers.add(ledger)
    return ledger


def lease_of(owner: str) -> LeaseState | None:
    """The lease, if it is one of this process."""
    return next((state for ledger in _ledgers if (state := ledger.lease(owner)) is not None), None)


def is_acquired_by(who: object, ledger: Ledger, key: str, holder: LockInfo | None) -> bool:
    """Whether this thread or task has acquired the lock itself. Not all stores name the holder: then it is looked for
    among the leases of the same client."""
    if holder is None:
        found = [state for state in ledger.leases() if state.key == key and state.want.share is None]
    else:
        found = [state] if (state := lease_of(holder.owner)) is not None else []
    acquirers = [state.acquirer() for state in found if state.acquirer is not None]
    return who is not None and any(each is who for each in acquirers)


def in_this_process(holder: LockInfo | None, is_reentrant: bool | None = None) -> str:
    """How a message calls the holder; empty if it is not known to be in this process. `is_reentrant`: the lock that was
    not acquired; None if that makes no difference to it."""
    state = None if holder is None else lease_of(holder.owner)
    if state is None:
        return ""
    who = None if state.acquirer is None else state.acquirer()
    if who is None:
        return "this process"
    is_caller = who is threading.current_thread() or who is task_here()
    hint = _how_to_reenter(is_reentrant, who) if is_caller else ""
    return f"this process ({described(who)}{hint})"


def _how_to_reenter(is_reentrant: bool | None, who: object) -> str:
    if is_reentrant is None:
        return ""
    if not is_reentrant:
        return ": use one client and reentrant=True to acquire it twice"
    if isinstance(who, threading.Thread) and has_running_loop():
        return ""  # another task of this thread may have it: that lets nobody in
    return ": use one client, and reentrant=True both times"


def has_running_loop() -> bool:
    """In this thread. Whoever runs a loop has loaded asyncio."""
    events = sys.modules.get("asyncio.events")
    return events is not None and events._get_running_loop() is not None


def task_here() -> object | None:
    """The task that runs in this thread."""
    task: object | None = sys.modules["asyncio"].current_task() if has_running_loop() else None
    return task


def described(who: Any) -> str:
    """A thread or task by its name."""
    if isinstance(who, threading.Thread):
        return f"thread {who.name!r}{'' if who.is_alive() else ', which has ended'}"
    return f"task {who.get_name()!r}{', which has ended' if who.done() else ''}"
