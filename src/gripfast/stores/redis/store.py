"""The store, the same for all drivers: requests go out over a Link, which blocks or suspends.

**Which pushes count.** A push is dated by the last answer "still waiting". That is right only if the server that pushes
is the one that answered. Connections may well lead to different servers: an address was moved to a promoted replica,
and the subscription is still at the server that was demoted, or cut off and knows nothing of it. What a connection
learned about its server when it was made proves nothing: a server that was demoted and promoted again has the same
run id and the same connections. So the server itself says it, in the step that answers:

1. Each subscription has a random channel of its own, so at most one server ever has a subscriber to it.
2. A server publishes to a channel only if it has a subscriber to it (`scripts.py`), so what arrives on a channel was
   published by the server that the subscription is at, and stays granted there. It was not handed down by a primary.
3. An answer "still waiting" says whether its server has a subscriber to the waiter's channel. If so, the answer and
   all pushes on this channel are of one server, whatever its role was, is and becomes: a push is as good as the answer
   to a claim that this server had got at that moment.
4. Otherwise the subscription is at another server, or gone: it is ended, another is made, and the waiter retries.
   What was pushed on the old channel and is still in an inbox has another source than the new answer
   (`core/acquire.py`), and does not count.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gripfast import machine
from gripfast.core import rules
from gripfast.core.kept import kept
from gripfast.core.ports import (
    Claim,
    Granted,
    Hold,
    Inbox,
    Keep,
    Kind,
    Label,
    LockInfo,
    Loss,
    Page,
    PermitInfo,
    PermitPage,
    PermitStore,
    Prepared,
    Store,
    Taken,
    Unreachable,
    unreachable,
)
from gripfast.errors import ConfigurationError, Reason
from gripfast.stores.faults import Fault, LinkDown, may_take_effect
from gripfast.stores.redis import protocol, scripts
from gripfast.stores.redis.failover import Failover
from gripfast.stores.redis.faults import another_server, was_sent
from gripfast.stores.redis.grace import Grace
from gripfast.stores.redis.requests import Link as Link
from gripfast.stores.redis.requests import Requests
from gripfast.stores.redis.scripts import Script
from gripfast.stores.redis.spec import CAPABILITIES
from gripfast.stores.redis.unread import Unread

if TYPE_CHECKING:
    from gripfast.stores.redis.permit_store import RedisPermits

CHUNK = 500
"""Requests that leave together; others get their turn in between."""
VAIN_MOST = 3
"""Subscriptions in a row that no answer knew of. Then the next one would not help either (a proxy that spreads its
connections, say): waiters ask at their pace."""


class Names(NamedTuple):
    found: Sequence[str]
    after: str | None
    """Where the next ones start; None after the last."""


class RedisStore(Requests, Store, PermitStore):
    capabilities = CAPABILITIES

    def __init__(self, link: Link, failover: Failover | Grace | None = None) -> None:
        super().__init__(link, failover)
        self.inboxes = link.inboxes
        self.inbox = link.inbox  # type: ignore[method-assign]  # a call less, on the hot path
        self._card = functools.lru_cache(maxsize=256)(card_of_this_process)
        self._vain = 0
        """Subscriptions that were ended since the last one that an answer knew of."""
        self.give_back_within = rules.GIVE_BACK_WITHIN
        self._is_closing = False

    def inbox(self) -> Inbox:
        return self._link.inbox()

    async def ask(self, packed: bytes, script: Script | None = None) -> Any:
        """For a store that has several of these: the reply to a command, or a Fault."""
        return await self._ask(script, packed)

    async def claim(self, claim: Claim, is_repeated: bool = False) -> Granted | Taken | Unreachable:
        if claim.share is not None:
            return await self._permits.claim(claim)
        grace = self._grace
        if grace is not None and not grace.is_settled(claim.ttl):
            trouble = await self._begin(claim.ttl)
            if trouble is not None:
                return trouble
        link = self._link
        channel = None if claim.inbox is None else link.server.channel
        if channel is not None:
            link.inboxes.add(claim.owner, claim.inbox)  # type: ignore[arg-type]
        card = self._card(claim.label if claim.trace is None else claim.told)  # a call less, on the hot path
        script, packed = scripts.CLAIM, protocol.claim(claim.name, claim, card, channel or b"")
        if grace is not None:
            script, packed = grace.guarded(script, packed, claim.name)
        if grace is not None and script.is_acked:
            reply = await self._sent(script, packed, claim.owner)
        else:
            reply = link.ask(packed, claim.owner, claim.name)
            if link.suspends:
                reply = await reply
        if type(reply) is not int:
            return await self._claim_slowly(claim, channel, script, packed, reply, is_repeated)
        return Granted(reply, claim.ttl)

    async def _claim_slowly(
        self, claim: Claim, channel: bytes | None, script: Script, packed: bytes, reply: Any, is_repeated: bool
    ) -> Granted | Taken | Unreachable:
        """The first reply was no grant."""
        reply = await self._made_good(script, packed, reply, claim.owner)
        if isinstance(reply, list) and claim.inbox is not None:
            try:
                if not await self._hears(channel, protocol.is_heard(reply)):
                    answer = await self.claim(claim)
                    return answer._replace(was_sent=True) if isinstance(answer, Unreachable) else answer
            except LinkDown as down:
                reply = was_sent(down.fault)
        if isinstance(reply, Fault):
            return unreachable(reply.error, reply.was_sent, reply.was_refused, reply.is_permanent)
        if isinstance(reply, list) and protocol.is_free(reply):
            return await self._in_grace() or await self._again(claim, is_repeated)
        answer = self._unless_confirmed(protocol.read_claim(reply, claim, channel))
        if isinstance(answer, Taken) and claim.inbox is None and claim.owner in self._link.server.late:
            self._clean_up_after(claim.name, claim.owner)  # nobody asks for it any more
        return answer

    async def _again(self, claim: Claim, is_repeated: bool) -> Granted | Taken | Unreachable:
        """Once: then the connections lead to several servers, or one that changes quickly."""
        return unreachable(another_server(self._link.server.where)) if is_repeated else await self.claim(claim, True)

    async def _hears(self, channel: bytes | None, is_heard: bool) -> bool:
        """Whether the server that answered can push to this waiter; otherwise it can when that has asked again."""
        if channel is not None and is_heard:
            self._vain = 0
        elif channel is not None and channel == self._link.server.channel:
            if self._vain >= VAIN_MOST:
                return True  # nor will it: it has to ask
            self._vain += 1
            self._link.stop_listening(channel)
        if channel is None or self._link.server.channel is None:
            await self._link.listen()
            return self._is_closing  # then it must not ask again: whoever cleans up may have been here before
        return channel == self._link.server.channel or self._is_closing

    async def release(self, hold: Hold) -> Loss | Unreachable | None:
        if hold.keep is not None:
            return await self._keep(hold, hold.keep)
        if hold.share is not None:
            return await self._permits.release(hold)
        link = self._link
        script, packed = scripts.RELEASE, protocol.release(hold.name, hold)
        if self._grace is not None:
            script, packed = self._grace.guarded(script, packed, hold.name)
        reply = link.ask(packed)
        if link.suspends:
            reply = await reply
        answer = None if reply == 1 else await self._release_slowly(hold, script, packed, reply)
        if hold.owner in link.server.late:
            self._clean_up_after(hold.name, hold.owner)  # not earlier: it would do the work of the release
        return answer

    async def release_lazily(self, hold: Hold, told: Callable[[bool], None]) -> None:
        """As usual if a claim of its owner is still on its way, or if there is no connection at hand; or if claims have
        connections of their own, on which the next one could overtake it."""
        link, script, packed = self._link, scripts.RELEASE, protocol.release(hold.name, hold)
        if self._grace is not None:
            script, packed = self._grace.guarded(script, packed, hold.name)
        is_late = hold.owner in link.server.late or (self._grace is not None and self._grace.replicas > 0)
        if is_late or not link.send(Unread(hold.name, script, packed, told)):
            answer = await self.release(hold)
            if not isinstance(answer, Unreachable):
                told(answer is None)

    async def read_late(self, within: float = 0.0) -> bool:
        return await self._link.read_late(within)

    async def _release_slowly(self, hold: Hold, script: Script, packed: bytes, reply: Any) -> Loss | Unreachable | None:
        was_lost = isinstance(reply, Fault)
        reply = await self._made_good(script, packed, reply)
        if isinstance(reply, Fault):
            return "taken" if protocol.is_no_lock(reply.error) else unreachable(reply.error, reply.was_sent)
        # The first of two may have done it: then it is not this owner's any more.
        return None if reply == 1 or was_lost else (await self._why([hold]))[0]

    async def _keep(self, hold: Hold, keep: Keep) -> Loss | Unreachable | None:
        script, packed = self._guarded(scripts.KEEP, protocol.keep(hold.name, hold, keep), hold.name)
        first = await self._sent(script, packed)
        reply = await self._made_good(script, packed, first)
        if isinstance(reply, Fault):
            return "taken" if protocol.is_no_lock(reply.error) else unreachable(reply.error, reply.was_sent)
        if self._clean_up_after(hold.name, hold.owner) is False:
            return may_take_effect(hold.name)
        # The first of two may have done it, and the rest of a min_hold may be over since. A "done" lasts longer.
        was_released = isinstance(first, Fault) and kept(keep.owner) == "min_hold"
        return None if reply == 1 or was_released else (await self._why([hold]))[0]

    async def adopt(self, hold: Hold, claim: Claim) -> Granted | Loss | Unreachable:
        """Noted like a claim: it may take effect although nobody has read its answer."""
        if self._grace is not None and (trouble := await self._begin(claim.ttl)) is not None:
            return trouble
        packed = protocol.adopt(hold.name, hold.owner, claim, self._card(claim.told))
        script, packed = self._guarded(scripts.ADOPT, packed, hold.name)
        reply = await self._sent(script, packed, claim.owner)
        reply = await self._made_good(script, packed, reply, claim.owner)
        if isinstance(reply, Fault):
            if protocol.is_no_lock(reply.error):
                return "taken"
            return unreachable(reply.error, reply.was_sent, reply.was_refused, reply.is_permanent)
        if reply == protocol.GRACE:
            in_grace = await self._in_grace()
            return in_grace or unreachable(another_server(self._link.server.where))
        return Granted(reply, claim.ttl) if reply else (await self._why([hold]))[0]

    async def detach(self, hold: Hold, token: int) -> Loss | Unreachable | None:
        """Behind a claim that was not answered goes a clean-up of what it may get, and not of what is detached."""
        script, packed = self._guarded(scripts.DISOWN, protocol.disown(hold.name, hold.owner, token), hold.name)
        left = self._link.clean_up(hold.owner, script.in_full(packed))
        return may_take_effect(hold.name) if left is False else None

    async def renew(self, holds: Sequence[Hold], within: float = math.inf) -> Sequence[Loss | Unreachable | None]:
        if any(hold.share is not None for hold in holds):
            locks, permits = _apart(holds)
            renewed = iter(await self.renew(locks, within)), iter(await self._permits.renew(permits, within))
            return [next(renewed[hold.share is not None]) for hold in holds]
        if self._grace is not None and any(troubles := await self._begin_renewal(holds)):
            fit = [hold for hold, trouble in zip(holds, troubles, strict=True) if trouble is None]
            rest = iter(await self.renew(fit, within))
            return [trouble or next(rest) for trouble in troubles]
        replies: list[Any] = []
        for start in range(0, len(holds), CHUNK):
            some = holds[start : start + CHUNK]
            sent = [self._guarded(scripts.RENEW, protocol.renew(hold.name, hold), hold.name) for hold in some]
            replies += await self._ask_each(sent[0][0], [packed for _, packed in sent], within)
        gone = [hold for hold, reply in zip(holds, replies, strict=True) if reply == 0]
        reasons = iter(await self._why(gone))
        return [next(reasons) if reply == 0 else _renewal(reply) for reply in replies]

    async def _why(self, gone: Sequence[Hold]) -> list[Loss]:
        """That they are gone is known already; if nobody can tell why, they have run out."""
        reasons: list[Loss] = []
        for start in range(0, len(gone), CHUNK):
            chunk = gone[start : start + CHUNK]
            replies = await self._ask_each(scripts.WHY, [protocol.why(hold.name, hold) for hold in chunk])
            reasons += ["expired" if isinstance(reply, Fault) else protocol.read_why(reply) for reply in replies]
        return reasons

    async def abandon(self, holds: Sequence[Hold]) -> Sequence[Unreachable | None]:
        """Gives back twice what may still arrive: a claim whose connection broke can't be followed by a clean-up."""
        if any(hold.keep is not None for hold in holds):
            plain = iter(await self.abandon([hold for hold in holds if hold.keep is None]))
            kept = iter(await self._give_back(scripts.KEEP, [hold for hold in holds if hold.keep is not None]))
            return [next(plain if hold.keep is None else kept) for hold in holds]
        if any(hold.share is not None for hold in holds):
            locks, permits = _apart(holds)
            given_back = iter(await self.abandon(locks)), iter(await self._permits.abandon(permits))
            return [next(given_back[hold.share is not None]) for hold in holds]
        return await self._give_back(scripts.ABANDON, holds)

    async def _give_back(self, script: Script, holds: Sequence[Hold]) -> list[Unreachable | None]:
        """Many at once: renewals wait for it."""
        troubles: list[Unreachable | None] = []
        for start in range(0, len(holds), CHUNK):
            chunk = holds[start : start + CHUNK]
            pairs = [self._guarded(script, _given_back(hold), hold.name) for hold in chunk]
            sent, commands = pairs[0][0], [packed for _, packed in pairs]
            if script is scripts.KEEP:  # first: a clean-up would free what is to be kept
                replies = await self._ask_each(sent, commands, self.give_back_within)
                kept = [hold for hold, reply in zip(chunk, replies, strict=True) if not isinstance(reply, Fault)]
                followed = dict(zip(kept, self._clean_up_after_each(kept), strict=True))
                late = [followed.get(hold, False) for hold in chunk]
            else:
                late = self._clean_up_after_each(chunk)
                replies = await self._ask_each(sent, commands, self.give_back_within)
            for hold, is_late, reply in zip(chunk, late, replies, strict=True):
                trouble: Unreachable | None = None
                if isinstance(reply, Fault) and not protocol.is_no_lock(reply.error):
                    trouble = unreachable(reply.error)
                elif is_late:
                    trouble = may_take_effect(hold.name)
                troubles.append(trouble)
        return troubles

    def _clean_up_after_each(self, holds: Sequence[Hold]) -> list[bool]:
        """Whether a request of the owner may still take effect."""
        return [self._clean_up_after(hold.name, hold.owner) is False for hold in holds]

    def clean_up_after(self, hold: Hold) -> bool | None:
        """Behind the unanswered claims of an owner that has claims at several servers: see `Link.clean_up`."""
        if hold.share is not None:
            return self._permits.clean_up_after(hold)
        return self._clean_up_after(hold.name, hold.owner)

    def _clean_up_after(self, name: str, owner: str) -> bool | None:
        """In full: nobody reads the reply, and so nobody would see that the script was forgotten."""
        script, packed = self._guarded(scripts.ABANDON, protocol.abandon(name, owner), name)
        return self._link.clean_up(owner, script.in_full(packed))

    async def inspect(self, name: str) -> LockInfo | Unreachable | None:
        reply = await self._ask(scripts.INSPECT, protocol.inspect(name), name)
        return unreachable(reply.error, reply.was_sent) if isinstance(reply, Fault) else protocol.read_info(name, reply)

    async def page(self, prefix: str, after: str | None) -> Page | Unreachable:
        """In the order of the server's own tables; a name may come twice if they are rebuilt meanwhile."""
        names = await self.names(prefix, after)
        infos = await self.inspect_each(names.found) if isinstance(names, Names) else names
        if isinstance(infos, Unreachable):
            return infos
        for each in infos:
            if isinstance(each, Unreachable):
                return each
        return Page([info for info in infos if isinstance(info, LockInfo)], names.after)  # type: ignore[union-attr]

    async def names(self, prefix: str, after: str | None) -> Names | Unreachable:
        """One step of a list: what is there, held or not."""
        reply = await self._ask(None, protocol.scan(prefix, after or "0"))
        if isinstance(reply, Fault):
            return unreachable(reply.error)
        cursor, names = protocol.read_scan(reply)
        return Names(names, None if cursor == "0" else cursor)

    async def finds(self, ends: tuple[bytes, ...]) -> bool | Unreachable:
        """Whether a key of ours ends so."""
        cursor = b"0"
        while True:
            reply = await self._ask(None, protocol.scan_own(cursor))
            if isinstance(reply, Fault):
                return unreachable(reply.error)
            cursor, found = reply
            if any(key.endswith(ends) for key in found):
                return True
            if cursor == b"0":
                return False

    async def inspect_each(self, names: Sequence[str]) -> list[LockInfo | Unreachable | None]:
        replies = await self._ask_each(scripts.INSPECT, [protocol.inspect(name) for name in names]) if names else []
        infos: list[LockInfo | Unreachable | None] = []
        for name, each in zip(names, replies, strict=True):
            if isinstance(each, Fault):
                infos.append(None if protocol.is_no_lock(each.error) else unreachable(each.error))
            else:
                infos.append(protocol.read_info(name, each))
        return infos

    async def force_release(self, name: str, note: str | None = None) -> bool | Unreachable:
        looked = await self.inspect(name)
        if isinstance(looked, Unreachable):
            return looked
        call = self._guarded(scripts.FORCE_RELEASE, protocol.force_release(name, note), name)
        reply = await self._ask_once(*call)
        return unreachable(reply.error, reply.was_sent) if isinstance(reply, Fault) else bool(reply == 1)

    async def prepare(self, max_ttl: float | None, ends_grace: bool = True) -> Prepared | Unreachable:
        if self._grace is None:
            raise ConfigurationError(
                f"{self._link.server.where} needs no `gripfast init` without failover_grace: if the server has "
                "replicas, add that to the URL, as in redis://host?failover_grace=15"
            )
        server, ask = self._link.server, self.ask_together
        return await self._grace.prepare_server(server.where, ask, max_ttl, server.timeout, ends_grace)

    async def ask_together(self, script: Script, *commands: bytes) -> Any:
        """The replies to commands on one connection, the first of them a script's, which is sent in full."""
        return await self._got(self._link.ask_many([script.in_full(commands[0]), *commands[1:]]))

    # Permits ----------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _permits(self) -> RedisPermits:
        from gripfast.stores.redis.permit_store import RedisPermits  # which a lock does not need

        return RedisPermits(self, self._link)

    async def downgrade(self, hold: Hold, n: int) -> Loss | Unreachable | None:
        return await self._permits.downgrade(hold, n)

    async def resize(self, name: str, limit: int) -> Unreachable | None:
        return await self._permits.resize(name, limit)

    async def inspect_permits(self, name: str, kind: Kind) -> PermitInfo | Unreachable | None:
        return await self._permits.inspect(name, kind)

    async def page_permits(self, kind: Kind, prefix: str, after: str | None) -> PermitPage | Unreachable:
        return await self._permits.page(kind, prefix, after)

    async def permit_names(self, kind: Kind, prefix: str, after: str | None) -> Names | Unreachable:
        return await self._permits.names(kind, prefix, after)

    async def force_release_permits(
        self, name: str, kind: Kind, owner: str | None = None, slot: int | None = None, note: str | None = None
    ) -> bool | Unreachable:
        return await self._permits.force_release(name, kind, owner, slot, note)

    # ------------------------------------------------------------------------------------------------------------------

    def stop_waiting(self) -> None:
        self._is_closing = True
        self._link.stop_waiting()

    async def close(self) -> None:
        await self._link.close()


def _apart(holds: Sequence[Hold]) -> tuple[list[Hold], list[Hold]]:
    """Locks, and permits."""
    return [hold for hold in holds if hold.share is None], [hold for hold in holds if hold.share is not None]


def card_of_this_process(label: Label) -> bytes:
    return protocol.card(label, machine.hostname(), os.getpid())


def _given_back(hold: Hold) -> bytes:
    if hold.keep is not None:
        return protocol.keep(hold.name, hold, hold.keep)
    return protocol.abandon(hold.name, hold.owner)


def _renewal(reply: Any) -> Reason | Unreachable | None:
    if not isinstance(reply, Fault):
        return None
    return "taken" if protocol.is_no_lock(reply.error) else unreachable(reply.error)
