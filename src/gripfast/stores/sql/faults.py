"""What is wrong with connections, in words, for both drivers."""

from __future__ import annotations

from typing import Literal

from gripfast.errors import OutcomeUnknown, StoreUnavailable
from gripfast.stores.sql.ports import Fault, Kind, SessionGone

CHECK_SERVER = "check whether the server is overloaded, stopped or cut off"


def broken(where: str, error: OSError, was_idle: bool) -> Fault:
    kind: Kind | Literal["down"] = "gone" if isinstance(error, SessionGone) else "down"
    text = f"the connection broke: {error}; try again, and look at the server's log if this happens often"
    return Fault(OutcomeUnknown(f"{where}: {text}", {where: str(error)}), kind, was_idle)


def no_answer_in(where: str, seconds: float) -> Fault:
    text = f"no answer within {_about(seconds)} s"
    return Fault(OutcomeUnknown(f"{where}: {text}: {CHECK_SERVER}", {where: text}))


def all_in_use(where: str, most: int) -> Fault:
    text = f"all {most} connections are in use"
    error = StoreUnavailable(f"{where}: {text}: release locks, or set a larger max_connections", {where: text})
    return Fault(error, "full", was_sent=False)


def none_free(where: str, most: int, seconds: float) -> Fault:
    """Requests share a few connections, however many there may be: more would not make a slow server faster."""
    text = f"none of its {most} shared connections was free within {_about(seconds)} s"
    advice = "check whether the server is overloaded, and whether another session has locked Gripfast's tables"
    return Fault(StoreUnavailable(f"{where}: {text}: {advice}", {where: text}), "full", was_sent=False)


def _about(seconds: float) -> str:
    """What is left of 5 seconds a moment later is 5 seconds."""
    return f"{float(f'{max(0.0, seconds):.3g}'):g}"


def not_notified(where: str) -> Fault:
    text = "a proxy that pools connections does not pass on notifications; to get them, use the server's own address"
    return Fault(StoreUnavailable(f"{where}: {text}", {where: text}), "unfit")


def closed(where: str) -> Fault:
    text = "this client is closed"
    return Fault(StoreUnavailable(f"{where}: {text}", {where: text}), was_sent=False)
