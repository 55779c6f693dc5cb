"""How requests are sent, for locks and permits alike: repeated if need be, guarded by the grace, and acknowledged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from hiredis import ReplyError

from gripfast.core.ports import Granted, Hold, Inbox, Taken, Unreachable, unreachable
from gripfast.errors import ConfigurationError, StoreUnavailable
from gripfast.stores.faults import Fault
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis import followers, protocol
from gripfast.stores.redis.conversation import Server, may_repeat, repeated
from gripfast.stores.redis.failover import Failover
from gripfast.stores.redis.faults import not_acknowledged, refused
from gripfast.stores.redis.grace import Grace
from gripfast.stores.redis.script import Script
from gripfast.stores.redis.unread import Unread


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

    def ask_acked(
        self, commands: Sequence[bytes], wait: Sequence[bytes], within: float = math.inf, owner: str | None = None
    ) -> Any:
        """The same, with those to `wait` behind the others (`followers.wait`): which replicas have what was written. No
        other request waits for that. `owner`: whose claim it is, if it is one."""
        ...

    async def aside(self, call: Callable[[], Any]) -> Any:
        """What it returns or raises; nobody else waits for it. Raises LinkDown if it takes too long."""
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


class Requests:
    """What is below a store."""

    def __init__(self, link: Link, failover: Failover | Grace | None = None) -> None:
        """A Grace is one that several stores share, or that has a clock or a key of its own."""
        self._link = link
        self._grace = Grace(failover, link.server.where) if isinstance(failover, Failover) else failover

    async def _begin(self, ttl: float) -> Unreachable | None:
        """Before a claim, where there is a grace. Raises ConfigurationError if the ttl is too large."""
        assert self._grace is not None
        if self._grace.is_settled(ttl):
            return None
        trouble = await self._grace.begin(self._ask, self._link.aside, ttl)
        if trouble is None:
            return None
        return unreachable(trouble.error, trouble.was_sent, trouble.was_refused, trouble.is_permanent)

    def _unless_confirmed(self, answer: Granted | Taken) -> Granted | Taken:
        """With acknowledgements, a grant that is pushed is not believed: its owner claims once more."""
        if isinstance(answer, Taken) and self._grace is not None and self._grace.replicas:
            return answer._replace(source=protocol.UNCONFIRMED)
        return answer

    async def _in_grace(self) -> Unreachable | None:
        """The lock is free, and nobody is granted it: the server is in grace, or it is one that this client does not
        know yet. None if it grants from now on."""
        assert self._grace is not None
        known = self._grace.incarnation
        return await self.grace_left() or self._grace.uncertified(known)

    async def grace_left(self) -> Unreachable | None:
        """None: the server is out of its grace."""
        assert self._grace is not None
        return await self._grace.look(self._ask)

    def _guarded(self, script: Script, packed: bytes, name: str) -> tuple[Script, bytes]:
        """The form of a request that may grant."""
        return (script, packed) if self._grace is None else self._grace.guarded(script, packed, name)

    async def _begin_renewal(self, holds: Sequence[Hold]) -> list[Unreachable | None]:
        """Why each can't be renewed. A replica may have been added that has to acknowledge, too; and one lease with a
        ttl that is too large must not cost the others."""
        assert self._grace is not None
        looks = self._grace.replicas or not self._grace.is_known
        trouble = await self._begin(0.0) if looks and holds else None
        return [trouble or self._too_long(hold.ttl) for hold in holds]

    def _too_long(self, ttl: float) -> Unreachable | None:
        assert self._grace is not None
        try:
            self._grace.check(ttl)
        except ConfigurationError as error:
            return unreachable(StoreUnavailable(str(error)))
        return None

    async def _got(self, reply: Any) -> Any:
        return await reply if self._link.suspends else reply

    async def _ask(self, script: Script | None, packed: bytes, name: str | None = None) -> Any:
        """The reply, or a Fault."""
        return await self._made_good(script, packed, await self._sent(script, packed, None, name))

    async def _sent(
        self, script: Script | None, packed: bytes, owner: str | None = None, name: str | None = None
    ) -> Any:
        if script is None or not script.is_acked:
            return await self._got(self._link.ask(packed, owner, name))
        replies = await self._sent_many(script, [packed], math.inf, owner)
        return replies if isinstance(replies, Fault) else replies[0]

    async def _sent_many(
        self, script: Script, commands: Sequence[bytes], within: float, owner: str | None = None
    ) -> list[Any] | Fault:
        """What has to be acknowledged, and was not, is a Fault."""
        if not script.is_acked:
            sent: list[Any] | Fault = await self._got(self._link.ask_many(commands, within))
            return sent
        assert self._grace is not None
        wait = followers.wait(self._grace.replicas, min(within, self._link.server.timeout))
        replies = await self._got(self._link.ask_acked(commands, wait, within, owner))
        if isinstance(replies, Fault):
            return replies
        answers: list[Any]
        *answers, before, acks, after = replies
        doubt = self._grace.doubt(before, acks, after)
        if doubt is None:
            return answers
        fault = not_acknowledged(self._link.server.where, doubt, before)
        return [fault.copy() if protocol.is_believed(answer) else answer for answer in answers]

    async def _ask_once(self, script: Script, packed: bytes) -> Any:
        """A force release is not sent twice: if the first request did it, the second would free the next one's. So
        whoever sends it looks first, which may be repeated and shows whether the connection still works."""
        reply = await self._got(self._link.ask(packed))
        return reply if isinstance(reply, Fault) else await self._made_good(script, packed, reply)

    async def _made_good(self, script: Script | None, packed: bytes, reply: Any, owner: str | None = None) -> Any:
        """What can be mended is: a connection that was too old, a script that was forgotten. The reply, or a Fault.

        Every request may be repeated, except those of `_ask_once`.
        """
        if is_second := may_repeat(reply):
            reply = await self._sent(script, packed, owner)
        if script is not None and protocol.forgot_script(reply):
            reply = await self._sent(script, script.in_full(packed), owner)
        if isinstance(reply, ReplyError):
            reply = refused(self._link.server.where, reply)
        return repeated(reply) if is_second else reply

    async def _ask_each(self, script: Script, commands: Sequence[bytes], within: float = math.inf) -> list[Any]:
        """A reply or a Fault for each."""
        replies = await self._sent_many(script, commands, within)
        if may_repeat(replies):
            replies = await self._sent_many(script, commands, within)
        if isinstance(replies, Fault):
            return [replies] * len(commands)
        forgotten = [at for at, reply in enumerate(replies) if protocol.forgot_script(reply)]
        if forgotten:
            again = await self._sent_many(script, [script.in_full(commands[at]) for at in forgotten], within)
            for place, at in enumerate(forgotten):
                replies[at] = again if isinstance(again, Fault) else again[place]
        return [refused(self._link.server.where, each) if isinstance(each, ReplyError) else each for each in replies]
