"""Leases in a table: one row per name, kept after the release so that its token survives.

Each request is one committed transaction, by the engine's clock. Where a server can notify others of a release, the
first waiter of each client is notified; elsewhere it claims again and again, at a pace that slows down.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal

from gripfast.core import rules
from gripfast.core.kept import kept
from gripfast.core.ports import (
    Broken,
    Capabilities,
    Claim,
    Granted,
    Hold,
    Inbox,
    Keep,
    Kind,
    LockInfo,
    Loss,
    Page,
    PermitInfo,
    PermitPage,
    Store,
    Taken,
    Unreachable,
    unreachable,
)
from gripfast.errors import ConfigurationError, Reason
from gripfast.stores.sql import protocol
from gripfast.stores.sql.inspection import PAGE
from gripfast.stores.sql.link import Link
from gripfast.stores.sql.ports import TRANSIENT, Fault, Rows
from gripfast.stores.sql.protocol import Held
from gripfast.stores.sql.queues import Waiter
from gripfast.stores.sql.requests import CHUNK, Requests, Sweeps, holder_details, no_answer

if TYPE_CHECKING:
    from gripfast.stores.sql.permits import Permits

SLOW_PACE = 5.0
"""Seconds after which a waiter claims although it was not notified."""
WINDOW = 3 * SLOW_PACE
"""Seconds for which a name counts as waited for."""
POLL_FIRST, POLL_MOST = 0.02, 1.0
"""Seconds between two claims where releases are not notified."""
CHANNELS_MOST = 100
"""Channels that are listened to although nobody waits."""
SEEN_TAKEN_MOST = 1000
"""Names of which it is known that they were another's."""
WAITS_MOST, WAIT_LOCKED = 3, 0.5
"""Rows that are waited for in one round of the watchdog, and seconds for each: it has others to look after."""
LOCKED: Final = "locked"
REASONS: dict[bytes, Reason] = {b"broken": "broken", b"taken": "taken"}

Renewed = Loss | Unreachable | Literal["locked"] | None


def capabilities(pushes: bool) -> Capabilities:
    return Capabilities(
        push=pushes,
        durable_fence=True,
        lists=True,
        processes=True,
        tells_reason=True,
        keeps=True,
        once=True,
        hands_over=True,
        semaphores=True,
        rwlocks=True,
        downgrades=True,
    )


class LeaseStore(Store):
    mode = "lease"
    inbox: Callable[[], Inbox]  # the driver's own class: on the way of every acquire

    def __init__(self, link: Link) -> None:
        self.capabilities = capabilities(link.dialect.pushes)
        self.engine = link.dialect.name
        self.inbox = link.new_inbox
        self._link = link
        self._queues = link.queues
        self._claims = link.claims
        self._scripts = link.dialect.scripts
        self._requests = Requests(link)
        self._sweeps = Sweeps(self._requests, self._scripts.sweep)
        self._is_notified = link.dialect.pushes
        """Of releases. Not through a proxy that hands sessions around."""
        self._seen_taken: dict[str, float] = {}
        """Until when names are another's, as far as is known: a claim for one looks first, and locks nothing."""
        self._permits: Permits | None = None

    def permits(self) -> Permits:
        """Made when they are first used."""
        if self._permits is None:
            from gripfast.stores.sql.permits import Permits

            self._permits = Permits(self._requests)
        return self._permits

    # -- claims --------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Granted | Taken | Unreachable:
        if claim.share is not None:
            return await self.permits().claim(claim, claim.share)
        name, owner, queues = claim.name, claim.owner, self._queues
        waiter: Waiter | None = None
        # Here and below, what goes_ahead() and leave() do where nobody waits: this is on the way of every acquire.
        if claim.inbox is not None and (name in queues or queues.ahead.setdefault(name, owner) != owner):
            waiter = queues.join(name, owner, claim.inbox)
            if waiter is None:
                return queues.behind(name, SLOW_PACE)
        try:
            answer = await self._claim(claim, waiter)
        except ConfigurationError:  # nothing is left there, so nobody will clean up
            queues.leave(name, owner)
            self._claims.pop(owner, None)
            raise
        if claim.inbox is None:
            if isinstance(answer, Taken):
                self._claims.was_refused(owner)
        elif isinstance(answer, Granted):
            if name not in queues and waiter is None:
                queues.ahead.pop(name, None)
            else:
                queues.leave(name, owner)
        else:
            queues.answered(name, owner, answer)
        return answer

    async def _claim(self, claim: Claim, waiter: Waiter | None) -> Granted | Taken | Unreachable:
        name, owner, link = claim.name, claim.owner, self._link
        while True:
            sent = link.now()
            details = holder_details(claim.told, os.getpid())
            scripts, seems_taken = self._scripts, sent < self._seen_taken.get(name, sent)
            script = scripts.claim_taken if seems_taken else scripts.claim
            queries = script(name, owner, round(claim.ttl * 1_000_000), details)
            answer = await link.request(queries, owner)
            if not isinstance(answer, list):
                answer = await self._requests.recover(answer, queries, sent + link.timeout, owner)
            if isinstance(answer, Fault):
                return no_answer(answer)
            rows = answer[-1].rows
            if not rows:
                continue  # forgotten in the same moment
            holder, token, *_ = rows[0]
            if holder is not None and holder.decode() == owner:
                self._seen_taken.pop(name, None)
                if len(claims := self._claims.get(owner, [])) == 1:
                    claims.clear()  # there was no other, and this one is answered
                return Granted(int(token or 0), claim.ttl, sent)
            held: Held | None = self._note(name, protocol.read_held(rows[0]))
            if claim.inbox is not None and held is not None:
                waiter = waiter or self._queues.join(name, owner, claim.inbox, is_ahead=True)
                if waiter is None:
                    return self._queues.behind(name, SLOW_PACE)
                wait = await self._wait_for(name, waiter, held)
                if isinstance(wait, Fault):
                    return no_answer(wait._replace(was_sent=True))  # the claim itself has left
                held = wait
            if held is not None and not held.is_free:
                return self._taken(name, held, waiter)

    def _note(self, name: str, held: Held) -> Held | None:
        """None if nobody has it."""
        if held.is_free:
            self._seen_taken.pop(name, None)
            return None
        if len(self._seen_taken) >= SEEN_TAKEN_MOST:
            self._seen_taken.clear()
        self._seen_taken[name] = self._link.now() + held.expires_in
        return held

    async def _wait_for(self, name: str, waiter: Waiter, held: Held) -> Held | Fault | None:
        """Be notified of the release, from now on: listened to first, so that none is missed."""
        waiter.tries += 1
        if self._is_notified and (fault := await self._listen(name)) is not None:
            if fault.kind != "unfit":
                return fault
            self._is_notified = False
        if not self._is_notified:
            return held
        answer = await self._requests.run(self._scripts.register(name, protocol.microseconds(WINDOW)))
        if isinstance(answer, Fault):
            return answer
        row = protocol.only(answer)
        return None if row is None else protocol.read_held(row)

    async def _listen(self, name: str) -> Fault | None:
        """Channels stay, for the next time, while they are few."""
        channel, listener = protocol.channel_of(name), self._link.listener
        if listener.listens_to(channel):
            return None
        names = self._queues.names
        if len(names) >= CHANNELS_MOST:
            for other in [each for each, known in names.copy().items() if known not in self._queues]:
                listener.unlisten(other)
                names.pop(other, None)
        names[channel] = name
        return await listener.listen(channel)

    def _taken(self, name: str, held: Held, waiter: Waiter | None) -> Taken:
        holder = protocol.lock_info(name, held)
        if waiter is None:
            return Taken(holder, held.token)
        pause = SLOW_PACE if self._is_notified else poll_pause(waiter.tries)
        # Not all who wait for the same moment come at the same.
        pause = min(pause * (0.75 + self._link.chance() / 2), held.expires_in + 0.001 + 0.01 * self._link.chance())
        return Taken(holder, held.token, pause)

    # -- keeping -------------------------------------------------------------------------------------------------

    async def renew(self, holds: Sequence[Hold], within: float = math.inf) -> Sequence[Loss | Unreachable | None]:
        """A row that somebody has locked is waited for when all others are renewed: most who lock one do so for a
        moment, and those who come after them would be served before one who does not wait."""
        ends = self._link.now() + min(within, self._link.timeout)
        results: list[Renewed] = []
        for start in range(0, len(holds), CHUNK):
            results += await self._renew_unlocked(holds[start : start + CHUNK], within)
        for place in self._few_of([place for place, result in enumerate(results) if result == LOCKED]):
            if (left := ends - self._link.now()) > 0.0:
                results[place] = await self._renew_locked(holds[place], min(left, WAIT_LOCKED))
        return [self._locked(hold) if result == LOCKED else result for hold, result in zip(holds, results, strict=True)]

    async def _renew_unlocked(self, holds: Sequence[Hold], within: float) -> Sequence[Renewed]:
        renewals = [
            self._scripts.renew(hold.name, hold.owner, protocol.microseconds(hold.ttl), hold.shortens)
            if hold.share is None
            else self.permits().renewal(hold, hold.share.kind)
            for hold in holds
        ]
        answer = await self._requests.run_each(renewals, within, is_urgent=True)
        if isinstance(answer, Fault):
            return [unreachable(answer.error)] * len(holds)
        missed = [hold for hold, rows in zip(holds, answer, strict=True) if not rows.affected]
        reasons = iter(await self._whys(missed, within))
        return [None if rows.affected else next(reasons) for rows in answer]

    def _few_of(self, locked: list[int]) -> list[int]:
        """Not the same ones each time."""
        first = int(self._link.chance() * len(locked))
        return [*locked[first:], *locked[:first]][:WAITS_MOST]

    async def _renew_locked(self, hold: Hold, within: float) -> Renewed:
        ttl_us, wait_us = protocol.microseconds(hold.ttl), _shortly_before(within)
        if hold.share is None:
            queries = self._scripts.renew_waiting(hold.name, hold.owner, ttl_us, hold.shortens, wait_us)
        else:
            queries = self.permits().renewal_waiting(hold, hold.share.kind, wait_us)
        answer = await self._requests.run(queries, within=within, is_urgent=True)
        if isinstance(answer, Fault):
            return LOCKED if answer.kind == "busy" else unreachable(answer.error)
        return None if answer[-1].affected else (await self._whys([hold], within))[0]

    async def _whys(self, holds: Sequence[Hold], within: float) -> list[Loss | Unreachable | Literal["locked"]]:
        """Of those that were not renewed. It is still held if somebody else had the row locked."""
        if not holds:
            return []
        requests = [
            self._scripts.why(hold.name, hold.owner)
            if hold.share is None
            else self.permits().scripts.why(hold.share.kind, hold.name, hold.owner)
            for hold in holds
        ]
        answer = await self._requests.run_each(requests, within, is_urgent=True)
        if isinstance(answer, Fault):
            return [unreachable(answer.error)] * len(holds)
        return [LOCKED if _columns(rows)[0] == b"held" else _loss(rows) for rows in answer]

    async def _why(self, hold: Hold) -> Loss:
        """That it is gone is known already; if nobody can tell why, it has run out."""
        answer = await self._requests.run(self._scripts.why(hold.name, hold.owner))
        return "expired" if isinstance(answer, Fault) else _loss(answer[-1])

    def _locked(self, hold: Hold) -> Unreachable:
        table = "gripfast_lock" if hold.share is None else "gripfast_permit_holder"
        text = f"another session has locked the row of {hold.name!r} in {table}: end its transaction, or the session"
        return self._requests.refused(text)

    # -- releasing -----------------------------------------------------------------------------------------------

    async def release(self, hold: Hold) -> Loss | Unreachable | None:
        if hold.keep is not None:
            return await self._keep(hold, hold.keep)
        if hold.share is not None:
            return await self.permits().release(hold, hold.share.kind)
        name, owner, link, sweeps = hold.name, hold.owner, self._link, self._sweeps
        trouble = await self._requests.end_unanswered([hold]) if self._claims.get(owner) else None
        started = link.now()
        queries = self._scripts.release(name, owner, protocol.channel_of(name))
        answer = await link.request(queries)
        was_lost = isinstance(answer, Fault)
        if not isinstance(answer, list):
            answer = await self._requests.recover(answer, queries, started + link.timeout)
        if isinstance(answer, Fault):
            return unreachable(answer.error)
        if trouble is not None:
            return trouble
        self._claims.pop(owner, None)
        if not self._is_notified:
            self._queues.wake(name)
        sweeps.releases_left -= 1
        if sweeps.releases_left == 0 or started >= sweeps.due_at:
            await sweeps.run()
        rows = answer[-1].rows
        if rows and rows[0][0] == b"1":
            return None
        # The first of two may have done it: then it is not this owner's any more.
        return None if was_lost else "expired" if rows else await self._why(hold)

    async def _keep(self, hold: Hold, keep: Keep, within: float = math.inf) -> Loss | Unreachable | None:
        """Before the session of an unanswered claim is ended: that would be in vain if the lock is not left to the
        marker first."""
        queries = self._scripts.keep(hold.name, hold.owner, keep.owner, protocol.microseconds(keep.seconds))
        until = self._link.now() + min(self._link.timeout, within)
        answer = first = await self._link.request(queries, until=until)
        if not isinstance(answer, list):
            answer = await self._requests.recover(answer, queries, until)
        if isinstance(answer, Fault):
            return unreachable(answer.error)
        trouble = await self._requests.end_unanswered([hold], within)
        if trouble is not None:
            return trouble
        self._claims.pop(hold.owner, None)
        # The first of two may have done it, and the rest of a min_hold may be over since. A "done" lasts longer.
        was_released = isinstance(first, Fault) and kept(keep.owner) == "min_hold"
        return None if answer[-1].rows or was_released else await self._why(hold)

    async def adopt(self, hold: Hold, claim: Claim) -> Granted | Loss | Unreachable:
        """Noted like a claim: it may take effect although nobody has read its answer."""
        link, owner, sent = self._link, claim.owner, self._link.now()
        details = holder_details(claim.told, os.getpid())
        queries = self._scripts.adopt(hold.name, hold.owner, owner, protocol.microseconds(claim.ttl), details)
        answer = await link.request(queries, owner)
        if not isinstance(answer, list):
            answer = await self._requests.recover(answer, queries, sent + link.timeout, owner)
        if isinstance(answer, Fault):
            return no_answer(answer)
        row = protocol.only(answer)
        if row is not None:
            return Granted(protocol.number(row[0]), claim.ttl, sent)
        self._claims.was_refused(owner)
        return await self._why(hold)

    async def detach(self, hold: Hold, token: int) -> Loss | Unreachable | None:
        late = await self._requests.end_unanswered([hold])
        if late is None:
            self._claims.pop(hold.owner, None)
        return late

    async def abandon(self, holds: Sequence[Hold]) -> Sequence[Unreachable | None]:
        for hold in holds:
            self._queues.leave(hold.name, hold.owner)
        claims = self._claims
        claimed = [hold for hold in holds if hold.owner in claims]
        await self._link.await_claims([hold.owner for hold in claimed])
        found: dict[str, Unreachable | Literal["locked"]] = {}
        for hold, keep in [(hold, hold.keep) for hold in claimed if hold.keep is not None]:
            if isinstance(trouble := await self._keep(hold, keep, rules.GIVE_BACK_WITHIN), Unreachable):
                found[hold.owner] = trouble
        claimed = [hold for hold in claimed if hold.keep is None]
        late = await self._requests.end_unanswered(claimed, rules.GIVE_BACK_WITHIN)
        locks = [hold for hold in claimed if hold.share is None]
        for start in range(0, len(locks), CHUNK):
            found |= await self._abandon(locks[start : start + CHUNK])
        troubles = await self._abandon_locked(locks, found)
        if shared := [(hold, hold.share.kind) for hold in claimed if hold.share is not None]:
            troubles |= await self.permits().abandon(shared)
        for hold in claimed:
            if late is not None and claims.has_unanswered(hold.owner):
                troubles[hold.owner] = late
            elif hold.owner not in troubles and not claims.has_unanswered(hold.owner):  # it may claim again meanwhile
                claims.pop(hold.owner, None)
        return [troubles.get(hold.owner) for hold in holds]

    async def _abandon(self, holds: Sequence[Hold]) -> dict[str, Unreachable | Literal["locked"]]:
        """Who may still have something, and why. What is refused for one of several is found by halving them."""
        requests = [self._scripts.abandon(hold.name, hold.owner, protocol.channel_of(hold.name)) for hold in holds]
        answer = await self._requests.run_each(requests, rules.GIVE_BACK_WITHIN)
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
        troubles |= {hold.owner: self._locked(hold) for hold in locked}
        for place in self._few_of(list(range(len(locked)))):
            if await self._is_released(hold := locked[place]):
                del troubles[hold.owner]
        return troubles

    async def _is_released(self, hold: Hold) -> bool:
        channel, wait_us = protocol.channel_of(hold.name), _shortly_before(WAIT_LOCKED)
        queries = self._scripts.release_waiting(hold.name, hold.owner, channel, wait_us)
        return not isinstance(await self._requests.run(queries, within=WAIT_LOCKED), Fault)

    def forget(self, owner: str) -> None:
        self._claims.pop(owner, None)

    async def force_release(self, name: str, note: str | None = None) -> bool | Unreachable:
        """Not repeated: if the first request did it, the second would free the next holder's. So it looks first, which
        may be repeated and shows whether the connection still works."""
        looked = await self.inspect(name)
        if isinstance(looked, Unreachable):
            return looked
        scripts, channel = self._scripts, protocol.channel_of(name)
        if note is None:
            queries = scripts.force_release(name, channel)
        else:
            queries = scripts.force_release_noted(name, channel, protocol.write_note(note))
        answer = await self._requests.run(queries, is_repeatable=False)
        if isinstance(answer, Fault):
            return unreachable(answer.error)
        self._queues.wake(name)
        row = protocol.only(answer)
        return row is not None and protocol.flag(row[0])

    # -- inspection ----------------------------------------------------------------------------------------------

    async def inspect(self, name: str) -> LockInfo | Unreachable | None:
        answer = await self._requests.run(self._scripts.look(name))
        if isinstance(answer, Fault):
            return unreachable(answer.error)
        row = protocol.only(answer)
        return None if row is None else protocol.lock_info(name, protocol.read_held(row))

    async def page(self, prefix: str, after: str | None) -> Page | Unreachable:
        answer = await self._requests.run(self._scripts.page(after or "", prefix, PAGE))
        if isinstance(answer, Fault):
            return unreachable(answer.error)
        rows = protocol.beginning_with(prefix, answer[-1].rows)
        named = [(protocol.text(row[0]), protocol.read_held(row[1:])) for row in rows]
        infos = [info for name, held in named if (info := protocol.lock_info(name, held)) is not None]
        return Page(infos, named[-1][0] if len(rows) == PAGE else None)

    # -- permits -------------------------------------------------------------------------------------------------

    async def downgrade(self, hold: Hold, n: int) -> Loss | Unreachable | None:
        return await self.permits().downgrade(hold, n)

    async def resize(self, name: str, limit: int) -> Unreachable | None:
        return await self.permits().resize(name, limit)

    async def inspect_permits(self, name: str, kind: Kind) -> PermitInfo | Unreachable | None:
        return await self.permits().inspect(name, kind)

    async def page_permits(self, kind: Kind, prefix: str, after: str | None) -> PermitPage | Unreachable:
        return await self.permits().page(kind, prefix, after)

    async def force_release_permits(
        self, name: str, kind: Kind, owner: str | None = None, slot: int | None = None, note: str | None = None
    ) -> bool | Unreachable:
        return await self.permits().force_release(name, kind, owner, slot, note)

    # -- the end -------------------------------------------------------------------------------------------------

    def stop_waiting(self) -> None:
        self._link.stop_waiting()
        self._queues.wake_all()

    async def close(self) -> None:
        await self._link.close()


def _shortly_before(seconds: float) -> int:
    """In microseconds: the server gives up first, and its session goes on."""
    return max(1, protocol.microseconds(0.8 * seconds))


def _columns(rows: Rows) -> tuple[bytes, bytes | None]:
    """The reason that an owner does not have the lock, and what it is to be told."""
    return (rows.rows[0][0] or b"", rows.rows[0][1]) if rows.rows else (b"", None)


def _loss(rows: Rows) -> Loss:
    reason, column = _columns(rows)
    note = protocol.read_note(column) if reason == b"broken" else None
    return REASONS.get(reason, "expired") if note is None else Broken(note)


def poll_pause(tries: int) -> float:
    return float(min(POLL_MOST, POLL_FIRST * 1.5 ** min(tries, 20)))
