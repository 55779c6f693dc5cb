"""What PostgreSQL's errors mean, and what an operator can do about them. No I/O.

A refusal has a SQLSTATE. A connection that could not be made has nothing but libpq's words, in English unless the
server speaks another language to strangers: those are passed on as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gripfast.errors import OutcomeUnknown, StoreUnavailable
from gripfast.stores.sql.ports import Fault, Kind, Refusal

_KINDS: Mapping[str, Kind] = {
    "55P03": "busy",  # lock_timeout, NOWAIT
    "57014": "busy",  # statement_timeout
    "40001": "retry",
    "40P01": "retry",
    "23505": "retry",  # two make the tables at the same time: no request of ours can do this otherwise
    "42P07": "retry",
    "42710": "retry",
    "26000": "retry",  # a proxy has changed the session under us: the wire prepares nothing any more
    "42P05": "retry",
    "42P01": "no_table",
    "3F000": "no_table",
    "42501": "no_rights",
    "25006": "read_only",
    "53300": "full",
    "57P01": "gone",
    "57P02": "gone",
    "57P03": "gone",
    "57P05": "gone",
    "25P03": "gone",
    "25P04": "gone",
    "3D000": "login",
    "22P05": "unstorable",
}

_TABLES = "gripfast_lock, gripfast_row, gripfast_grant"
_CREATE_THEM = "create them with the output of `gripfast schema postgresql`"

_ADVICE: Mapping[Kind, str] = {
    "busy": "did not finish the statement in time: if another session keeps the row locked, end that session; "
    "otherwise check whether the server is overloaded",
    "retry": "gave up the transaction because of concurrent ones (a deadlock or a serialization failure), even after "
    "several attempts: try again",
    "no_table": f"has no tables for locks: {_CREATE_THEM}, or let this user create tables",
    "no_rights": "does not let this user do that: GRANT SELECT, INSERT, UPDATE, DELETE ON "
    f"{_TABLES} TO the user. If the tables are missing, {_CREATE_THEM}",
    "read_only": "takes no writes, because it is a replica or was set to read-only: use the address of the primary, "
    "or name all hosts, as in postgresql://host1,host2/database",
    "full": "has no connection left: raise its max_connections (or the limit of this user or database), or close some",
    "gone": "ended the session: look at its log for the reason, and try again",
    "broken_off": "cancelled the statement, as an administrator or a time limit may do: try again",
    "login": "refuses the login: check the user, the password, the database, and the server's pg_hba.conf",
    "unfit": "does not support this request",
    "unstorable": "can't store this name or label, because the database's encoding is not UTF8 and has no such "
    "characters: use other characters, or a database with the encoding UTF8",
    "other": "answered with an error",
}

_SPECIAL: Mapping[str, str] = {
    "53100": "has no space left on its disk: free some",
    "53200": "is out of memory: look at its log",
    "57P03": "takes no connections now, because it is starting, stopping or recovering: try again in a moment",
    "42703": "has lock tables of another version of Gripfast: change them to what `gripfast schema postgresql` prints",
}

_UNKNOWN_SETTING = "42704"
_NEEDS_14 = "is too old for mode=advisory, which needs PostgreSQL 14 (idle_session_timeout): use mode=lease or mode=row"
_MAY_NOT_END = (
    "does not let this user end that session: connect as the user who holds the lock, or GRANT pg_signal_backend"
)
_BEHIND_PROXY = (
    "is reached through a proxy that pools connections, such as pgbouncer. Locks with mode=row and mode=advisory need "
    "a session of their own: use the server's own address, or mode=lease"
)

_NOT_CONNECTED: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("full", re.compile(r"too many (clients|connections)|connection slots are reserved|no more connections allowed")),
    (
        "login",
        re.compile(
            r"authentication failed|no password supplied|no pg_hba\.conf entry|pg_hba\.conf rejects|is not permitted to"
            r"|(role|database|user) \"[^\n]*\" does not exist|no such (database|user)|permission denied for database"
            r"|wrong password|not currently accepting connections"
        ),
    ),
)
_STARTING = re.compile(r"the database system is (?!in hot)")
_REPLICA = re.compile(r"session is read-only|server is in hot standby mode")
_NOT_IN_TIME = "the connection was not made in time"


def kind_of(sqlstate: str, is_fatal: bool = False) -> Kind:
    """What is fatal to the session is one kind, whatever the reason: the session is gone."""
    if is_fatal:
        return "gone"
    if sqlstate.startswith("28"):
        return "login"
    return _KINDS.get(sqlstate, "other")


def refused(where: str, refusal: Refusal) -> Fault:
    if refusal.code == _UNKNOWN_SETTING and "idle_session_timeout" in refusal.message:
        return _fault(where, _NEEDS_14, "unfit")
    words = f"{_words(refusal)} ({_short(refusal.message)})"
    error = OutcomeUnknown if refusal.kind == "gone" else StoreUnavailable
    return Fault(error(f"{where} {words}", {where: words}), refusal.kind)


_REFUSED = re.compile("Connection refused|No such file or directory")


def not_connected(where: str, reasons: Sequence[str | None]) -> Fault:
    """Why not, for each host that was tried, in libpq's words; None if it was not made in time."""
    kinds = {_kind_of_words(reason or "") for reason in reasons}
    told = "; ".join(dict.fromkeys(_short(reason or _NOT_IN_TIME) for reason in reasons))
    if len(kinds) == 1 and (kind := kinds.pop()) is not None:
        return _fault(where, f"{_ADVICE[kind]} ({told})", kind)
    if all(_STARTING.search(reason or "") for reason in reasons):
        return _fault(where, f"{_SPECIAL['57P03']} ({told})")
    if any(_REPLICA.search(reason or "") for reason in reasons):
        advice = "wait for the failover to finish, or add the primary's address"
        return _fault(where, f"has no primary among the hosts that could be reached ({told}): {advice}")
    fault = _fault(where, f"can't be reached: {told}; check that the server runs, its address and firewalls")
    return fault._replace(was_refused=all(_REFUSED.search(reason or "") for reason in reasons))


def behind_proxy(where: str) -> Fault:
    return _fault(where, _BEHIND_PROXY, "unfit")


def _fault(where: str, words: str, kind: Kind | None = None) -> Fault:
    error = StoreUnavailable(f"{where} {words}", {where: words})
    return Fault(error) if kind is None else Fault(error, kind)


def _kind_of_words(text: str) -> Kind | None:
    return next((kind for kind, pattern in _NOT_CONNECTED if pattern.search(text)), None)


def _words(refusal: Refusal) -> str:
    if refusal.kind == "no_rights" and "terminat" in refusal.message:
        return _MAY_NOT_END
    return _SPECIAL.get(refusal.code, _ADVICE[refusal.kind])


def _short(text: str) -> str:
    """On one line; libpq begins each with the host, and the server with how bad it is."""
    lines = [line.strip() for line in text.splitlines()]
    told = [line for line in lines if line and not line.startswith("Is the server running")]  # we ask that ourselves
    return " ".join(told).removeprefix("connection failed: ").rstrip(".")
