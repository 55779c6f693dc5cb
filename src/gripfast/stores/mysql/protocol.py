"""What the server means by its error numbers and settings, in words that name it and say what to do. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gripfast.errors import OutcomeUnknown, StoreUnavailable
from gripfast.machine import REFUSED
from gripfast.stores.sql.ports import Fault, Kind, Refusal

NO_SUCH_SESSION = 1094
"""To end a session that has ended is no error."""

_KINDS: Mapping[Kind, tuple[int, ...]] = {
    "busy": (1205, 3572, 1969, 3024),
    "retry": (1213, 3058),
    "no_table": (1146,),
    "no_rights": (1044, 1095, 1142, 1143, 1227, 1370),
    "read_only": (1290, 1792, 1836),
    "full": (1040, 1203, 1226),
    "broken_off": (1317,),
    "gone": (1053, 1927, 2006, 2013, 3032, 4031),
    "login": (1045, 1049, 1130, 1251, 1275, 1524, 1698, 1820, 1862, 2059, 2061, 3118, 3159, 3955, 4151),
}
_KIND_OF = {code: kind for kind, codes in _KINDS.items() for code in codes}

_RIGHTS = "SELECT, INSERT, UPDATE, DELETE, CREATE"
_NO_HOST_RIGHT, _NO_DATABASE, _BLOCKED = 1130, 1049, 1129
_CANNOT_CONNECT, _TLS_FAILED = 2003, 2026


def kind_of(code: int) -> Kind:
    return _KIND_OF.get(code, "other")


def refused(where: str, database: str, refusal: Refusal) -> Fault:
    """The server answered with an error."""
    return _fault(where, refusal.kind, f"{_advice(database, refusal)} ({_said(refusal.code, refusal.message)})")


def not_connected(where: str, database: str, error: BaseException) -> Fault:
    """The connection could not be made, or the server did not like how it began."""
    cause, code = _cause(error), _code(error)
    if isinstance(cause, TimeoutError):
        advice = "check its address and firewalls, and that it is not overloaded"
        return _fault(where, "down", f"can't be reached: the connection was not made in time; {advice}")
    if type(cause).__name__.startswith("SSL") or code == _TLS_FAILED:
        advice = "check that the server uses TLS on this port, and check the certificates"
        return _fault(where, "down", f"can't be reached: {_text(cause)}; {advice}")
    if isinstance(cause, OSError) or code == _CANNOT_CONNECT:
        fault = _fault(where, "down", f"can't be reached: {_text(cause)}; {_IS_IT_THERE}")
        return fault._replace(was_refused=isinstance(cause, REFUSED))
    if "cryptography" in str(error):
        advice = "install it with pip install 'PyMySQL[rsa]', or let the connection use TLS"
        return _fault(where, "login", f"uses a login method that needs the Python package cryptography: {advice}")
    if code and kind_of(code) not in ("gone", "broken_off"):
        said = str(getattr(error, "orig", error).args[-1])
        return refused(where, database, Refusal(kind_of(code), str(code), said))
    return _fault(where, "down", f"can't be reached: {_text(cause)}; {_IS_IT_THERE}")


_IS_IT_THERE = "check that the server runs and that the address is right"


def no_answer(where: str, seconds: float) -> Fault:
    advice = "check whether it is paused, overloaded or cut off"
    return _fault(where, "down", f"can't be reached: no answer within {seconds:g} s; {advice}")


def several_primaries(variables: Iterable[tuple[bytes | None, ...]]) -> str | None:
    """What makes this server one of several that are written to, if anything does; from its global variables.

    A cluster with one node left counts: the others come back.
    """
    values = {(name or b"").decode(): (value or b"").decode().lower() for name, value in variables}
    if values.get("wsrep_on") in ("on", "1") and values.get("wsrep_provider", "none") not in ("", "none"):
        return "Galera"
    if values.get("group_replication_single_primary_mode") in ("off", "0"):
        return "group replication with several primaries"
    return None


def logs_statements(variables: Iterable[tuple[bytes | None, ...]]) -> bool:
    """Whether it replicates by statements."""
    values = {name: (value or b"").lower() for name, value in variables}
    return values.get(b"log_bin") in (b"on", b"1") and values.get(b"binlog_format") == b"statement"


def unfit(where: str, cluster: str) -> Fault:
    """Two nodes of such a cluster would grant the same row or user-level lock. To retry will not help."""
    message = (
        f"is a node of {cluster}. There each node has its own row locks and user-level locks, so two clients could "
        "hold the same lock. Use mode=lease, or a server with a single primary"
    )
    return _fault(where, "unfit", message)


def _advice(database: str, refusal: Refusal) -> str:
    code = int(refusal.code)
    advice: Mapping[Kind, str] = {
        "busy": "could not lock the row in time: if another session keeps it locked, end that session; otherwise check "
        "whether the server is overloaded",
        "retry": "rolled back the transaction because of a deadlock, even after several attempts: try again",
        "no_table": f"has no tables for locks in {database!r}: create them with the output of `gripfast schema mysql`",
        "no_rights": f"does not let this user do that: GRANT {_RIGHTS} ON `{database}`.* TO the user "
        "(CREATE is not needed if the tables exist)",
        "read_only": "takes no writes, because it is read-only: use the address of the primary",
        "full": "has no connection left: raise max_connections (or this user's limit), or close some",
        "gone": "ended the session: look at its log for the reason, and try again",
        "broken_off": "cancelled the statement, as an administrator or a time limit may do: try again",
        "login": "refuses the login: check the user name, the password, the hosts that the user may connect from, "
        "and whether TLS is required",
        "unfit": "does not support this request",
        "unstorable": "can't store this name or label: use other characters",
        "other": "answered with an error",
    }
    if code == _NO_DATABASE:
        return f"has no database {database!r}, or this user may not see it: create it, or correct the URL"
    if code == _BLOCKED:
        return "blocks this host after too many failed connections: run FLUSH HOSTS on the server"
    return advice[refusal.kind]


def _fault(where: str, kind: Kind | str, message: str) -> Fault:
    made = OutcomeUnknown if kind in ("gone", "broken_off") else StoreUnavailable
    return Fault(made(f"{where} {message}", {where: message}), kind)  # type: ignore[arg-type]


def _said(code: str, message: str) -> str:
    return f"error {code}: {message.strip().rstrip('.')}"


def _code(error: BaseException) -> int:
    """The server's or the driver's own number, also where SQLAlchemy has wrapped their error."""
    args = getattr(error, "orig", error).args
    return args[0] if args and isinstance(args[0], int) else 0


def _cause(error: BaseException) -> BaseException:
    """PyMySQL keeps it aside."""
    cause = getattr(error, "original_exception", None) or error
    while not isinstance(cause, OSError):
        inner = getattr(cause, "orig", None) or cause.__cause__ or cause.__context__
        if not isinstance(inner, BaseException) or inner is cause:
            break
        cause = inner
    return cause


def _text(cause: BaseException) -> str:
    system = cause.strerror if isinstance(cause, OSError) else None
    text = system or str(cause.args[-1] if cause.args else "")
    return text.strip().rstrip(".") or type(cause).__name__
