"""Semaphores and read/write locks in tables: a row for each name, each holder and each waiter.

Each step about a name is a transaction of two requests. The first locks the name's row, deletes the holders whose time
is over, and reads the others. Then `stores/permits.py` decides, here, and the second request writes what has changed.
Renewals lock their own holder only.

Every waiter is queued in the engine. Where the server can notify, a client listens to a channel of its own. There it is
told which of its waiters has permits now, and that one claims once more, to find them. Elsewhere each waiter claims
again and again, the first one most often. It looks first, which locks nothing, and does more only if that would change
something.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence

from gripfast.core import rules
from gripfast.core.ports import (
    Claim,
    Granted,
    Hold,
    Kind,
    Loss,
    PermitInfo,
    PermitPage,
    Share,
    Taken,
    Unreachable,
    unreachable,
)
from gripfast.errors import ConfigurationError
from gripfast.stores import permits
from gripfast.stores.permits import Settlement
from gripfast.stores.sql import protocol
from gripfast.stores.sql.inspection import PAGE
from gripfast.stores.sql.permit_rows import Key, read_infos
from gripfast.stores.sql.permit_steps import ClaimStep, PlainStep, Step, SweepStep
from gripfast.stores.sql.ports import TRANSIENT, Fault
from gripfast.stores.sql.requests import SWEEP_AFTER, SWEEP_MOST, SWEEP_PACE, Requests, holder_details, no_answer
from gripfast.stores.sql.statement import Query

SLOW_PACE = 5.0
"""Seconds after which a waiter claims although it was not notified. Less than the window in which it must be seen."""
WAITS_MOST, WAIT_LOCKED = 3, 0.4
"""Names that are waited for in one clean-up because somebody has locked them, and seconds for each."""
UNUSABLE = TRANSIENT - {"busy"}
"""The server can't be asked for anything else either."""
POLL_FIRST, POLL_MOST = 0.02, 1.0
"""Seconds between two claims of the first waiter, where nobody is notified."""


class Permits:
    def __init__(self, requests: Requests) -> None:
        link = requests.link
        self.scripts = link.dialect.permit_scripts()
        self._requests = requests
        self._link = link
        self._claims = link.claims
        self._inboxes = link.queues.inboxes
        self._is_notified = link.dialect.pushes
        """Not through a proxy that hands sessions around."""
        self._channel = "gripfast_" + uuid.uuid4().hex
        self._waits: dict[str, tuple[int, int]] = {}
        """By owner that waits: its position, and its claims in vain since it has that."""
        self._sweep_at = link.now() + SWEEP_PACE * link.chance()
        self._releases_left = 0

    # -- claims --------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim, share: Share) -> Granted | Taken | Unreachable:
        try:
            answer = await self._claim(claim, share)
        except ConfigurationError:  # nothing is left there, so nobody will clean up
            self._claims.pop(claim.owner, None)
            raise
        if isinstance(answer, Taken) and (claim.inbox is None or answer.limit_in_force is not None):
            self._claims.was_refused(claim.owner)
        if not isinstance(answer, Taken) or answer.limit_in_force is not None:
            self._waits.pop(claim.owner, None)
        return answer

    async def _claim(self, claim: Claim, share: Share) -> Granted | Taken | Unreachable:
        link, may_listen = self._link, True
        if claim.inbox is not None:
            self._inboxes.add(claim.owner, claim.inbox)
        while True:
            sent, step = link.now(), self._claim_step(claim, share)
            if not await self._is_idle(claim, step):
                fault = await self._run(step, owner=claim.owner)
                if fault is not None:
                    return no_answer(fault)
                if not step.is_known:
                    continue  # forgotten in the same moment
            settlement = step.settlement
            if settlement.granted is not None:
                if len(claims := self._claims.get(claim.owner, [])) == 1:
                    claims.clear()  # there was no other, and this one is answered
                return Granted(settlement.granted.token, claim.ttl, sent, slots=settlement.granted.slots)
            if not step.waits or not may_listen or not self._needs_listening():
                return self._taken(claim, step)
            may_listen = False
            fault = await link.listener.listen(self._channel)
            if fault is not None and fault.kind != "unfit":
                return no_answer(fault._replace(was_sent=True))  # the claim itself has left
            self._is_notified = fault is None

    def _claim_step(self, claim: Claim, share: Share) -> ClaimStep:
        details = holder_details(claim.told, os.getpid())
        listener = self._link.listener
        if self._is_notified and listener.listens_to(self._channel):
            return ClaimStep(self.scripts, claim, share, details, self._channel, listener.session())
        return ClaimStep(self.scripts, claim, share, details, "", 0)

    def _needs_listening(self) -> bool:
        return self._is_notified and not self._link.listener.listens_to(self._channel)

    async def _is_idle(self, claim: Claim, step: ClaimStep) -> bool:
        """Of one that has claimed in vain before, and is not notified: to claim again would change nothing."""
        if self._is_notified or claim.owner not in self._waits:
            return False
        answer = await self._requests.run(self.scripts.look(*step.key))
        return not isinstance(answer, Fault) and step.is_idle(answer)

    def _taken(self, claim: Claim, step: ClaimStep) -> Taken:
        settlement = step.settlement
        taken = Taken(step.holder(), settlement.pool.token, limit_in_force=settlement.limit_in_force)
        if not step.waits:
            return taken
        position, chance = step.position(), self._link.chance
        before, tries = self._waits.get(claim.owner, (position, 0))
        tries = tries + 1 if before == position else 1  # a queue that moves is looked at more often
        self._waits[claim.owner] = position, tries
        pause = SLOW_PACE if self._is_notified else min(SLOW_PACE, poll_pause(tries) * (1 + position))
        pause *= 0.75 + chance() / 2
        if position == 0 and taken.holder is not None:
            pause = min(pause, taken.holder.expires_in + 0.001 + 0.01 * chance())
        return taken._replace(again_in=pause)

    # -- steps ---------------------------------------------------------------------------------------------------

    async def _run(self, step: Step, owner: str | None = None, is_repeatable: bool = True) -> Fault | None:
        scripts, idle_us = self.scripts, protocol.microseconds(self._link.timeout)
        queries = scripts.begin_new(*step.key, idle_us) if step.is_new else scripts.begin(*step.key, idle_us)
        answer = await self._requests.run(queries, is_repeatable, owner=owner, decide=step.decide)
        if isinstance(answer, Fault):
            return answer
        await self._after(step, owner)
        return None

    async def _after(self, step: Step, owner: str | None = None) -> None:
        """It is committed: those of this client who should claim again are woken, and what is left to do is done."""
        if not step.is_known:
            return
        for waiter in step.settlement.told:
            self._inboxes.deliver(waiter.owner, None)
        if (next_one := step.next_to_ask()) is not None and next_one != owner:
            self._inboxes.deliver(next_one, None)
        if step.settlement.more:
            await self._run(PlainStep(self.scripts, step.key, permits.settle))

    def _step(self, kind: Kind, name: str, decide: Callable[..., Settlement], *args: object) -> PlainStep:
        return PlainStep(self.scripts, Key(kind, name), decide, *args)

    async def release(self, hold: Hold, kind: Kind) -> Loss | Unreachable | None:
        trouble = await self._requests.end_unanswered([hold]) if self._claims.get(hold.owner) else None
        step = self._step(kind, hold.name, permits.leave, hold.owner)
        fault = await self._run(step)
        if fault is not None:
            return unreachable(fault.error)
        if trouble is not None:
            return trouble
        self._claims.pop(hold.owner, None)
        await self._sweep_now_and_then()
        if step.is_known and step.settlement.removed:
            return None
        # The first of two may have done it: then it is not this owner's any more.
        return None if step.times > 1 else _why_gone(step, hold.owner)

    def renewal(self, hold: Hold, kind: Kind) -> list[Query]:
        return self.scripts.renew(kind, hold.name, hold.owner, protocol.microseconds(hold.ttl), hold.shortens)

    def renewal_waiting(self, hold: Hold, kind: Kind, wait_us: int) -> list[Query]:
        ttl_us = protocol.microseconds(hold.ttl)
        return self.scripts.renew_waiting(kind, hold.name, hold.owner, ttl_us, hold.shortens, wait_us)

    async def abandon(self, holds: Sequence[tuple[Hold, Kind]]) -> dict[str, Unreachable]:
        """Who may still have something, and why. A name that somebody has locked is not waited for long, and only a few
        are. It begins with another one each time, so that all get their turn."""
        troubles: dict[str, Unreachable] = {}
        first = int(self._link.chance() * len(holds))
        left = [*holds[first:], *holds[:first]]
        while left:
            hold, kind = left.pop(0)
            self._waits.pop(hold.owner, None)
            fault = await self._abandon(self._step(kind, hold.name, permits.leave, hold.owner))
            if fault is not None:
                troubles[hold.owner] = unreachable(fault.error)
                if fault.kind in UNUSABLE or len(troubles) >= WAITS_MOST:
                    return troubles | {other.owner: troubles[hold.owner] for other, _ in left}
        return troubles

    async def _abandon(self, step: Step) -> Fault | None:
        wait_us, idle_us = protocol.microseconds(WAIT_LOCKED), protocol.microseconds(self._link.timeout)
        queries = self.scripts.begin_waiting(*step.key, idle_us, wait_us)
        answer = await self._requests.run(queries, within=rules.GIVE_BACK_WITHIN, decide=step.decide)
        if isinstance(answer, Fault):
            return answer
        await self._after(step)
        return None

    async def downgrade(self, hold: Hold, n: int) -> Loss | Unreachable | None:
        step = self._step("rwlock", hold.name, permits.downgrade, hold.owner, n)
        fault = await self._run(step)
        if fault is not None:
            return unreachable(fault.error)
        return None if step.is_known and step.settlement.granted is not None else _why_gone(step, hold.owner)

    async def resize(self, name: str, limit: int) -> Unreachable | None:
        while True:
            step = PlainStep(self.scripts, Key("semaphore", name), permits.resize, limit, is_new=True)
            fault = await self._run(step)
            if fault is not None:
                return unreachable(fault.error)
            if step.is_known:
                return None

    async def force_release(
        self, name: str, kind: Kind, owner: str | None, slot: int | None, note: str | None
    ) -> bool | Unreachable:
        """Not repeated: if the first request did it, the second would remove the next holders. So it looks first, which
        may be repeated and shows whether the connection still works."""
        looked = await self.inspect(name, kind)
        if isinstance(looked, Unreachable):
            return looked
        told = protocol.write_note(note)
        step = PlainStep(self.scripts, Key(kind, name), permits.force_release, owner, slot, note=told)
        fault = await self._run(step, is_repeatable=False)
        if fault is not None:
            return unreachable(fault.error)
        return step.is_known and bool(step.settlement.removed)

    # -- inspection ----------------------------------------------------------------------------------------------

    async def inspect(self, name: str, kind: Kind) -> PermitInfo | Unreachable | None:
        answer = await self._requests.run(self.scripts.inspect(kind, name))
        if isinstance(answer, Fault):
            return unreachable(answer.error)
        infos = read_infos(kind, answer[-1].rows)
        return infos[0] if infos else None

    async def page(self, kind: Kind, prefix: str, after: str | None) -> PermitPage | Unreachable:
        answer = await self._requests.run(self.scripts.page(kind, after or "", prefix, PAGE))
        if isinstance(answer, Fault):
            return unreachable(answer.error)
        rows = protocol.beginning_with(prefix, answer[-1].rows)
        is_full = len({row[0] for row in rows}) == PAGE
        return PermitPage(read_infos(kind, rows), protocol.text(rows[-1][0]) if is_full else None)

    # -- forgetting ----------------------------------------------------------------------------------------------

    async def _sweep_now_and_then(self) -> None:
        """As `Sweeps` does for locks."""
        self._releases_left -= 1
        if self._releases_left != 0 and self._link.now() < self._sweep_at:
            return
        self._sweep_at = self._link.now() + SWEEP_PACE
        step = SweepStep(self.scripts)
        idle_us = protocol.microseconds(self._link.timeout)
        queries = self.scripts.begin_sweep(SWEEP_MOST, rules.TOKEN_MEMORY_US, idle_us)
        await self._requests.run(queries, decide=step.decide)
        self._releases_left = SWEEP_AFTER if step.looked_at >= SWEEP_MOST else 0


def _why_gone(step: Step, owner: str) -> Loss:
    return step.state.why_gone(owner) if step.is_known else "expired"


def poll_pause(tries: int) -> float:
    return float(min(POLL_MOST, POLL_FIRST * 1.5 ** min(tries, 20)))
