"""A release whose answer nobody waits for: `lock(…, lazy_release=True)`.

The lease is over, and `release()` returns, when the request has left. The reader of the answer calls the `LazyRelease`.
That is the next request on the same connection, the event loop, or the watchdog within a second. Until then the ledger
has the owner.

An answer that nobody can read any more (a lost connection, an interrupted reader) needs no code of its own. A
connection has the only reference to the `LazyRelease` of what it carries. When the connection drops it, the ledger's
mark is put on the queue of clean-ups, by the interpreter itself, as with every lease that dies (`core/ledger.py`).

No caller is left that could get LeaseLost if the lease was lost before. The log says it.
"""

from __future__ import annotations

import contextlib
import logging
from typing import cast

from gripfast.core import rules
from gripfast.core.lease import LeaseState
from gripfast.core.ports import Env, Hold, ReleasesLazily

_log = logging.getLogger("gripfast.lease")

_WAS_LOST = (
    "lease on %r was already lost when it was released: it had expired, or an operator or a restart of the store has "
    "ended it. Somebody else may have held the lock before the work was done. With lazy_release=True, release() does "
    "not raise LeaseLost for that: check the fencing token where you write, or leave lazy_release out"
)


class LazyRelease:
    """Call it with the answer: whether it was this owner's."""

    __slots__ = ("_env", "_heir")

    def __init__(self, env: Env, state: LeaseState) -> None:
        self._env = env
        self._heir = LeaseState(state.want, state.owner)
        self._heir.token = state.token
        env.ledger.inherit(state, self._heir)

    def __call__(self, was_held: bool) -> None:
        """From any thread. If somebody else cleans up meanwhile, what was not there says nothing."""
        heir, ledger = self._heir, self._env.ledger
        is_news = ledger.is_unread(heir.owner)
        ledger.confirm_gone(heir.owner)
        if is_news and not was_held:
            with contextlib.suppress(Exception):  # of a log handler: whoever reads has other things to do
                _log.warning(_WAS_LOST, heir.name, extra=heir.about("expired"))


async def release_lazily(env: Env, state: LeaseState, hold: Hold) -> None:
    await cast(ReleasesLazily, env.store).release_lazily(hold, LazyRelease(env, state))
    env.look_at(env.now() + rules.READ_LATE)
