"""What a client knows about the grace of its server.

A server that was just promoted, or has just begun, may lack locks that its predecessor has granted. It grants nothing
until all of those are over: that is its *grace*. It lasts for the largest ttl and for as long as the predecessor may go
on, from the moment at which a client first looked at its marker.

*Which server it is.* An incarnation of a primary is its run id together with its replication id. The run id alone is
not enough: a server that is demoted and promoted again keeps it, and keeps the connections of its clients. So no client
decides by what it was told earlier. Every request that may grant carries the incarnation that the client knows to be
out of its grace, and the script compares it with INFO in the same step (`Script.guarded`). If it differs, the server
grants nothing: owners may renew, repeat their claims and release, a release frees the lock for nobody, and waiters
keep their positions. A claim that gets nothing for this reason says so, and then the client looks at the marker.

*The marker* is a key that says when a client first looked at it in this incarnation, and which ttl is the largest
(`scripts.MARK`). If it is lost, a grace begins: that is the safe side. A client looks at it again now and then, so it
notices that.

A larger ttl than the largest is refused here. Only `gripfast init` raises that, because a server that does not know of
it would grant too early.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from hiredis import ReplyError

from gripfast.core.ports import Prepared, Unreachable, unreachable
from gripfast.errors import ConfigurationError, StoreUnavailable
from gripfast.machine import boottime
from gripfast.stores.faults import Fault, LinkDown
from gripfast.stores.redis import scripts
from gripfast.stores.redis.failover import REPLICAS_MOST, Failover
from gripfast.stores.redis.faults import refused
from gripfast.stores.redis.followers import Followers
from gripfast.stores.redis.keys import MARKER, pack
from gripfast.stores.redis.protocol import command
from gripfast.stores.redis.scripts import Script

_log = logging.getLogger("gripfast.connection")

LOOK_EVERY = 10.0
"""Seconds after which the next claim looks at the marker first."""
PREPARE_MS = 1000
"""For how long it is waited at most until all replicas have what `gripfast init` wrote."""
ANY_SERVER = b"open"
NEW_SERVER = b"new"
"""One that has no grace that would be ended."""
NO_SERVER = pack(b"run_id:?", b"master_replid:?")
"""The incarnation of no server."""

Ask = Callable[[Script, bytes], Awaitable[Any]]
"""The reply to a request, or a Fault."""
Aside = Callable[[Callable[[], Any]], Awaitable[Any]]
"""What a call brings that may block."""


class Marked(NamedTuple):
    """What the marker says."""

    left: float
    """Seconds of grace."""
    incarnation: bytes
    max_ttl: float
    why: str
    replicas: int
    in_words: bytes
    """The incarnation."""


def mark(key: bytes, failover: Failover, in_force: float = 0.0, opens: bytes = b"") -> bytes:
    """`opens`: `ANY_SERVER`, `NEW_SERVER`, or the only incarnation that begins without a grace."""
    times = [b"%d" % round(seconds * 1000) for seconds in (failover.goes_on, failover.max_ttl, in_force)]
    return scripts.MARK.by_hash + pack(key, *times, opens)


def read_mark(reply: Any) -> Marked:
    left, run_id, replid, max_ttl, why, replicas = reply
    in_words = run_id + b" " + replid
    return Marked(left / 1000, pack(run_id, replid), max_ttl / 1000, why.decode(), replicas, in_words)


class Grace:
    """Of one server; for a Cluster, of one node."""

    why_none = "it had no marker: it is new, or has lost its data"
    reopens = False
    """The marker's key may change while the server stays the same: one that is known to grant begins without a grace.
    That it does is true for as long as its incarnation lasts."""

    def __init__(
        self, failover: Failover, where: str, key: bytes = MARKER, now: Callable[[], float] = boottime
    ) -> None:
        self.failover = failover
        self.where = where
        self._key = key
        self._now = now
        self._max_ttl = 0.0
        """In force, as far as this client knows."""
        self.incarnation = NO_SERVER
        """The incarnation that is known to grant."""
        self.in_words = b""
        """The same in other words, for the marker. Empty: none is."""
        self._look_at = 0.0
        self._is_fit = False
        """As it was seen last: the marker can be read, and no more replicas may be promoted than acknowledge."""
        self._followers = Followers(failover.replicas)
        self._begun = b"", "other"
        """The incarnation whose grace the log tells of, and why it began."""

    @property
    def replicas(self) -> int:
        return self.failover.replicas

    @property
    def is_known(self) -> bool:
        """Which ttl is the largest: the marker was read. That only grows."""
        return self._max_ttl > 0.0

    def key(self) -> bytes:
        """Of the marker."""
        return self._key

    def guarded(self, script: Script, packed: bytes, name: str) -> tuple[Script, bytes]:
        """The form of this call, which is about this name, that grants only if the server is the one that is known to
        grant, and whose answer is believed only if enough replicas have acknowledged it."""
        if self.replicas and script.is_believed:
            form = script.acked
        else:
            form = script.guarded
        return form, packed if form is script else script.call(form, packed, self.incarnation)

    def doubt(self, before: Any, acks: Any, after: Any) -> str | None:
        """Why what was just written is not believed. Whoever comes next looks who may be promoted."""
        doubt = self._followers.doubt(before, acks, after)
        if doubt is not None:
            self._look_at = 0.0
        return doubt

    def is_settled(self, ttl: float) -> bool:
        """Nothing has to be known or checked before a claim: the usual case."""
        return self._now() < self._look_at and ttl <= self._max_ttl

    async def begin(self, ask: Ask, aside: Aside, ttl: float) -> Fault | None:
        """Before a claim or a renewal: know the marker, and how many replicas may be promoted. Raises
        ConfigurationError if the ttl is too large."""
        if self._is_fit:
            self._look_at = self._now() + LOOK_EVERY  # for the others, who need not look at the same time
        try:
            found = await self._look(ask)
            trouble = found if isinstance(found, Fault) else await self._too_few(aside) if self.replicas else None
        except BaseException:  # whoever comes next looks
            self._look_at = 0.0
            raise
        self._is_fit = trouble is None
        self._look_at = self._now() + LOOK_EVERY if self._is_fit else 0.0
        if trouble is None:
            self.check(ttl)
        return trouble

    async def _too_few(self, aside: Aside) -> Fault | None:
        try:
            promotable = await aside(self.failover.promotable)
        except LinkDown as down:
            return down.fault
        self._followers.take(promotable)
        count = 0 if promotable is None else len(promotable.promotable)
        if count <= self.replicas:
            return None
        message = (
            f"has {count} replicas that may be promoted, and replicas={self.replicas}: the promoted one may lack "
            f"what was acknowledged. Set replicas={count} in every client"
        )
        return Fault(StoreUnavailable(f"{self.where} {message}", {self.where: message}), "unfit")

    def uncertified(self, known: bytes) -> Unreachable | None:
        """What else may have kept a server from granting that is out of its grace. `known`: the incarnation that was
        known to grant when it was asked."""
        return None

    async def look(self, ask: Ask) -> Unreachable | None:
        """A server granted nothing, because it is in grace or because this client did not know it. None if it grants
        from now on."""
        found = await self._look(ask)
        if isinstance(found, Fault):
            return unreachable(found.error, is_permanent=found.is_permanent)
        if found.left > 0.0:
            return unreachable(self._error(found), ready_in=found.left)
        return None

    def check(self, ttl: float) -> None:
        largest = self._max_ttl or self.failover.max_ttl
        if ttl > largest:
            raise ConfigurationError(
                f"a ttl of {ttl:g} s is larger than the max_ttl that is in force at {self.where}, {largest:g} s: use "
                f"a shorter ttl, or raise it for everybody with `gripfast init URL --max-ttl {ttl:g}`"
            )

    async def prepare_server(
        self,
        where: str,
        ask_together: Callable[..., Awaitable[Any]],
        max_ttl: float | None,
        timeout: float,
        ends_grace: bool,
    ) -> Prepared | Unreachable:
        """It has no grace, or that is ended, and the largest ttl is raised. The replicas must know of that before
        anybody uses it."""
        opens = ANY_SERVER if ends_grace else NEW_SERVER
        packed = mark(self.key(), self.failover, max(self._max_ttl, max_ttl or 0.0), opens)
        wait = command(b"WAIT", b"%d" % REPLICAS_MOST, b"%d" % min(PREPARE_MS, round(timeout * 500)))
        replies = await ask_together(scripts.MARK, packed, wait)
        if isinstance(replies, Fault):
            return unreachable(replies.error)
        for reply in replies:
            if isinstance(reply, ReplyError):
                return unreachable(_without_info(refused(where, reply), where).error)
        found = self._read(read_mark(replies[0]))
        return Prepared(found.max_ttl, max(0, found.replicas - replies[1]), found.left)

    async def _look(self, ask: Ask) -> Marked | Fault:
        opens = self.in_words if self.reopens else b""
        reply = await ask(scripts.MARK, mark(self.key(), self.failover, self._max_ttl, opens))
        if isinstance(reply, Fault):
            return _without_info(reply, self.where)
        return self._read(read_mark(reply))

    def _read(self, found: Marked) -> Marked:
        self._max_ttl = max(self._max_ttl, found.max_ttl)
        self._followers.belong_to(found.incarnation)
        self.incarnation = NO_SERVER if found.left > 0.0 else found.incarnation
        self.in_words = b"" if found.left > 0.0 else found.in_words
        if found.left > 0.0 and (found.why or found.incarnation != self._begun[0]):
            self._begun = found.incarnation, found.why or "other"
            _log.warning("%s", self._error(found), extra={"gripfast_store": self.where})
        return found

    def _error(self, found: Marked) -> StoreUnavailable:
        why = self.why_none if self._begun[1] == "none" else "it was promoted or restarted"
        message = (
            f"grants no lock for another {found.left:.1f} s, until all leases that it may not know of are over: "
            f"{why}. Wait; on a new deployment, run `gripfast init URL` once"
        )
        return StoreUnavailable(f"{self.where} {message}", {self.where: message})


def _without_info(fault: Fault, where: str) -> Fault:
    """The level is refused, never silently off."""
    text = str(fault.error)
    if fault.kind != "no_rights" and "NOINFO" not in text and "nknown" not in text:
        return fault
    message = (
        "can't be used with failover_grace: scripts need INFO there, with run_id and master_replid, and the key of "
        "the marker. Allow +info, +wait and ~gripfast?gripfast:primary (in a Cluster ~{*}?gripfast:primary) to this "
        f"user, or set failover_grace=off and see docs/redis-replicas.md for what that means ({text})"
    )
    return Fault(StoreUnavailable(f"{where} {message}", {where: message}), "unfit")
