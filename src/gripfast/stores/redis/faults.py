"""What can be wrong with a server, in words that name it and say what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from hiredis import ReplyError

from gripfast.errors import OutcomeUnknown, StoreUnavailable
from gripfast.machine import REFUSED
from gripfast.stores import layout
from gripfast.stores.faults import Fault, Kind
from gripfast.stores.redis.keys import LAYOUT

_ADVICE: Mapping[str, str] = {
    "WRONGPASS": "refuses the user name or password: check them in the URL or in the client",
    "NOAUTH": "wants a password: put it into the URL, redis://user:password@host, or into the client",
    "NOPERM": "does not let this user do that: grant it the commands, keys and channels that docs/redis.md lists "
    "(Sentinel, Cluster and Redlock need more: see their pages)",
    "WRONGTYPE": "has a key of another type under this lock's name: choose another name or prefix",
    "READONLY": "is a replica and takes no writes: use the address of the primary",
    "LOADING": "is still loading its data: it will answer when that is done",
    "OOM": "is out of memory (maxmemory): free some or raise the limit",
    "MISCONF": "refuses writes because it can't save to disk: look at its log, and whether the disk is full",
    "BUSY": "is busy with someone's slow script: wait for it, or end it with SCRIPT KILL",
    "MASTERDOWN": "is a replica that has lost its primary: use the address of the primary",
    "NOREPLICAS": "refuses writes because too few replicas are connected: reconnect them, or lower "
    "min-replicas-to-write",
    "CLUSTERDOWN": "belongs to a cluster that is down: run CLUSTER INFO there, and repair the cluster",
    "DB index": "has no database of that number: use a smaller one, or raise its `databases`",
    "MOVED": "is a node of a Redis Cluster: use redis+cluster://host:port, or pass a RedisCluster of redis-py",
    "ASK": "is a node of a Redis Cluster: use redis+cluster://host:port, or pass a RedisCluster of redis-py",
    "TRYAGAIN": "is moving this lock's slot to another node: it will answer when that is done",
    "non local key": "is moving this lock's slot to another node: it will answer when that is done",
}
_KINDS: Mapping[str, Kind] = {
    "WRONGPASS": "login",
    "NOAUTH": "login",
    "NOPERM": "no_rights",
    "WRONGTYPE": "unfit",
    "MOVED": "unfit",
    "ASK": "unfit",
    "DB index": "unfit",
}
"""The others may end by themselves."""
_CODES: Mapping[str, str] = {
    "AuthenticationError": "WRONGPASS",
    "NoPermissionError": "NOPERM",
    "BusyLoadingError": "LOADING",
    "ReadOnlyError": "READONLY",
    "ResponseError": "",
    "ReplyError": "",
}
"""A server's errors, as redis-py raises them and we do, and what redis-py leaves out of their text. By name: redis-py
need not be loaded."""
_CODE = re.compile(rf"\b({'|'.join(_ADVICE)})\b")
_OF_CLUSTER = re.compile("^(MOVED|ASK|TRYAGAIN|CLUSTERDOWN) |non local key")
"""By which a node of a Cluster says that it has done nothing, and why (`stores/cluster/redirects.py`)."""
_OTHER_HOST = re.compile("certificate is not valid for '[^']*'")
_CANT_SERVE = re.compile(r"\b(READONLY|LOADING|MASTERDOWN|NOREPLICAS)\b")
MAX_CLIENTS = "max number of clients"


def was_sent(reply: Any) -> Any:
    """If it is a Fault: something was sent before that, by which the server may know who asked."""
    return reply._replace(was_sent=True) if isinstance(reply, Fault) else reply


def refused(where: str, reply: ReplyError) -> Fault:
    """The server answered with an error."""
    fault = _fault(where, str(reply))
    if _OF_CLUSTER.search(str(reply)):
        fault.error._reply = str(reply)
        return fault._replace(was_sent="non local key" in str(reply))  # within a script, which has begun
    return fault


def is_elsewhere(found: Any) -> bool:
    """A node of a Cluster was asked for what another one has."""
    return isinstance(found, ReplyError) and _OF_CLUSTER.search(str(found)) is not None


def other_layout(where: str, found: Any, ours: int) -> Fault:
    """The number of its layout is another one, or the server does not tell or take it."""
    if isinstance(found, bytes):
        elsewhere = "another database or server"
        return Fault(layout.refusal(where, found.decode(errors="replace"), ours, elsewhere), "unfit")
    fault = refused(
        where,
        found if isinstance(found, ReplyError) else ReplyError("its layout number was deleted meanwhile; try again"),
    )
    if fault.kind != "no_rights" or "key" not in str(found):
        return fault
    words = f"does not let this user use the key {LAYOUT.decode()!r}, which has its layout number"
    acl = LAYOUT.replace(b"\0", b"?").decode()
    advice = f"add ~{acl} to the user's ACL, as docs/redis.md has it"
    return _named(where, f"{words}: {advice} ({_short(str(found))})", "no_rights")


def cant_serve(reply: ReplyError) -> bool:
    """The server is a replica, or was made one, or is about to be one: it reads its data anew, or has lost its own
    replicas. Another server may be the primary now."""
    return _CANT_SERVE.search(str(reply)) is not None


def not_connected(where: str, error: Exception) -> Fault:
    """The connection could not be made, or the server did not like how it began."""
    kinds = [kind.__name__ for kind in type(error).__mro__]
    code = next((_CODES[kind] for kind in kinds if kind in _CODES), None)
    if code is not None or MAX_CLIENTS in str(error):
        code = "NOAUTH" if code == "WRONGPASS" and "required" in str(error) else code
        return _fault(where, f"{code or ''} {error}".strip())
    if found := _OTHER_HOST.search(str(error)):
        advice = "use a host name that it contains, or ssl_check_hostname=false to accept a certificate for any host"
        return _named(where, f"can't be reached: its {found[0]}; {advice}")
    if "SSL" in f"{type(_root(error)).__name__} {error}":
        advice = "check that the server uses TLS on this port, and check the certificates"
        return _named(where, f"can't be reached: {_cause(error)}; {advice}")
    if "TimeoutError" in kinds:
        speaks_tls = ", and that it speaks TLS" if "rediss" in where or "valkeys" in where else ""
        advice = f"check its address and firewalls{speaks_tls}"
        return _named(where, f"can't be reached: the connection was not made in time; {advice}")
    advice = "check that the server runs and that the address is right"
    fault = _named(where, f"can't be reached: {_cause(error)}; {advice}")
    return fault._replace(was_refused=isinstance(_root(error), REFUSED))


def not_answered(where: str, seconds: float) -> Fault:
    message = f"did not answer within {seconds:g} s: check whether it is paused, overloaded or cut off"
    return Fault(OutcomeUnknown(f"{where} {message}", {where: message}))


def no_reply(where: str, seconds: float, error: Exception, was_idle: bool = False) -> Fault:
    """How a socket says that its time is over depends on who keeps it."""
    if isinstance(error, TimeoutError | BlockingIOError):
        return not_answered(where, seconds)
    return cut(where, error, was_idle)


def cut(where: str, error: Exception | None, was_idle: bool = False) -> Fault:
    reason = f": {_cause(error)}" if error is not None and str(error) else ""
    message = f"closed the connection before it answered{reason}; look at the server's log, and try again"
    return Fault(OutcomeUnknown(f"{where} {message}", {where: message}), was_idle=was_idle)


def not_understood(where: str, reply: object) -> Fault:
    message = (
        f"gave an answer that makes no sense ({repr(reply)[:40]}): check that a Redis server is at this address, and "
        "that nothing in between changes its answers"
    )
    return Fault(OutcomeUnknown(f"{where} {message}", {where: message}))


def not_acknowledged(where: str, doubt: str, role: Any) -> Fault:
    """`role`: the reply to ROLE, by which the followers are known."""
    if isinstance(role, ReplyError):
        return was_sent(refused(where, role))  # type: ignore[no-any-return]
    message = f"has made the change, but {doubt}"
    return Fault(OutcomeUnknown(f"{where} {message}", {where: message}))


def another_server(where: str) -> StoreUnavailable:
    message = "led to another server twice in a row: check that its address leads to one primary, and try again"
    return StoreUnavailable(f"{where} {message}", {where: message})


def left(where: str, reply: ReplyError) -> Fault:
    """The connection was left because of this reply to another request: what becomes of this one is not known."""
    message = refused(where, reply).error.nodes[where]
    return Fault(OutcomeUnknown(f"{where} {message}", {where: message}))


def _fault(where: str, text: str) -> Fault:
    if "user executing the script" in text and "NOPERM" not in text:
        text = f"NOPERM {text}"  # Redis 7.0 says ERR if it was a command within a script
    if "unauthenticated" in text:
        text = f"NOAUTH {text}"  # it says ERR if the request is too large for a stranger
    if "without any password configured" in text:
        text = f"WRONGPASS {text}"
    found = _CODE.search(text)
    if found is not None:
        return _named(where, f"{_ADVICE[found[1]]} ({_short(text)})", _KINDS.get(found[1], "down"))
    if MAX_CLIENTS in text:
        return _named(where, f"has no connection left: raise its maxclients or close some ({_short(text)})")
    return _named(where, f"answered with an error: {_short(text)}")


def _named(where: str, message: str, kind: Kind | Literal["down"] = "down") -> Fault:
    return Fault(StoreUnavailable(f"{where} {message}", {where: message}), kind)


def _short(text: str) -> str:
    """Without the place in the script, which tells a user nothing."""
    return text.split(" script: f_")[0].split(", on @user_script")[0].strip().rstrip(".")


def _root(error: Exception) -> Exception:
    """redis-py puts errors of its own around that of the system."""
    cause = error
    while not isinstance(cause, OSError) and isinstance(cause.__cause__ or cause.__context__, Exception):
        cause = cause.__cause__ or cause.__context__  # type: ignore[assignment]
    return cause


def _cause(error: Exception) -> str:
    """redis-py and the system put numbers and addresses around it."""
    cause = _root(error)
    text = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return text.strip().rstrip(".") or type(cause).__name__
