"""The store's requests for semaphores and read/write locks, loaded when the first one is used.

Each reply says whether the server has more to settle than one request does. If so, the store sends another at once: a
claim that was refused is repeated, everything else is followed by a request that only settles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gripfast.core.ports import (
    Claim,
    Granted,
    Hold,
    Kind,
    Loss,
    PermitInfo,
    PermitPage,
    Taken,
    Unreachable,
    unreachable,
)
from gripfast.stores.faults import Fault, LinkDown, may_take_effect
from gripfast.stores.redis import permit_protocol as protocol
from gripfast.stores.redis import permit_scripts as scripts
from gripfast.stores.redis.faults import another_server, was_sent
from gripfast.stores.redis.protocol import read_why
from gripfast.stores.redis.scripts import Script
from gripfast.stores.redis.store import Names

if TYPE_CHECKING:
    from gripfast.stores.redis.store import Link, RedisStore

CHUNK = 500
"""Requests that leave together; others get their turn in between."""


class RedisPermits:
    """A part of `RedisStore`."""

    def __init__(self, store: RedisStore, link: Link) -> None:
        self._store = store
        self._link = link

    async def claim(self, claim: Claim) -> Granted | Taken | Unreachable:
        store, grace = self._store, self._store._grace
        if grace is not None and (trouble := await store._begin(claim.ttl)) is not None:
            return trouble
        was_answered = is_repeated = False
        while True:
            channel = None if claim.inbox is None else self._link.server.channel
            reply = await self._ask_to_claim(claim, channel)
            if isinstance(reply, Fault):
                sent = reply.was_sent or was_answered
                return unreachable(reply.error, sent, reply.was_refused, reply.is_permanent)
            was_answered = True
            answer = store._unless_confirmed(protocol.read_claim(reply, claim, channel))
            if isinstance(answer, Granted):
                await self._settle(claim.name, _kind(claim), reply)
                return answer
            is_final = claim.inbox is None or answer.limit_in_force is not None
            try:
                hears = is_final or await self._store._hears(channel, protocol.is_heard(reply))
            except LinkDown as down:
                return unreachable(was_sent(down.fault).error)
            if hears and protocol.is_in_grace(reply):
                in_grace = await store._in_grace()
                if in_grace is not None or is_repeated:
                    return in_grace or unreachable(another_server(self._link.server.where))
                is_repeated = True
            elif hears and (self._store._is_closing or not protocol.has_more(reply)):
                if is_final and claim.owner in self._link.server.late:
                    self._clean_up_after(claim.name, _kind(claim), claim.owner)  # nobody asks for it any more
                return answer

    async def _ask_to_claim(self, claim: Claim, channel: bytes | None) -> Any:
        """The reply, or a Fault."""
        if channel is not None:
            self._link.inboxes.add(claim.owner, claim.inbox)  # type: ignore[arg-type]
        packed = protocol.claim(claim, self._store._card(claim.told), channel or b"")
        script, packed = self._store._guarded(scripts.CLAIM, packed, claim.name)
        first = await self._store._sent(script, packed, claim.owner)
        return await self._store._made_good(script, packed, first, claim.owner)

    async def release(self, hold: Hold) -> Loss | Unreachable | None:
        kind = protocol.kind_of(hold)
        script, packed = self._give_back(hold.name, kind, hold.owner)
        first = await self._store._got(self._link.ask(packed))
        reply = await self._store._made_good(script, packed, first)
        answer: Loss | Unreachable | None
        if isinstance(reply, Fault):
            answer = unreachable(reply.error, reply.was_sent)
        else:
            await self._settle(hold.name, kind, reply)
            # The first of two may have done it: then it is not this owner's any more.
            answer = None if reply[0] == 1 or isinstance(first, Fault) else read_why(reply[2])
        if hold.owner in self._link.server.late:
            self._clean_up_after(hold.name, kind, hold.owner)  # not earlier: it would do the work of the release
        return answer

    async def renew(self, holds: Sequence[Hold], within: float = math.inf) -> list[Loss | Unreachable | None]:
        answers: list[Loss | Unreachable | None] = []
        store = self._store
        if store._grace is not None and any(troubles := await store._begin_renewal(holds)):
            fit = [hold for hold, trouble in zip(holds, troubles, strict=True) if trouble is None]
            rest = iter(await self.renew(fit, within))
            return [trouble or next(rest) for trouble in troubles]
        for start in range(0, len(holds), CHUNK):
            some = holds[start : start + CHUNK]
            sent = [store._guarded(scripts.RENEW, protocol.renew(hold), hold.name) for hold in some]
            for reply in await store._ask_each(sent[0][0], [packed for _, packed in sent], within):
                if isinstance(reply, Fault):
                    answers.append(unreachable(reply.error))
                else:
                    answers.append(None if reply == 1 else read_why(reply))
        return answers

    async def abandon(self, holds: Sequence[Hold]) -> list[Unreachable | None]:
        """As that of locks: what may still arrive is cleaned up twice."""
        troubles: list[Unreachable | None] = []
        for start in range(0, len(holds), CHUNK):
            chunk = holds[start : start + CHUNK]
            kinds = [protocol.kind_of(hold) for hold in chunk]
            pairs = list(zip(chunk, kinds, strict=True))
            late = [self._clean_up_after(hold.name, kind, hold.owner) is False for hold, kind in pairs]
            sent = [self._give_back(hold.name, kind, hold.owner) for hold, kind in pairs]
            commands = [packed for _, packed in sent]
            replies = await self._store._ask_each(sent[0][0], commands, self._store.give_back_within)
            for (hold, kind), is_late, reply in zip(pairs, late, replies, strict=True):
                if not isinstance(reply, Fault):
                    await self._settle(hold.name, kind, reply)
                troubles.append(_trouble(hold, is_late, reply))
        return troubles

    def clean_up_after(self, hold: Hold) -> bool | None:
        return self._clean_up_after(hold.name, protocol.kind_of(hold), hold.owner)

    def _clean_up_after(self, name: str, kind: Kind, owner: str) -> bool | None:
        """In full: nobody reads the reply, and so nobody would see that the script was forgotten."""
        script, packed = self._give_back(name, kind, owner)
        return self._link.clean_up(owner, script.in_full(packed))

    def _give_back(self, name: str, kind: Kind, owner: str) -> tuple[Script, bytes]:
        return self._store._guarded(scripts.GIVE_BACK, protocol.give_back(name, kind, owner), name)

    async def _settle(self, name: str, kind: Kind, reply: Any) -> None:
        """Until the server has nothing more to do for this name. If it does not answer, others will see to it."""
        while not isinstance(reply, Fault) and protocol.has_more(reply):
            reply = await self._store._ask(*self._give_back(name, kind, ""))

    async def downgrade(self, hold: Hold, n: int) -> Loss | Unreachable | None:
        call = self._store._guarded(scripts.DOWNGRADE, protocol.downgrade(hold, n), hold.name)
        reply = await self._store._ask(*call)
        if isinstance(reply, Fault):
            return unreachable(reply.error)
        await self._settle(hold.name, protocol.kind_of(hold), reply)
        return None if reply[0] == 1 else read_why(reply[2])

    async def resize(self, name: str, limit: int) -> Unreachable | None:
        reply = await self._store._ask(*self._store._guarded(scripts.RESIZE, protocol.resize(name, limit), name))
        if isinstance(reply, Fault):
            return unreachable(reply.error)
        await self._settle(name, "semaphore", reply)
        return None

    async def inspect(self, name: str, kind: Kind) -> PermitInfo | Unreachable | None:
        reply = await self._store._ask(scripts.INSPECT, protocol.inspect(name, kind))
        if isinstance(reply, Fault):
            return unreachable(reply.error, reply.was_sent)
        return protocol.read_info(name, kind, reply)

    async def page(self, kind: Kind, prefix: str, after: str | None) -> PermitPage | Unreachable:
        names = await self.names(kind, prefix, after)
        if isinstance(names, Unreachable):
            return names
        infos: list[PermitInfo] = []
        for name in names.found:  # one by one: each may have thousands of holders
            info = await self.inspect(name, kind)
            if isinstance(info, Unreachable):
                return info
            if info is not None:
                infos.append(info)
        return PermitPage(infos, names.after)

    async def names(self, kind: Kind, prefix: str, after: str | None) -> Names | Unreachable:
        reply = await self._store._ask(None, protocol.scan(kind, after or "0"))
        if isinstance(reply, Fault):
            return unreachable(reply.error)
        cursor, names = protocol.read_scan(reply, kind, prefix)
        return Names(names, None if cursor == "0" else cursor)

    async def force_release(
        self, name: str, kind: Kind, owner: str | None, slot: int | None, note: str | None
    ) -> bool | Unreachable:
        looked = await self.inspect(name, kind)
        if isinstance(looked, Unreachable):
            return looked
        packed = protocol.force_release(name, kind, owner, slot, note)
        reply = await self._store._ask_once(*self._store._guarded(scripts.FORCE_RELEASE, packed, name))
        if isinstance(reply, Fault):
            return unreachable(reply.error, reply.was_sent)
        await self._settle(name, kind, reply)
        return bool(reply[0] == 1)


def _kind(claim: Claim) -> Kind:
    assert claim.share is not None
    return claim.share.kind


def _trouble(hold: Hold, is_late: bool, reply: Any) -> Unreachable | None:
    if isinstance(reply, Fault):
        return unreachable(reply.error)
    if is_late:
        return may_take_effect(hold.name)
    return None
