"""What can be wrong with a member, in words that name it and say what to do; and what a gRPC status tells.

The rule for a status: only one that is known to be a refusal says that the request had no effect. Every other one
leaves its outcome unknown: a put that timed out ends with status 2, and etcd carries out a put that it then answers
with "database space exceeded".
"""

from __future__ import annotations

from collections.abc import Mapping

from gripfast.errors import OutcomeUnknown, StoreUnavailable
from gripfast.machine import REFUSED
from gripfast.stores.etcd.link import Refusal
from gripfast.stores.faults import Fault, Kind

OK, CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED = range(8)
RESOURCE_EXHAUSTED, FAILED_PRECONDITION, ABORTED, OUT_OF_RANGE, UNIMPLEMENTED, INTERNAL = range(8, 14)
UNAVAILABLE, DATA_LOSS, UNAUTHENTICATED = range(14, 17)

REFUSALS = frozenset(
    {INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, FAILED_PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED, UNAUTHENTICATED}
)
"""A request that ends with one of these had no effect."""
LEASE_NOT_FOUND = "etcdserver: requested lease not found"
LEASE_EXISTS = "etcdserver: lease already exists"
NO_SPACE = "etcdserver: mvcc: database space exceeded"

AUTH_IS_OFF = "etcdserver: authentication is not enabled"
_NO_TOKEN = (
    "etcdserver: invalid auth token", "etcdserver: revision of auth store is old", "etcdserver: user name is empty"
)  # fmt: skip
"""With a new token, the request may be repeated."""
_LEFT: Mapping[str, str] = {
    "etcdserver: no leader": "has no leader: too few members are up, or this one is cut off from the others",
    "etcdserver: not capable": "is still starting: it will answer when it has found the others",
    "etcdserver: rpc not supported for learner": "is a learner, which answers no clients: leave it out of the URL",
    "etcdserver: too many requests": "has too much to do: it is overloaded, or its disk is too slow",
}
"""Nothing was done, and another member may do better."""
_KINDS: Mapping[str, Kind] = {
    "etcdserver: permission denied": "no_rights",
    "etcdserver: user name is empty": "login",
    "etcdserver: authentication failed, invalid user ID or password": "login",
    "etcdserver: user name not found": "login",
    "etcdserver: request is too large": "unstorable",
    "etcdserver: too many operations in txn request": "unfit",
}
_ADVICE: Mapping[str, str] = {
    "etcdserver: permission denied": "does not let this user do that: grant its role what docs/etcd.md lists",
    "etcdserver: user name is empty": "wants a user name and password: put them into the URL, etcd://user:password@host",
    "etcdserver: authentication failed, invalid user ID or password": "refuses the user name or password: check them "
    "in the URL",
    "etcdserver: request is too large": "takes no request as large as this one: raise its --max-request-bytes",
    "etcdserver: too many operations in txn request": "takes fewer operations at once than we send: raise its "
    "--max-txn-ops to 128",
}


def judged(where: str, status: int, message: str) -> Refusal | Fault:
    """What a status other than 0 says about the request."""
    if message in _LEFT:
        return _named(where, f"{_LEFT[message]} ({message})")._replace(was_sent=False)
    if status in REFUSALS:
        return Refusal(status, message, where)
    if message == NO_SPACE:
        words = "has used up its space: compact and defragment it, then disarm its alarm"
        return _unknown(where, f"{words} ({message})")._replace(kind="full")
    return _unknown(where, f"ended the request with status {status} ({message or 'no message'})")


def lacks_token(answer: object) -> bool:
    """Nothing was done, because the token has expired, or rights have changed since it was made, or it had none."""
    return isinstance(answer, Refusal) and answer.message in _NO_TOKEN


def fault_of(refusal: Refusal) -> Fault:
    """For a store that can do nothing else about it."""
    advice = _ADVICE.get(refusal.message, "refused the request")
    fault = _named(refusal.where, f"{advice} ({refusal.message})", _KINDS.get(refusal.message, "other"))
    return fault._replace(was_sent=refusal.was_sent)


def was_sent(answer: object) -> object:
    """An earlier try of it may have had an effect."""
    return answer._replace(was_sent=True) if isinstance(answer, Refusal | Fault) else answer


def not_connected(where: str, error: Exception) -> Fault:
    text = f"{type(error).__name__} {error}"
    if "ALPN" in text:
        advice = "check that an etcd member is at this address, and no proxy for HTTP/1.1"
    elif "SSL" in text or "ertificate" in text:
        advice = "check that the member uses TLS on this port (etcds://), and check the certificates"
    elif isinstance(error, TimeoutError):
        error = TimeoutError("the connection was not made in time")
        advice = "check its address and firewalls"
    else:
        advice = "check that the server runs and that the address is right"
    fault = _named(where, f"can't be reached: {_cause(error)}; {advice}")
    return fault._replace(was_sent=False, was_refused=isinstance(error, REFUSED))


def not_answered(where: str, seconds: float, was_sent: bool = True) -> Fault:
    words = f"did not answer within {seconds:.3g} s: check whether it is paused, overloaded or cut off"
    return _unknown(where, words)._replace(was_sent=was_sent)


def cut(where: str, error: Exception | str | None, was_sent: bool = True) -> Fault:
    reason = _cause(error) if isinstance(error, Exception) else error or ""
    words = f"closed the connection before it answered{': ' if reason else ''}{reason}; look at its log, and try again"
    return _unknown(where, words)._replace(was_sent=was_sent)


def not_processed(where: str, why: str) -> Fault:
    """It says so itself."""
    return _named(where, f"did not process this request, because {why}; try again")._replace(was_sent=False)


def not_understood(where: str, what: str) -> Fault:
    words = (
        f"gave an answer that makes no sense ({what[:80]}): check that an etcd member is at this address, and that "
        "nothing in between changes its answers"
    )
    return _unknown(where, words)


def _unknown(where: str, words: str) -> Fault:
    return Fault(OutcomeUnknown(f"{where} {words}", {where: words}))


def _named(where: str, words: str, kind: Kind | None = None) -> Fault:
    return Fault(StoreUnavailable(f"{where} {words}", {where: words}), kind or "down")


def _cause(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.strip().rstrip(".") or type(error).__name__
