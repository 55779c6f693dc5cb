"""Names to paths and back, contenders in their order, cards, and kazoo's errors in words: all pure.

A contender is `<owner>__lock__<number>`, as kazoo's own Lock writes it: so both stand in one line. The number has ten
places; it becomes negative when it has been through all that an int of 32 bits has.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
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
from gripfast.core.ports import LockInfo
from gripfast.errors import ConfigurationError, OutcomeUnknown, StoreUnavailable
from gripfast.stores.card import Details, read_details, read_moment, read_object

LOCK = "__lock__"
HALF_ROUND = 2**31
UNSURE = (TimeoutError, ConnectionLoss, OperationTimeoutError, SessionExpiredError, ConnectionClosedError)
"""Errors after which it may have been done. All others are answers."""
LABEL_MOST = 50_000
"""Characters, of up to six bytes in a node's data. A server takes a request of 1 MB unless told otherwise."""
_CONTENDER = re.compile(rf"^(?P<owner>.*)(?:{LOCK}|__rlock__)(?P<number>\d{{10}}|-\d{{9,10}})$", re.DOTALL)
"""Readers of kazoo's ReadLock, too: whoever has the lock alone has to wait for them."""


class Contender(NamedTuple):
    number: int
    node: str
    owner: str


def encoded(name: str) -> str:
    """One component of a path. A name of dots alone would be a step in the path."""
    text = quote(name, safe="")
    return text.replace(".", "%2E") if set(name) == {"."} else text


def decoded(component: str) -> str:
    return unquote(component)


def steps(path: str) -> list[str]:
    """All paths from the first step of this one to itself."""
    names = path.split("/")
    return ["/".join(names[: depth + 1]) for depth in range(1, len(names))]


def in_order(children: Iterable[str]) -> list[Contender]:
    """Those that are in line, the first one first."""
    found = [match for child in children if (match := _CONTENDER.match(child))]
    line = sorted(Contender(int(match["number"]), match[0], match["owner"]) for match in found)
    if line and line[-1].number - line[0].number > HALF_ROUND:  # the numbers have just become negative
        line.sort(key=lambda each: each.number % (2 * HALF_ROUND))
    return line


def check_label(label: str | None) -> None:
    """Before anything is asked for: a server answers too large a request by closing the connection, each time anew."""
    if label is not None and len(label) > LABEL_MOST:
        raise ConfigurationError(f"a label may have {LABEL_MOST:,} characters on ZooKeeper, not {len(label):,}")


def write_card(label: str | None, host: str, pid: int, ttl: float) -> bytes:
    return json.dumps({"host": host, "pid": pid, "label": label, "ttl": ttl}, ensure_ascii=False).encode()


def lock_info(name: str, owner: str, data: bytes, stat: Any, waiters: int) -> LockInfo:
    """Who uses kazoo's own Lock writes what it likes."""
    card = read_details(data) or Details(data.decode(errors="replace"))
    return LockInfo(
        name=name,
        owner=owner,
        token=stat.czxid,
        label=card.label,
        host=card.host,
        pid=card.pid,
        since=read_moment(stat.ctime * 1000),
        expires_in=_read_ttl(data),
        waiters=waiters,
    )


def _read_ttl(data: bytes) -> float:
    ttl = read_object(data).get("ttl")
    return ttl if isinstance(ttl, int | float) and 0 <= ttl <= rules.TTL_MAX else math.inf


def fault(where: str, error: BaseException) -> StoreUnavailable:
    """What could not be done, and why."""
    if isinstance(error, NoAuthError):
        text = "this identity may not do that here: check the ACLs of the root, and the login in the URL or the client"
    elif isinstance(error, AuthFailedError):
        text = "the login was refused"
    else:
        text = str(error) or type(error).__name__
    kind = OutcomeUnknown if isinstance(error, UNSURE) else StoreUnavailable
    return kind(f"{where}: {text}", {where: text})


def not_connected(where: str, troubles: Mapping[str, str]) -> StoreUnavailable:
    """With the troubles of each server, as far as they are known."""
    told = "; ".join(f"{server}: {trouble}" for server, trouble in troubles.items())
    text = f"no connection ({told or 'no answer yet, or no such host'}): check that it runs, and its address"
    return StoreUnavailable(f"{where}: {text}", dict(troubles) or {where: text})


def is_permanent(error: BaseException) -> bool:
    return isinstance(error, NoAuthError | AuthFailedError)
