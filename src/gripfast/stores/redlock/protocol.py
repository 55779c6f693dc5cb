"""From requests to packed commands, from replies to answers: pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hiredis import ReplyError

from gripfast.core.ports import Hold, Label, LockInfo
from gripfast.core.redlock.nodes import (
    LOCKED,
    Accept,
    Answer,
    Busy,
    Each,
    Establish,
    Failed,
    ForceRelease,
    Free,
    Freed,
    Inspect,
    Locked,
    Mark,
    Names,
    Newborn,
    Renew,
    Request,
    Scan,
    TakeBack,
    Unlock,
    Unmarked,
    Vote,
    Wake,
    Why,
)
from gripfast.stores.redis import keys, protocol
from gripfast.stores.redis import scripts as of_one
from gripfast.stores.redis.faults import not_understood, refused
from gripfast.stores.redis.keys import pack, side_key
from gripfast.stores.redis.scripts import Script
from gripfast.stores.redlock import scripts

BIRTH = pack(b"gripfast" + keys.MARK + b"birth")

_SCRIPTS: dict[type, Script] = {
    Vote: scripts.VOTE,
    Accept: scripts.ACCEPT,
    Renew: of_one.RENEW,
    TakeBack: scripts.TAKE_BACK,
    Why: of_one.WHY,
    Unlock: scripts.UNLOCK,
    Free: scripts.FREE,
    Wake: scripts.WAKE,
    Inspect: of_one.INSPECT,
    ForceRelease: scripts.FORCE_RELEASE,
    Mark: scripts.MARK,
    Establish: scripts.ESTABLISH,
}


class Wording:
    """How one client speaks to its nodes."""

    def __init__(self, grace: float, card: Callable[[Label], bytes]) -> None:
        self._grace = pack(b"%d" % round(grace * 1000))
        self._card = card

    def pack(self, request: Request, channel: bytes) -> bytes:
        """Every command of it, by hash. The channel is where a waiter listens at this node; empty if nowhere."""
        if type(request) is Vote:
            return self._vote(request, channel)
        if type(request) is Free:
            return self._free(request)
        if type(request) is Each:
            return b"".join([self.pack(each, channel) for each in request.requests])
        return self._rare(request)

    def in_full(self, request: Request, channel: bytes) -> bytes:
        """The same for a node that has forgotten the scripts."""
        if isinstance(request, Each):
            return b"".join([self.in_full(each, channel) for each in request.requests])
        packed = self.pack(request, channel)
        script = _SCRIPTS.get(type(request))
        return packed if script is None else script.in_full(packed)

    def forgot(self, replies: Sequence[Any]) -> bool:
        return any(protocol.forgot_script(reply) for reply in replies)

    def read(self, request: Request, replies: Sequence[Any], where: str, is_repeated: bool = False) -> Answer:
        """What can't be read is this node's failure, and not that of everybody who asks the others, too."""
        try:
            if type(request) is Each:
                asked = zip(request.requests, replies, strict=True)
                return [self._read(each, reply, where, is_repeated) for each, reply in asked]
            return self._read(request, replies[0], where, is_repeated)
        except (TypeError, ValueError, LookupError, AttributeError):
            return Failed(not_understood(where, replies[0]).error, was_asked=True)

    # -- requests ------------------------------------------------------------------------------------------------

    def _vote(self, vote: Vote, channel: bytes) -> bytes:
        owner = vote.owner.encode()
        value = b"%b.%d" % (owner, vote.attempt)
        size = len(value)
        return b"%b$%d\r\n%b\r\n$%d\r\n%b.\r\n%b%b\r\n$%d\r\n%d\r\n%b$%d\r\n%b\r\n" % (
            _voting(vote.name),
            size, value,
            len(owner) + 1, owner,
            protocol.packed_terms(vote.ttl, self._card(vote.label), size), value,
            len(str(vote.proposal)), vote.proposal,
            self._grace,
            len(channel), channel,
        )  # fmt: skip

    def _free(self, free: Free) -> bytes:
        owner = free.owner.encode()
        return b"%b$%d\r\n%b.\r\n" % (_freeing(free.name), len(owner) + 1, owner)

    def _rare(self, request: Request) -> bytes:
        if isinstance(request, Scan):
            return protocol.scan(request.prefix, request.cursor)
        if isinstance(request, Mark | Establish):
            seen = pack(b"%d" % request.seen) if isinstance(request, Establish) else b""
            return _SCRIPTS[type(request)].by_hash + BIRTH + seen
        assert not isinstance(request, Each | Vote | Free)
        key = request.name
        if isinstance(request, Inspect):
            return protocol.inspect(key)
        if isinstance(request, Wake):
            return scripts.WAKE.by_hash + _side(key, b"line", b"places")
        if isinstance(request, ForceRelease):
            of_it = pack(key.encode()) + _side(key, b"line", b"broken", b"note")
            return scripts.FORCE_RELEASE.by_hash + of_it + pack((request.note or "").encode())
        return self._of_an_attempt(key, request)

    def _of_an_attempt(self, key: str, request: Accept | Renew | TakeBack | Why | Unlock) -> bytes:
        value = f"{request.owner}.{request.attempt}"
        if isinstance(request, Renew):
            return protocol.renew(key, Hold(request.name, value, request.ttl, request.shortens))
        if isinstance(request, Why):
            return protocol.why(key, Hold(request.name, value, 0.0))
        packed_value = pack(value.encode())
        if isinstance(request, Unlock):
            return scripts.UNLOCK.by_hash + pack(key.encode()) + packed_value
        ttl, keep = protocol.times(request.ttl)
        rest = pack(keep, b" %b\n%b" % (self._card(request.label), value.encode()), b"%d" % request.token)
        if isinstance(request, Accept):
            return scripts.ACCEPT.by_hash + keys.renewing(key) + packed_value + rest
        return scripts.TAKE_BACK.by_hash + keys.renewing(key) + BIRTH + packed_value + pack(ttl) + rest + self._grace

    # -- answers -------------------------------------------------------------------------------------------------

    def _read(self, request: Request, reply: Any, where: str, is_repeated: bool) -> Answer:
        if isinstance(reply, ReplyError):
            fault = refused(where, reply)
            has_run = type(request) is not Vote or _SCRIPT.search(str(reply)) is not None
            return Failed(fault.error, was_asked=has_run, is_permanent=fault.is_permanent)
        if type(request) is Vote:
            return LOCKED if reply == 1 else _read_vote(request, reply)
        if type(request) is Free:
            return Freed(bool(reply & 1) or is_repeated, reply >= 2)
        if isinstance(request, Accept):
            return Locked(reply == 1, 0 if reply == 1 else int(reply)) if reply != 0 else Busy(None, 0)
        if isinstance(request, Unlock | ForceRelease):
            return Freed(bool(reply & 1), reply >= 2)
        if isinstance(request, Inspect):
            return _bare(protocol.read_info(request.name, reply))
        if isinstance(request, Why):
            return protocol.read_why(reply)
        if isinstance(request, Scan):
            return Names(*protocol.read_scan(reply))
        return bool(reply == 1)


_SCRIPT = re.compile("script: |user_script")
"""In an error: the script had begun. Otherwise it was refused before."""


def _read_vote(vote: Vote, reply: Any) -> Answer:
    if isinstance(reply, bytes):
        return Locked(False, int(reply))
    if len(reply) == 1:
        return Unmarked(reply[0])
    if len(reply) == 2:
        return Newborn(reply[1] / 1000)
    return Busy(_bare(protocol.read_info(vote.name, reply)), protocol.last_token(reply[2]))


def _bare(info: LockInfo | None) -> LockInfo | None:
    """Somebody else's lock is shown as it is."""
    return info if info is None or info.since is None else replace(info, owner=info.owner.rpartition(".")[0])


@functools.lru_cache(maxsize=1024)
def _voting(key: str) -> bytes:
    return scripts.VOTE.by_hash + keys.settling(key) + BIRTH


@functools.lru_cache(maxsize=1024)
def _freeing(key: str) -> bytes:
    return scripts.FREE.by_hash + pack(key.encode()) + _side(key, b"line", b"places")


def _side(key: str, *kinds: bytes) -> bytes:
    return pack(*[side_key(key.encode(), kind) for kind in kinds])
