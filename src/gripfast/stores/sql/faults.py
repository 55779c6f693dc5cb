"""What is wrong with connections, in words, for both colours."""

from __future__ import annotations

from typing import Literal

from gripfast.errors import OutcomeUnknown, StoreUnavailable
from gripfast.stores.sql.ports import Answer, Dialect, Fault, Kind, Refusal, SessionGone


def broken(where: str, error: OSError, was_idle: bool) -> Fault:
    kind: Kind | Literal["down"] = "gone" if isinstance(error, SessionGone) else "down"
    return Fault(OutcomeUnknown(f"{where}: the connection broke: {error}", {where: str(error)}), kind, was_idle)


def no_answer_in(where: str, seconds: float) -> Fault:
    text = f"no answer within {seconds:g} s"
    return Fault(OutcomeUnknown(f"{where}: {text}: is the server overloaded, stopped or cut off?", {where: text}))


def gone_is_down(dialect: Dialect, answer: Answer) -> Answer | Fault:
    """A session that the server has ended: on a shared connection as good as one that was found closed."""
    if isinstance(answer, Refusal) and answer.kind == "gone":
        return dialect.refused(answer)._replace(kind="down", was_idle=True)
    return answer


def all_in_use(where: str, most: int) -> Fault:
    text = f"all {most} connections are in use"
    return Fault(StoreUnavailable(f"{where}: {text}: give a larger max_connections", {where: text}), "full")


def not_told(where: str) -> Fault:
    text = "there is a proxy that pools connections: releases are not heard through it"
    return Fault(StoreUnavailable(f"{where}: {text}", {where: text}), "unfit")


def closed(where: str) -> Fault:
    text = "this client is closed"
    return Fault(StoreUnavailable(f"{where}: {text}", {where: text}))
