"""What can be seen of locks that live in sessions, and done about them from outside.

Each request asks the engine, in the same statement, who holds the lock now. The last grant that was written down may be
over, and its session's number may be another session's by now.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from gripfast.core.ports import LockInfo, Page, Unreachable, unreachable
from gripfast.stores.sql import protocol
from gripfast.stores.sql.ports import Fault
from gripfast.stores.sql.requests import Requests, holder_details
from gripfast.stores.sql.statement import Value

PAGE = 100

_BY_WHAT = "Probably by a prepared transaction: find it with XA RECOVER, and end it with XA ROLLBACK or XA COMMIT"


class Stamp(NamedTuple):
    """Of a lock that a caller's own transaction has."""

    token: int
    shown: int
    """What the transaction has to see."""


class Inspection:
    def __init__(self, requests: Requests, mode: str) -> None:
        self._requests = requests
        self._link = requests.link
        self._scripts = requests.scripts
        self._mode = mode

    async def inspect(self, name: str) -> LockInfo | Unreachable | None:
        seen = await self._seen(name)
        if seen is None or isinstance(seen, Unreachable):
            return seen
        return protocol.lock_info(name, seen[0])

    async def _seen(self, name: str) -> tuple[protocol.Held, int] | Unreachable | None:
        """Who has it, in which session."""
        answer = await self._requests.run(self._scripts.seen(self._mode, name))
        if isinstance(answer, Fault):
            return unreachable(answer.error)
        row = protocol.only(answer)
        if row is None:
            return None
        held, session, is_held = protocol.read_seen(row)
        return (held, session) if is_held else None

    async def page(self, prefix: str, after: str | None) -> Page | Unreachable:
        answer = await self._requests.run(self._scripts.seen_page(self._mode, after or "", prefix, PAGE))
        if isinstance(answer, Fault):
            return unreachable(answer.error)
        rows = protocol.beginning_with(prefix, answer[-1].rows)
        infos: list[LockInfo] = []
        for row in rows:
            held, _, is_held = protocol.read_seen(row[1:])
            info = protocol.lock_info(protocol.text(row[0]), held)
            if is_held and info is not None:
                infos.append(info)
        return Page(infos, protocol.text(rows[-1][0]) if len(rows) == PAGE else None)

    async def force_release(self, name: str) -> bool | Unreachable:
        """Ends the session that has it, and waits until the engine has freed it."""
        seen = await self._seen(name)
        if isinstance(seen, Unreachable) or seen is None:
            return False if seen is None else seen
        held, session = seen
        answer = await self._requests.run(self._scripts.end_holder(self._mode, name, held.owner or ""))
        if isinstance(answer, Fault):
            return unreachable(answer.error)
        row = protocol.only(answer)
        if row is not None and row[0] is not None:
            return self._requests.refused(f"{name!r} {_prepared(protocol.text(row[0]))}")
        return await self._freed_by(name, held, session)

    async def _freed_by(self, name: str, held: protocol.Held, session: int) -> bool | Unreachable:
        """The server only passes on the order to end the session."""
        ends = self._link.now() + self._link.timeout
        while True:
            seen = await self._seen(name)
            if isinstance(seen, Unreachable):
                return seen
            if seen is None or seen[0].owner != held.owner:
                return True
            if self._link.now() > ends:
                by_what = f". {_BY_WHAT}" if self._link.dialect.name == "mysql" else ": try again"
                return self._requests.refused(f"session {session} was ended, but {name!r} is still held{by_what}")

    # -- for locks inside a caller's own transaction --------------------------------------------------------------

    async def prepare(self, name: str) -> Unreachable | None:
        """There is a row to lock, committed. It is looked for first: where statements are replicated, to make it would
        be to wait for whoever has it locked."""
        answer = await self._requests.run(self._scripts.row_exists(name))
        if not isinstance(answer, Fault) and not answer[-1].rows:
            answer = await self._requests.run(self._scripts.row_make(name))
        return unreachable(answer.error) if isinstance(answer, Fault) else None

    async def stamp(self, name: str, owner: str, label: str | None, session: int, mark: Value) -> Stamp | Unreachable:
        """The next token, committed, for what somebody else's session has locked."""
        details = holder_details(label, os.getpid())
        answer = await self._requests.run(self._scripts.grant_within(self._mode, name, owner, session, mark, details))
        if isinstance(answer, Fault):
            return unreachable(answer.error)
        token, shown = answer[-1].rows[0]
        return Stamp(protocol.number(token), protocol.number(shown))

    def advisory_key(self, name: str) -> int | str:
        return self._scripts.advisory_key(self._link.dialect.database, name)


def _prepared(gid: str) -> str:
    quoted = gid.replace("'", "''")
    return (
        "is held by a prepared transaction, which has no session to end. Run "
        f"COMMIT PREPARED '{quoted}' or ROLLBACK PREPARED '{quoted}' to release it"
    )
