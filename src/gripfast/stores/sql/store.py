"""Leases in a table: one row per name, kept after the release so that its token survives.

Each request is one committed transaction, by the engine's clock. Where a server can tell others of a release, the first
in line of each client has it told; elsewhere it asks again and again, at a pace that slows down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

from gripfast.core import rules
from gripfast.core.ports import Capabilities, Claim, Granted, Hold, LockInfo, Page, Taken, Unreachable, unreachable
from gripfast.errors import ConfigurationError, Reason, StoreUnavailable
from gripfast.stores.sql import asking, protocol
from gripfast.stores.sql.asking import CHUNK, Asking, Link, no_answer
from gripfast.stores.sql.line import Waiter
from gripfast.stores.sql.ports import TRANSIENT, Fault, Refusal, Rows
from gripfast.stores.sql.protocol import Held
from gripfast.stores.sql.statement import Ask

SLOW_PACE = 5.0
"""Seconds after which a waiter asks although nobody told it anything."""
WINDOW = 3 * SLOW_PACE
"""Seconds for which a name counts as waited for."""
POLL_FIRST, POLL_MOST = 0.02, 1.0
"""Seconds between two questions where releases are not told."""
HEARD_MOST = 100
"""Channels that are listened to although nobody waits."""
PAGE = 100
SEEN_TAKEN_MOST = 1000
"""Names of which it is known that they were another's."""
WAITS_MOST, WAIT_LOCKED = 3, 0.5
"""Rows that are waited for in one round of the watchdog, and seconds for each: it has others to look after."""
LOCKED: Final = "locked"
REASONS: dict[bytes, Reason] = {b"broken": "broken", b"taken": "taken"}


def capabilities(pushes: bool) -> Capabilities:
    return Capabilities(
        fair=False,
        push=pushes,
        session=False,
        durable_fence=True,
        lists=True,
        waiters_seen=False,
        processes=True,
        sees_death=False,
    )


class LeaseStore(Asking):
    mode = "lease"

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self.capabilities = capabilities(link.dialect.pushes)
        self._is_told = link.dialect.pushes
        """Of releases. Not through a proxy that hands sessions around."""
        self._seen_taken: dict[str, float] = {}
        """Until when names are another's, as far as is known: who asks for them again asks in nobody's way."""

    # -- claims --------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Granted | Taken | Unreachable:
        name = claim.name
        waiter: Waiter | None = None
        if claim.inbox is not None and not self._lines.goes_ahead(name, claim.owner):
            waiter = self._lines.join(name, claim.owner, claim.inbox)
            if waiter is None:
                return self._lines.behind(name, SLOW_PACE)
        try:
            answer = await self._claim(claim, name, waiter)
        except ConfigurationError:  # nothing is left there, so nobody will clean up
            self._lines.leave(name, claim.owner)
            self._link.claims.pop(claim.owner, None)
            raise
        if claim.inbox is not None:
            self._lines.asked(name, claim.owner, answer)
        elif isinstance(answer, Taken) and self._link.claims.get(claim.owner) == []:
            del self._link.claims[claim.owner]  # a plain no leaves nothing
        return answer

    async def _claim(self, claim: Claim, name: str, waiter: Waiter | None) -> Granted | Taken | Unreachable:
        while True:
            sent = self._link.now()
            answer = await self._ask(self._claiming(claim, name, sent), claim.owner)
            if isinstance(answer, Fault):
                return no_answer(answer)
            row = protocol.only(answer)
            if row is None:
                continue  # forgotten in the same moment
            self._note(name, found := protocol.read_held(row), claim.owner)
            held: Held | None = found
            if held is not None and held.owner == claim.owner:
                return Granted(held.token, claim.ttl, sent)
            if claim.inbox is not None and held is not None and not held.is_free:
                waiter = waiter or self._lines.join(name, claim.owner, claim.inbox, is_ahead=True)
                if waiter is None:
                    return self._lines.behind(name, SLOW_PACE)
                wait = await self._wait_for(name, waiter, held)
                if isinstance(wait, Fault):
                    return no_answer(wait._replace(was_sent=True))  # the claim itself has left, and stands in line
                held = wait
            if held is not None and not held.is_free:
                return self._taken(name, held, waiter)

    def _claiming(self, claim: Claim, name: str, now: float) -> list[Ask]:
        seems_taken = now < self._seen_taken.get(name, now)
        ttl_us = protocol.microseconds(claim.ttl)
        return self._scripts.claim(name, claim.owner, ttl_us, self._card(claim.label), seems_taken)

    def _note(self, name: str, held: Held, owner: str) -> None:
        if held.owner == owner or held.is_free:
            self._seen_taken.pop(name, None)
            return
        if len(self._seen_taken) >= SEEN_TAKEN_MOST:
            self._seen_taken.clear()
        self._seen_taken[name] = self._link.now() + held.expires_in

    async def _wait_for(self, name: str, waiter: Waiter, held: Held) -> Held | Fault | None:
        """Be told of the release, from now on: listened to first, so that none is missed."""
        waiter.tries += 1
        if self._is_told and (fault := await self._listen(name)) is not None:
            if fault.kind != "unfit":
                return fault
            self._is_told = False
        if not self._is_told:
            return held
        answer = await self._ask(self._scripts.register(name, protocol.microseconds(WINDOW)))
        if isinstance(answer, Fault):
            return answer
        row = protocol.only(answer)
        return None if row is None else protocol.read_held(row)

    async def _listen(self, name: str) -> Fault | None:
        """Channels stay, for the next time, while they are few."""
        channel = protocol.channel_of(name)
        if self._link.hears(channel):
            return None
        names = self._lines.names
        if len(names) >= HEARD_MOST:
            for other in [each for each, known in list(names.items()) if not self._lines.is_waited_for(known)]:
                self._link.stop_listening(other)
                names.pop(other, None)
        names[channel] = name
        return await self._link.listen(channel)

    def _taken(self, name: str, held: Held, waiter: Waiter | None) -> Taken:
        holder = protocol.lock_info(name, held)
        if waiter is None:
            return Taken(holder, held.token)
        pause = SLOW_PACE if self._is_told else poll_pause(waiter.tries)
        # Not all who wait for the same moment come at the same.
        pause = min(pause * (0.75 + self._link.chance() / 2), held.expires_in + 0.001 + 0.01 * self._link.chance())
        return Taken(holder, held.token, pause)

    # -- keeping -------------------------------------------------------------------------------------------------

    async def renew(self, holds: Sequence[Hold], within: float = math.inf) -> Sequence[Reason | Unreachable | None]:
        """A row that somebody has locked is waited for when all others are renewed: most who lock one do so for a
        moment, and those who come after them would be served before one who does not wait."""
        ends = self._link.now() + min(within, self._link.timeout)
        results = await self._renew_unlocked(holds, within)
        locked = [place for place, result in enumerate(results) if result == LOCKED]
        for place in self._few_of(locked):
            if (left := ends - self._link.now()) > 0.0:
                results[place] = await self._renew_locked(holds[place], min(left, WAIT_LOCKED))
        return [
            self._locked(hold.name) if result == LOCKED else result for hold, result in zip(holds, results, strict=True)
        ]

    async def _renew_unlocked(
        self, holds: Sequence[Hold], within: float
    ) -> list[Reason | Unreachable | Literal["locked"] | None]:
        results: list[Reason | Unreachable | Literal["locked"] | None] = []
        for start in range(0, len(holds), CHUNK):
            chunk = holds[start : start + CHUNK]
            answer = await self._ask_each([self._renewal(hold) for hold in chunk], within, is_urgent=True)
            if isinstance(answer, Fault):
                results += [unreachable(answer.error)] * len(chunk)
                continue
            missed = [hold for hold, rows in zip(chunk, answer, strict=True) if not rows.affected]
            reasons = iter(await self._whys(missed, within))
            results += [None if rows.affected else next(reasons) for rows in answer]
        return results

    def _few_of(self, locked: list[int]) -> list[int]:
        """Not the same ones each time."""
        first = int(self._link.chance() * len(locked))
        return [*locked[first:], *locked[:first]][:WAITS_MOST]

    async def _renew_locked(self, hold: Hold, within: float) -> Reason | Unreachable | Literal["locked"] | None:
        ttl_us, wait_us = protocol.microseconds(hold.ttl), _shortly_before(within)
        name = hold.name
        asks = self._scripts.renew_waiting(name, hold.owner, ttl_us, hold.shortens, wait_us)
        answer = await self._ask(asks, within=within, is_urgent=True)
        if isinstance(answer, Fault):
            return LOCKED if answer.kind == "busy" else unreachable(answer.error)
        return None if answer[-1].affected else (await self._whys([hold], within))[0]

    def _renewal(self, hold: Hold) -> list[Ask]:
        ttl_us = protocol.microseconds(hold.ttl)
        return self._scripts.renew(hold.name, hold.owner, ttl_us, hold.shortens)

    async def _whys(self, holds: Sequence[Hold], within: float) -> list[Reason | Unreachable | Literal["locked"]]:
        """Of those that were not renewed. It is still held if somebody else had the row locked."""
        if not holds:
            return []
        requests = [self._scripts.why(hold.name, hold.owner) for hold in holds]
        answer = await self._ask_each(requests, within, is_urgent=True)
        if isinstance(answer, Fault):
            return [unreachable(answer.error)] * len(holds)
        return [LOCKED if _reason(rows) == b"held" else REASONS.get(_reason(rows), "expired") for rows in answer]

    async def _why(self, hold: Hold) -> Reason:
        """That it is gone is known already; if nobody can tell why, it has run out."""
        answer = await self._ask(self._scripts.why(hold.name, hold.owner))
        return "expired" if isinstance(answer, Fault) else REASONS.get(_reason(answer[-1]), "expired")

    def _locked(self, name: str) -> Unreachable:
        text = f"another session has the row of {name!r} in gripfast_lock locked"
        where = self._link.dialect.where
        return unreachable(StoreUnavailable(f"{where}: {text}", {where: text}))

    # -- giving back ---------------------------------------------------------------------------------------------

    async def release(self, hold: Hold) -> Reason | Unreachable | None:
        name = hold.name
        trouble = await self._end_late([hold])
        answer = await self._link.ask(self._free(hold))
        was_lost = isinstance(answer, Fault)
        if isinstance(answer, Refusal) or (isinstance(answer, Fault) and answer.was_idle):
            answer = await self._ask(self._free(hold))
        if isinstance(answer, Fault):
            return unreachable(answer.error)
        if trouble is not None:
            return trouble
        self._link.claims.pop(hold.owner, None)
        row = protocol.only(answer)
        if not self._is_told:
            self._lines.wake(name)
        await self._sweep_now_and_then()
        if row is not None and protocol.flag(row[0]):
            return None
        # The first of two may have done it: then it is not this owner's any more.
        return None if was_lost else "expired" if row is not None else await self._why(hold)

    def _free(self, hold: Hold) -> list[Ask]:
        name = hold.name
        return self._scripts.release(name, hold.owner, protocol.channel_of(name))

    async def abandon(self, holds: Sequence[Hold]) -> Sequence[Unreachable | None]:
        """Who never got to ask has nothing there."""
        for hold in holds:
            self._lines.leave(hold.name, hold.owner)
        claims = self._link.claims
        asked = [hold for hold in holds if hold.owner in claims]
        await self._link.settle([hold.owner for hold in asked])
        late = await self._end_late(asked, rules.GIVE_BACK_WITHIN)
        found: dict[str, Unreachable | Literal["locked"]] = {}
        for start in range(0, len(asked), CHUNK):
            found |= await self._abandon(asked[start : start + CHUNK])
        troubles = await self._abandon_locked(asked, found)
        for hold in asked:
            if late is not None and claims.get(hold.owner):
                troubles[hold.owner] = late
            elif hold.owner not in troubles:
                claims.pop(hold.owner, None)
        return [troubles.get(hold.owner) for hold in holds]

    async def _abandon(self, holds: Sequence[Hold]) -> dict[str, Unreachable | Literal["locked"]]:
        """Who may still have something, and why. What is refused for one of several is found by halving them."""
        answer = await self._ask_each([self._abandoning(hold) for hold in holds], rules.GIVE_BACK_WITHIN)
        if not isinstance(answer, Fault):
            named = zip(holds, answer, strict=True)
            return {hold.owner: LOCKED for hold, rows in named if rows.rows}
        if len(holds) == 1 or answer.kind in TRANSIENT:
            return dict.fromkeys((hold.owner for hold in holds), unreachable(answer.error))
        middle = len(holds) // 2
        return await self._abandon(holds[:middle]) | await self._abandon(holds[middle:])

    async def _abandon_locked(
        self, holds: Sequence[Hold], found: dict[str, Unreachable | Literal["locked"]]
    ) -> dict[str, Unreachable]:
        """A few are waited for; the others come again in the next round."""
        troubles = {owner: trouble for owner, trouble in found.items() if trouble != LOCKED}
        locked = [hold for hold in holds if found.get(hold.owner) == LOCKED]
        troubles |= {hold.owner: self._locked(hold.name) for hold in locked}
        for place in self._few_of(list(range(len(locked)))):
            if await self._is_released(hold := locked[place]):
                del troubles[hold.owner]
        return troubles

    async def _is_released(self, hold: Hold) -> bool:
        name = hold.name
        wait_us = _shortly_before(WAIT_LOCKED)
        asks = self._scripts.release_waiting(name, hold.owner, protocol.channel_of(name), wait_us)
        return not isinstance(await self._ask(asks, within=WAIT_LOCKED), Fault)

    def _abandoning(self, hold: Hold) -> list[Ask]:
        name = hold.name
        return self._scripts.abandon(name, hold.owner, protocol.channel_of(name))

    async def _end_late(self, holds: Sequence[Hold], within: float = math.inf) -> Unreachable | None:
        """A claim that was not answered must not arrive after all: its session ends."""
        ends = self._link.now() + within
        for hold in holds:
            late = self._link.claims.get(hold.owner, [])
            while late:
                try:
                    session, birth = late.pop()
                except IndexError:  # it was answered meanwhile, to another thread
                    break
                left = max(0.0, ends - self._link.now())
                fault = await self._end_session(session, birth, left) if session else None
                if fault is not None:
                    late.append((session, birth))
                    return unreachable(fault.error)
        return None

    def forget(self, owner: str) -> None:
        self._link.claims.pop(owner, None)

    async def force_release(self, name: str) -> bool | Unreachable:
        """Not asked twice: if the first request did it, the second would free the next one's. So it looks first, which
        may be repeated and shows whether the connection still works."""
        looked = await self.inspect(name)
        if isinstance(looked, Unreachable):
            return looked
        answer = await self._ask(self._scripts.force_release(name, protocol.channel_of(name)), may_repeat=False)
        if isinstance(answer, Fault):
            return unreachable(answer.error)
        self._lines.wake(name)
        row = protocol.only(answer)
        return row is not None and protocol.flag(row[0])

    # -- looking -------------------------------------------------------------------------------------------------

    async def inspect(self, name: str) -> LockInfo | Unreachable | None:
        answer = await self._ask(self._scripts.look(name))
        if isinstance(answer, Fault):
            return unreachable(answer.error)
        row = protocol.only(answer)
        return None if row is None else protocol.lock_info(name, protocol.read_held(row))

    async def page(self, prefix: str, after: str | None) -> Page | Unreachable:
        answer = await self._ask(self._scripts.page(after or "", prefix, PAGE))
        if isinstance(answer, Fault):
            return unreachable(answer.error)
        rows = protocol.beginning_with(prefix, answer[-1].rows)
        named = [(protocol.text(row[0]), protocol.read_held(row[1:])) for row in rows]
        infos = [info for name, held in named if (info := protocol.lock_info(name, held)) is not None]
        return Page(infos, named[-1][0] if len(rows) == PAGE else None)

    def _sweeping(self) -> list[Ask]:
        return self._scripts.sweep(asking.SWEEP_MOST, rules.TOKEN_MEMORY_US)


def _shortly_before(seconds: float) -> int:
    """In microseconds: the server gives up first, and its session goes on."""
    return max(1, protocol.microseconds(0.8 * seconds))


def _reason(rows: Rows) -> bytes:
    return (rows.rows[0][0] or b"") if rows.rows else b""


def poll_pause(tries: int) -> float:
    return float(min(POLL_MOST, POLL_FIRST * 1.5 ** min(tries, 20)))
