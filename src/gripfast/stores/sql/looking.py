"""What can be seen of locks that live in sessions, and done about them from outside."""

from __future__ import annotations

from gripfast.core.ports import Claim, LockInfo, Page, Unreachable, unreachable
from gripfast.stores.sql import protocol
from gripfast.stores.sql.asking import Asking, Link
from gripfast.stores.sql.ports import Fault
from gripfast.stores.sql.statement import Ask, Value
from gripfast.stores.sql.store import PAGE


class Looking(Asking):
    def __init__(self, link: Link, prefix: str, mode: str) -> None:
        super().__init__(link, prefix)
        self.mode = mode

    async def inspect(self, name: str) -> LockInfo | Unreachable | None:
        seen = await self._seen(name)
        if seen is None or isinstance(seen, Unreachable):
            return seen
        return protocol.lock_info(name, seen[0])

    async def _seen(self, name: str) -> tuple[protocol.Held, int] | Unreachable | None:
        """Who has it, in which session."""
        answer = await self._ask(self._scripts.seen(self.mode, self._prefix + name))
        if isinstance(answer, Fault):
            return unreachable(answer.error)
        row = protocol.only(answer)
        if row is None:
            return None
        held, session, is_held = protocol.read_seen(row)
        return (held, session) if is_held else None

    async def page(self, prefix: str, after: str | None) -> Page | Unreachable:
        asks = self._scripts.seen_page(self.mode, self._prefix + (after or ""), self._prefix + prefix, PAGE)
        answer = await self._ask(asks)
        if isinstance(answer, Fault):
            return unreachable(answer.error)
        rows = answer[-1].rows
        infos: list[LockInfo] = []
        for row in rows:
            held, _, is_held = protocol.read_seen(row[1:])
            info = protocol.lock_info(protocol.text(row[0]).removeprefix(self._prefix), held)
            if is_held and info is not None:
                infos.append(info)
        last = protocol.text(rows[-1][0]).removeprefix(self._prefix) if len(rows) == PAGE else None
        return Page(infos, last)

    async def force_release(self, name: str) -> bool | Unreachable:
        """Ends the session that has it, and waits until the engine has freed it."""
        seen = await self._seen(name)
        if isinstance(seen, Unreachable) or seen is None:
            return False if seen is None else seen
        _, session = seen
        fault = await self._end_session(session)
        return True if fault is None else unreachable(fault.error)

    # -- for locks inside a caller's own transaction --------------------------------------------------------------

    async def prepare(self, name: str) -> Unreachable | None:
        """There is a row to lock, committed."""
        answer = await self._ask(self._scripts.row_make(self._prefix + name))
        return unreachable(answer.error) if isinstance(answer, Fault) else None

    async def stamp(self, name: str, owner: str, label: str | None, session: int, mark: Value) -> int | Unreachable:
        """The next token, committed, for what somebody else's session has locked."""
        claim = Claim(name, owner, 0.0, label, None)
        answer = await self._ask(self._grant(self._prefix + name, claim, session, mark))
        return unreachable(answer.error) if isinstance(answer, Fault) else protocol.number(answer[-1].rows[0][0])

    def advisory_key(self, name: str) -> Value:
        return self._scripts.advisory_key(self._link.dialect.database, self._prefix + name)

    def _grant(self, name: str, claim: Claim, session: int, mark: Value) -> list[Ask]:
        ttl_us = protocol.microseconds(claim.ttl)
        return self._scripts.grant(self.mode, name, claim.owner, session, mark, ttl_us, self._card(claim.label))
