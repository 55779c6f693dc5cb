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
from typing import TYPE_CHECKING, Any, Protocol

from hiredis import ReplyError

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
    LockInfo,
    Loss,
    Page,
    PermitInfo,
    PermitPage,
    PermitStore,
    Store,
    Taken,
    Unreachable,
    unreachable,
)
from gripfast.errors import Reason, StoreUnavailable
from gripfast.stores.faults import Fault, LinkDown
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis import protocol, scripts
from gripfast.stores.redis.conversation import Server
from gripfast.stores.redis.failover import Failover
from gripfast.stores.redis.faults import refused, was_sent
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


class Link(Protocol):
    """The connections of one client to its server, in one colour."""

    suspends: bool
    """What `ask` and `ask_many` return has to be awaited."""
    server: Server
    inboxes: Inboxes

    @property
    def inbox(self) -> Callable[[], Inbox]: ...

    def ask(self, packed: bytes, owner: str | None = None, name: str | None = None) -> Any:
        """The reply, or a Fault. With `owner`, it is remembered which connection carried this until it is answered.
        With `name`, it leaves behind a release of this name whose reply was not read."""
        ...

    def send(self, unread: Unread) -> bool:
        """Have a release leave whose reply nobody waits for. False if it has to be asked for as usual."""
        ...

    async def read_late(self, within: float = 0.0) -> bool:
        """As `ReleasesLazily.read_late`."""
        ...

    def ask_many(self, commands: Sequence[bytes], within: float = math.inf) -> Any:
        """The replies to commands that leave together, or a Fault. `within`: seconds, if less than the time-out."""
        ...

    async def listen(self) -> None:
        """Have a channel from now on. Raises LinkDown."""
        ...

    def stop_listening(self, channel: bytes) -> None: ...

    @property
    def clean_up(self) -> Callable[[str, bytes], bool | None]:
        """Send a clean-up behind the unanswered claims of this owner, on their connections: `Server.clean_up`."""
        ...

    def stop_waiting(self) -> None:
        """The client is being closed: have every waiter retry now, to be refused."""
        ...

    async def close(self) -> None: ...


class RedisStore(Store, PermitStore):
    capabilities = CAPABILITIES

    def __init__(self, link: Link, failover: Failover | None = None) -> None:
        self._link = link
        self._failover = failover
        self.inboxes = link.inboxes
        self.inbox = link.inbox  # type: ignore[method-assign]  # a call less, on the hot path
        self._card = functools.lru_cache(maxsize=256)(card_of_this_process)
        self._vain = 0
        """Subscriptions that were ended since the last one that an answer knew of."""
        self._is_closing = False

    def inbox(self) -> Inbox:
        return self._link.inbox()

    async def claim(self, claim: Claim) -> Granted | Taken | Unreachable:
        if claim.share is not None:
            return await self._permits.claim(claim)
        link = self._link
        channel = None if claim.inbox is None else link.server.channel
        if channel is not None:
            link.inboxes.add(claim.owner, claim.inbox)  # type: ignore[arg-type]
        packed = protocol.claim(claim.name, claim, self._card(claim.label), channel or b"")
        reply = link.ask(packed, claim.owner, claim.name)
        if link.suspends:
            reply = await reply
        if type(reply) is not int:
            return await self._claim_slowly(claim, channel, packed, reply)
        return Granted(reply, claim.ttl)

    async def _claim_slowly(
        self, claim: Claim, channel: bytes | None, packed: bytes, reply: Any
    ) -> Granted | Taken | Unreachable:
        """The first reply was no grant."""
        reply = await self._made_good(scripts.CLAIM, packed, reply, claim.owner)
        if isinstance(reply, list) and claim.inbox is not None:
            try:
                if not await self._hears(channel, protocol.is_heard(reply)):
                    answer = await self.claim(claim)
                    return answer._replace(was_sent=True) if isinstance(answer, Unreachable) else answer
            except LinkDown as down:
                reply = was_sent(down.fault)
        if isinstance(reply, Fault):
            return unreachable(reply.error, reply.was_sent, reply.was_refused, reply.is_permanent)
        answer = protocol.read_claim(reply, claim, channel)
        if isinstance(answer, Taken) and claim.inbox is None and claim.owner in self._link.server.late:
            self._clean_up_after(claim.name, claim.owner)  # nobody asks for it any more
        return answer

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
        packed = protocol.release(hold.name, hold)
        reply = link.ask(packed)
        if link.suspends:
            reply = await reply
        answer = None if reply == 1 else await self._release_slowly(hold, packed, reply)
        if hold.owner in link.server.late:
            self._clean_up_after(hold.name, hold.owner)  # not earlier: it would do the work of the release
        return answer

    async def release_lazily(self, hold: Hold, told: Callable[[bool], None]) -> None:
        """As usual if a claim of its owner is still on its way, or if there is no connection at hand."""
        link = self._link
        if hold.owner in link.server.late or not link.send(Unread(hold.name, protocol.release(hold.name, hold), told)):
            answer = await self.release(hold)
            if not isinstance(answer, Unreachable):
                told(answer is None)

    async def read_late(self, within: float = 0.0) -> bool:
        return await self._link.read_late(within)

    async def _release_slowly(self, hold: Hold, packed: bytes, reply: Any) -> Loss | Unreachable | None:
        was_lost = isinstance(reply, Fault)
        reply = await self._made_good(scripts.RELEASE, packed, reply)
        if isinstance(reply, Fault):
            return "taken" if _is_no_lock(reply) else unreachable(reply.error)
        # The first of two may have done it: then it is not this owner's any more.
        return None if reply == 1 or was_lost else (await self._why([hold]))[0]

    async def _keep(self, hold: Hold, keep: Keep) -> Loss | Unreachable | None:
        packed = protocol.keep(hold.name, hold, keep)
        first = await self._got(self._link.ask(packed))
        reply = await self._made_good(scripts.KEEP, packed, first)
        if isinstance(reply, Fault):
            return "taken" if _is_no_lock(reply) else unreachable(reply.error)
        if self._clean_up_after(hold.name, hold.owner) is False:
            return _may_take_effect(hold.name)
        # The first of two may have done it, and the rest of a min_hold may be over since. A "done" lasts longer.
        was_released = isinstance(first, Fault) and kept(keep.owner) == "min_hold"
        return None if reply == 1 or was_released else (await self._why([hold]))[0]

    async def adopt(self, hold: Hold, claim: Claim) -> Granted | Loss | Unreachable:
        """Noted like a claim: it may take effect although nobody has read its answer."""
        packed = protocol.adopt(hold.name, hold.owner, claim, self._card(claim.label))
        reply = await self._got(self._link.ask(packed, claim.owner))
        reply = await self._made_good(scripts.ADOPT, packed, reply, claim.owner)
        if isinstance(reply, Fault):
            if _is_no_lock(reply):
                return "taken"
            return unreachable(reply.error, reply.was_sent, reply.was_refused, reply.is_permanent)
        return Granted(reply, claim.ttl) if reply else (await self._why([hold]))[0]

    async def detach(self, hold: Hold, token: int) -> Loss | Unreachable | None:
        """Behind a claim that was not answered goes a clean-up of what it may get, and not of what is detached."""
        left = self._link.clean_up(hold.owner, protocol.disown_in_full(hold.name, hold.owner, token))
        return _may_take_effect(hold.name) if left is False else None

    async def renew(self, holds: Sequence[Hold], within: float = math.inf) -> Sequence[Loss | Unreachable | None]:
        if any(hold.share is not None for hold in holds):
            locks, permits = _apart(holds)
            renewed = iter(await self.renew(locks, within)), iter(await self._permits.renew(permits, within))
            return [next(renewed[hold.share is not None]) for hold in holds]
        replies: list[Any] = []
        for start in range(0, len(holds), CHUNK):
            chunk = holds[start : start + CHUNK]
            replies += await self._ask_each(scripts.RENEW, [protocol.renew(hold.name, hold) for hold in chunk], within)
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
            commands = [_given_back(hold) for hold in chunk]
            if script is scripts.KEEP:  # first: a clean-up would free what is to be kept
                replies = await self._ask_each(script, commands, rules.GIVE_BACK_WITHIN)
                kept = [hold for hold, reply in zip(chunk, replies, strict=True) if not isinstance(reply, Fault)]
                followed = dict(zip(kept, self._clean_up_after_each(kept), strict=True))
                late = [followed.get(hold, False) for hold in chunk]
            else:
                late = self._clean_up_after_each(chunk)
                replies = await self._ask_each(script, commands, rules.GIVE_BACK_WITHIN)
            for hold, is_late, reply in zip(chunk, late, replies, strict=True):
                trouble: Unreachable | None = None
                if isinstance(reply, Fault) and not _is_no_lock(reply):
                    trouble = unreachable(reply.error)
                elif is_late:
                    trouble = _may_take_effect(hold.name)
                troubles.append(trouble)
        return troubles

    def _clean_up_after_each(self, holds: Sequence[Hold]) -> list[bool]:
        """Whether a request of the owner may still take effect."""
        return [self._clean_up_after(hold.name, hold.owner) is False for hold in holds]

    def _clean_up_after(self, name: str, owner: str) -> bool | None:
        """In full: nobody reads the reply, and so nobody would see that the script was forgotten."""
        return self._link.clean_up(owner, protocol.abandon_in_full(name, owner))

    async def inspect(self, name: str) -> LockInfo | Unreachable | None:
        reply = await self._ask(scripts.INSPECT, protocol.inspect(name), name)
        return unreachable(reply.error) if isinstance(reply, Fault) else protocol.read_info(name, reply)

    async def page(self, prefix: str, after: str | None) -> Page | Unreachable:
        """In the order of the server's own tables; a name may come twice if they are rebuilt meanwhile."""
        reply = await self._ask(None, protocol.scan(prefix, after or "0"))
        if isinstance(reply, Fault):
            return unreachable(reply.error)
        cursor, names = protocol.read_scan(reply)
        commands = [protocol.inspect(name) for name in names]
        replies = await self._ask_each(scripts.INSPECT, commands) if commands else []
        infos: list[LockInfo] = []
        for name, each in zip(names, replies, strict=True):
            if isinstance(each, Fault):
                if not _is_no_lock(each):
                    return unreachable(each.error)
            elif (info := protocol.read_info(name, each)) is not None:
                infos.append(info)
        return Page(infos, None if cursor == "0" else cursor)

    async def force_release(self, name: str, note: str | None = None) -> bool | Unreachable:
        """Not asked twice: if the first request did it, the second would free the next one's. So it looks first, which
        may be repeated and shows whether the connection still works."""
        looked = await self.inspect(name)
        if isinstance(looked, Unreachable):
            return looked
        packed = protocol.force_release(name, note)
        reply = await self._got(self._link.ask(packed))
        if not isinstance(reply, Fault):
            reply = await self._made_good(scripts.FORCE_RELEASE, packed, reply)
        return unreachable(reply.error) if isinstance(reply, Fault) else bool(reply == 1)

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

    async def _got(self, reply: Any) -> Any:
        return await reply if self._link.suspends else reply

    async def _ask(self, script: Script | None, packed: bytes, name: str | None = None) -> Any:
        """The reply, or a Fault."""
        return await self._made_good(script, packed, await self._got(self._link.ask(packed, None, name)))

    async def _made_good(self, script: Script | None, packed: bytes, reply: Any, owner: str | None = None) -> Any:
        """What can be mended is: a connection that was too old, a script that was forgotten. The reply, or a Fault.

        Every request may be repeated.
        """
        if isinstance(reply, Fault) and reply.was_idle:
            reply = was_sent(await self._got(self._link.ask(packed, owner)))
        if script is not None and protocol.forgot_script(reply):
            reply = await self._got(self._link.ask(script.in_full(packed), owner))
        return refused(self._link.server.where, reply) if isinstance(reply, ReplyError) else reply

    async def _ask_each(self, script: Script, commands: Sequence[bytes], within: float = math.inf) -> list[Any]:
        """A reply or a Fault for each."""
        replies = await self._got(self._link.ask_many(commands, within))
        if isinstance(replies, Fault) and replies.was_idle:
            replies = await self._got(self._link.ask_many(commands, within))
        if isinstance(replies, Fault):
            return [replies] * len(commands)
        forgotten = [at for at, reply in enumerate(replies) if protocol.forgot_script(reply)]
        if forgotten:
            again = await self._got(self._link.ask_many([script.in_full(commands[at]) for at in forgotten], within))
            for place, at in enumerate(forgotten):
                replies[at] = again if isinstance(again, Fault) else again[place]
        return [refused(self._link.server.where, each) if isinstance(each, ReplyError) else each for each in replies]


def _apart(holds: Sequence[Hold]) -> tuple[list[Hold], list[Hold]]:
    """Locks, and permits."""
    return [hold for hold in holds if hold.share is None], [hold for hold in holds if hold.share is not None]


def card_of_this_process(label: str | None) -> bytes:
    return protocol.card(label, machine.hostname(), os.getpid())


def _may_take_effect(name: str) -> Unreachable:
    return unreachable(StoreUnavailable(f"a request for {name!r} that got no answer may still take effect"))


def _given_back(hold: Hold) -> bytes:
    if hold.keep is not None:
        return protocol.keep(hold.name, hold, hold.keep)
    return protocol.abandon(hold.name, hold.owner)


def _renewal(reply: Any) -> Reason | Unreachable | None:
    if not isinstance(reply, Fault):
        return None
    return "taken" if _is_no_lock(reply) else unreachable(reply.error)


def _is_no_lock(fault: Fault) -> bool:
    """Someone has put something else under the key: there is nothing of ours any more."""
    return "WRONGTYPE" in str(fault.error)
