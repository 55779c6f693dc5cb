"""Names to paths and back, contenders in their order, holder details, and kazoo's errors in words: all pure.

A contender is `<owner>__lock__<number>`, as kazoo's own Lock writes it: so both are in one queue. The number has ten
digits; after the largest int of 32 bits it becomes negative.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, unquote

from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    NoAuthError,
    OperationTimeoutError,
    SessionExpiredError,
)

from gripfast.core import rules
from gripfast.core.ports import Label, LockInfo
from gripfast.errors import OutcomeUnknown, StoreUnavailable
from gripfast.stores import holder

LOCK = "__lock__"
HALF_ROUND = 2**31
UNSURE = (TimeoutError, ConnectionLoss, OperationTimeoutError, SessionExpiredError, ConnectionClosedError)
"""Errors after which it may have been done. All others are answers."""
_CONTENDER = re.compile(rf"^(?P<owner>.*)(?:{LOCK}|__rlock__)(?P<number>\d{{10}}|-\d{{9,10}})$", re.DOTALL)
"""Readers of kazoo's ReadLock, too: a lock that excludes everybody has to wait for them."""


class Contender(NamedTuple):
    number: int
    node: str
    owner: str


class AnyContender(Protocol):
    """For a lock or for permits: a tuple whose number comes first."""

    @property
    def number(self) -> int: ...
    @property
    def node(self) -> str: ...
    @property
    def owner(self) -> str: ...
    def __lt__(self, other: Any, /) -> bool: ...


Queued = TypeVar("Queued", bound=AnyContender)


def encoded(name: str) -> str:
    """One component of a path. A name of dots alone would be a step in the path."""
    text = quote(name, safe="")
    return text.replace(".", "%2E") if set(name) == {"."} else text


def decoded(component: str) -> str:
    return unquote(component)


def parent(root: str, name: str) -> str:
    """Of the nodes that hold this lock or wait for it."""
    return f"{root}/{encoded(name)}"


def layout_node(root: str) -> str:
    """Of the number of the layout. No name is encoded like that: behind a percent sign it has two digits."""
    return f"{root}/%layout"


def steps(path: str) -> list[str]:
    """All paths from the first step of this one to itself."""
    names = path.split("/")
    return ["/".join(names[: depth + 1]) for depth in range(1, len(names))]


def in_order(children: Iterable[str]) -> list[Contender]:
    """The queue, the first one first."""
    found = [match for child in children if (match := _CONTENDER.match(child))]
    return by_number([Contender(int(match["number"]), match[0], match["owner"]) for match in found])


def by_number(contenders: Iterable[Queued]) -> list[Queued]:
    queue = sorted(contenders)
    if queue and queue[-1].number - queue[0].number > HALF_ROUND:  # the numbers have just become negative
        queue.sort(key=lambda each: each.number % (2 * HALF_ROUND))
    return queue


def with_owners(children: Iterable[str]) -> list[Contender]:
    """Contenders of any kind, in no order, for one who looks for owners of Gripfast."""
    return [Contender(0, child, child.partition("__")[0]) for child in children]


def position(queue: Iterable[Contender], path: str) -> int | None:
    """Of the node with this path; None if it is not in the queue."""
    node = path.rpartition("/")[2]
    for index, each in enumerate(queue):
        if each.node == node:
            return index
    return None


def write_details(label: Label, host: str, pid: int, ttl: float) -> bytes:
    return json.dumps({"host": host, "pid": pid, **holder.told(label), "ttl": ttl}, ensure_ascii=False).encode()


MARK = b"gripfast"
"""The data of the node of a name that we have made. Behind it and a blank may be a note, in JSON: which owner was
force-released, and what it is to be told."""

MARK_OF_PERMITS = b"gripfast-permits"
"""With it begins the data of the node of a semaphore's or read/write lock's name."""


def is_marked(data: bytes) -> bool:
    return data == MARK or data.startswith(MARK + b" ")


def is_of_permits(data: bytes) -> bool:
    """The node of a name of semaphores or read/write locks (`permit_protocol.py`)."""
    return data.startswith(MARK_OF_PERMITS)


def is_of_semaphore(path: str) -> bool:
    return path.rpartition("/")[0].endswith("/%semaphore")


def write_note(owner: str, note: str) -> bytes:
    return MARK + b" " + json.dumps({"owner": owner, "note": note}).encode()


def read_note(data: bytes, owner: str) -> str | None:
    """None if there is none for this owner."""
    found = holder.read_object(data.removeprefix(MARK))
    note = found.get("note")
    return note if found.get("owner") == owner and isinstance(note, str) else None


def lock_info(name: str, owner: str, got: tuple[bytes, Any], waiters: int) -> LockInfo:
    """`got`: a node's data, and what the server says about it. Users of kazoo's own Lock write what they like."""
    data, stat = got
    details = holder.read_details(data) or holder.Details(data.decode(errors="replace"))
    return holder.lock_info(name, owner, stat.czxid, details, stat.ctime * 1000, _read_ttl(data), waiters)


def _read_ttl(data: bytes) -> float:
    ttl = holder.read_object(data).get("ttl")
    return ttl if isinstance(ttl, int | float) and 0 <= ttl <= rules.TTL_MAX else math.inf


def fault(where: str, error: BaseException) -> StoreUnavailable:
    """What could not be done, and why."""
    if isinstance(error, NoAuthError):
        text = "this identity may not do that here: check the ACLs of the root, and the login in the URL or the client"
    elif isinstance(error, AuthFailedError):
        text = "the login was refused: check the user and password in the URL, or the client's auth_data"
    elif isinstance(error, ConnectionLoss):
        text = "the connection broke before the answer came: try again"
    elif isinstance(error, SessionExpiredError) and not str(error):
        text = "the session ended before the answer came: try again"
    else:
        text = str(error) or type(error).__name__
    kind = OutcomeUnknown if isinstance(error, UNSURE) else StoreUnavailable
    return kind(f"{where}: {text}", {where: text})


def not_connected(where: str, troubles: Mapping[str, str]) -> StoreUnavailable:
    """With the troubles of each server, as far as they are known."""
    known = "; ".join(f"{server}: {trouble}" for server, trouble in troubles.items())
    reason = known or "no answer yet, or no such host"
    text = f"no connection ({reason}): check that the servers run and that the addresses are right"
    return StoreUnavailable(f"{where}: {text}", dict(troubles) or {where: text})


def is_permanent(error: BaseException) -> bool:
    return isinstance(error, NoAuthError | AuthFailedError)
