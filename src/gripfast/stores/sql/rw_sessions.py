"""Read/write locks that live in sessions: what a client does about them besides what it does for locks (`sessions.py`).

Semaphores can't be kept so: no engine counts the holders of a row lock or an advisory lock.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from gripfast.core.ports import (
    RW_LIMIT,
    Claim,
    Hold,
    LockInfo,
    PermitHolder,
    PermitInfo,
    PermitPage,
    Share,
    Unreachable,
    unreachable,
)
from gripfast.errors import Reason
from gripfast.stores.sql import protocol
from gripfast.stores.sql.inspection import PAGE
from gripfast.stores.sql.permit_rows import read_infos
from gripfast.stores.sql.pool import Connection
from gripfast.stores.sql.ports import Fault
from gripfast.stores.sql.requests import Requests, Sweeps
from gripfast.stores.sql.rw_session import PATIENCE, Lowering, RWSession
from gripfast.stores.sql.session import Session


class _Caller:
    """Dies with the frame of a downgrade."""


class RWSessions:
    def __init__(self, requests: Requests, mode: str, sessions: Mapping[str, Session]) -> None:
        self._requests = requests
        self._link = requests.link
        self._mode = mode
        self._scripts = requests.link.dialect.rw_scripts()
        self._sessions = sessions
        self.sweeps = Sweeps(requests, functools.partial(self._scripts.sweep, mode))

    def new_session(self, claim: Claim, share: Share, connection: Connection) -> RWSession:
        return RWSession(self._requests, self._scripts, self._mode, claim.name, share, connection)

    async def first_holder(self, name: str) -> LockInfo | Unreachable | None:
        """The one whose time is over first, if nobody renews."""
        info = await self.inspect(name)
        if info is None or isinstance(info, Unreachable):
            return info
        first = min(info.holders, key=lambda each: each.expires_in)
        return _as_lock(name, first)

    async def downgrade(self, hold: Hold) -> Reason | Unreachable | None:
        session = self._sessions.get(hold.owner)
        if not isinstance(session, RWSession) or session.phase != "granted":
            return "session"
        caller, before = _Caller(), session.lowering
        session.lowering = mine = Lowering(caller)
        if not session.turn.take_now() and not await session.turn.take(PATIENCE):
            session.lowering, mine.is_done = before, True
            if before is None or not before.was_interrupted():
                return self._requests.refused("the last request of this session is not answered yet: try again")
            session.connection.cut()  # that one has kept the turn
            return "session"
        try:
            mine.has_begun = True
            await session.end_interrupted(before)
            fault = await session.lower(hold.ttl)
            mine.is_done = True
        finally:
            session.turn.leave()
        if fault is None:
            return None
        return unreachable(fault.error) if session.connection.is_open else "session"

    # -- inspection ----------------------------------------------------------------------------------------------

    async def inspect(self, name: str) -> PermitInfo | Unreachable | None:
        answer = await self._requests.run(self._scripts.inspect(self._mode, name, RW_LIMIT))
        if isinstance(answer, Fault):
            return unreachable(answer.error)
        infos = read_infos("rwlock", answer[-1].rows)
        return infos[0] if infos else None

    async def page(self, prefix: str, after: str | None) -> PermitPage | Unreachable:
        answer = await self._requests.run(self._scripts.page(self._mode, after or "", prefix, PAGE, RW_LIMIT))
        if isinstance(answer, Fault):
            return unreachable(answer.error)
        rows = protocol.beginning_with(prefix, answer[-1].rows)
        is_full = len({row[0] for row in rows}) == PAGE
        return PermitPage(read_infos("rwlock", rows), protocol.text(rows[-1][0]) if is_full else None)

    async def force_release(self, name: str, owner: str | None) -> bool | Unreachable:
        """Ends the sessions of those who have it, and waits until the engine has freed it."""
        found = await self.inspect(name)
        if found is None or isinstance(found, Unreachable):
            return False if found is None else found
        victims = {each.owner for each in found.holders if owner in (None, each.owner)}
        for victim in victims:
            answer = await self._requests.run(self._scripts.end_holder(self._mode, name, victim))
            if isinstance(answer, Fault):
                return unreachable(answer.error)
        return await self._freed_by(name, victims) if victims else False

    async def _freed_by(self, name: str, victims: set[str]) -> bool | Unreachable:
        """The server only passes on the order to end a session."""
        ends = self._link.now() + self._link.timeout
        while True:
            found = await self.inspect(name)
            if isinstance(found, Unreachable):
                return found
            if found is None or victims.isdisjoint(each.owner for each in found.holders):
                return True
            if self._link.now() > ends:
                words = f"the sessions of its holders were ended, but {name!r} is still held: try again"
                return self._requests.refused(words)


def _as_lock(name: str, holder: PermitHolder) -> LockInfo:
    return LockInfo(
        name,
        holder.owner,
        holder.token,
        holder.label,
        holder.host,
        holder.pid,
        holder.since,
        holder.expires_in,
        waiters=0,
    )
