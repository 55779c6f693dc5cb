"""Which followers of a server have what was just written, and whether that is believed. Pure.

WAIT counts followers, whoever they are: also one that attaches while it waits, or that has taken a replica's place.
So a batch of requests that replicas have to acknowledge is followed by ROLE, WAIT and ROLE, on the same connection. The
first ROLE says at which offset of the replication stream the batch ends. The second one says of each follower, by its
address, up to which offset it has acknowledged. An answer is believed if

1. as many servers follow as have to acknowledge, no more, and each of them has acknowledged that offset;
2. they are all that may be promoted, and nobody else: Sentinel or the Cluster lists those for this primary;
3. where nobody lists them, they are the same as when this client first believed an answer of this primary.

More than that number is not believed although each has acknowledged: what is listed was read a few seconds ago, and a
replica that was added since may be promoted, too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from hiredis import ReplyError

from gripfast.stores.redis.keys import pack

ROLE = b"*1\r\n" + pack(b"ROLE")


class Replicas(NamedTuple):
    """Of one primary, as Sentinel or the Cluster lists them: host:port. Also those that are down."""

    promotable: frozenset[bytes] = frozenset()
    listed: frozenset[bytes] = frozenset()
    """Those too that are never promoted."""


class Role(NamedTuple):
    offset: int
    followers: Mapping[bytes, int]
    """By address: what each has acknowledged. One that has just come back may be there twice."""


def address(host: bytes, port: bytes) -> bytes:
    return host + b":" + port


@functools.lru_cache(maxsize=64)
def wait(replicas: int, seconds: float) -> tuple[bytes, bytes, bytes]:
    """What follows a batch. WAIT ends after half of the time that the request has: the server counts in steps of
    100 ms."""
    ms = max(1, round(seconds * 500))
    return ROLE, b"*3\r\n" + pack(b"WAIT", b"%d" % replicas, b"%d" % ms), ROLE


def read_role(reply: Any) -> Role | None:
    """None: it is no primary."""
    if not isinstance(reply, list) or reply[0] != b"master":
        return None
    followers: dict[bytes, int] = {}
    for host, port, offset in reply[2]:
        each = address(host, port)
        followers[each] = max(int(offset), followers.get(each, -1))
    return Role(reply[1], followers)


class Followers:
    """Of one server; what is known of them."""

    def __init__(self, replicas: int) -> None:
        """`replicas`: how many have to acknowledge."""
        self._replicas = replicas
        self._listed: Replicas | None = None
        self._known: frozenset[bytes] | None = None
        """Where nobody lists them."""
        self._incarnation = b""
        self._last: tuple[Any, str | None] = (None, None)
        """A reply, and what came of it: many requests share one."""

    def take(self, listed: Replicas | None) -> None:
        self._listed = listed

    def belong_to(self, incarnation: bytes) -> None:
        """Another primary has others."""
        if incarnation != self._incarnation:
            self._incarnation, self._known = incarnation, None

    def doubt(self, before: Any, acks: Any, after: Any) -> str | None:
        """Why an answer is not believed. `before`, `after`: the replies to ROLE."""
        reply, doubt = self._last
        if reply is not after:
            doubt = self._found(before, acks, after)
            self._last = after, doubt
        return doubt

    def _found(self, before: Any, acks: Any, after: Any) -> str | None:
        first, last = read_role(before), read_role(after)
        if isinstance(acks, ReplyError) and str(acks).startswith("NOPERM"):
            return "this user may not use WAIT: grant it +wait, as docs/redis-replicas.md says"
        if first is None or last is None or type(acks) is not int:
            return "it was demoted meanwhile: try again"
        if len(last.followers) > self._replicas:
            return (
                f"{len(last.followers)} servers follow it ({_texts(last.followers)}), and replicas={self._replicas}: "
                "set replicas, in every client, to how many of them may be promoted, and disconnect all that may not"
            )
        have = frozenset(each for each, offset in last.followers.items() if offset >= first.offset)
        if len(have) < self._replicas:
            return (
                f"only {len(have)} of {self._replicas} replicas have acknowledged it in time: check that all replicas "
                "are connected, and try again"
            )
        return self._not_listed(have) if self._listed is not None else self._not_known(have, first)

    def _not_listed(self, have: frozenset[bytes]) -> str | None:
        assert self._listed is not None
        missing, strangers = self._listed.promotable - have, have - self._listed.listed
        if not missing and not strangers:
            return None
        return (
            f"it was acknowledged by {_texts(have)}, and the listed replicas that may be promoted are "
            f"{_texts(self._listed.promotable) or 'none'}: connect these replicas, and disconnect all other followers. "
            "If both are the same servers, set replica-announce-ip and replica-announce-port to the addresses that are "
            "listed"
        )

    def _not_known(self, have: frozenset[bytes], first: Role) -> str | None:
        if self._known is None and first.followers.keys() == have:
            self._known = have
        if self._known == have:
            return None
        known = self._known or first.followers
        return (
            f"it was acknowledged by {_texts(have)}, and the earlier replicas are {_texts(known) or 'none'}: if the "
            "earlier ones may still be promoted, connect them again, and disconnect all others. If a replica was "
            "replaced, or has another address now, restart this program"
        )


def _texts(addresses: Iterable[bytes]) -> str:
    return ", ".join(sorted(each.decode(errors="replace") for each in addresses))
