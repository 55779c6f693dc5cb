"""What can be wrong with Sentinels, and with what they say, in words that name them and say what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from hiredis import ReplyError

from gripfast.errors import StoreUnavailable
from gripfast.stores.faults import Fault, Kind
from gripfast.stores.redis.faults import not_connected, refused

_NO_ANSWER = "did not answer in time"


def of_sentinel(name: str, error: Exception | None) -> Fault:
    """One of them can't be asked. None: it has not answered yet."""
    if error is None:
        return _fault(name, _NO_ANSWER)
    if isinstance(error, ReplyError) and "unknown command" in str(error):
        return _fault(name, "is no Sentinel: use the addresses of Sentinels, whose usual port is 26379", "unfit")
    fault = refused(name, error) if isinstance(error, ReplyError) else not_connected(name, error)
    code = str(error).partition(" ")[0]
    if fault.kind == "login":
        words = "refuses the user name or password" if code == "WRONGPASS" else "wants a password"
        return _fault(name, f"{words}: set sentinel_password, and sentinel_username if it has users ({error})", "login")
    if fault.kind == "no_rights":
        return _fault(
            name, f"does not let this user use SENTINEL: grant it what docs/sentinel.md lists ({error})", "no_rights"
        )
    return fault


def none_knows(where: str, service: str, unknown: list[str], troubles: Mapping[str, Fault]) -> Fault:
    """`unknown`: those that answered, and do not know the service. `troubles`: why the others gave no answer."""
    each = "; ".join(str(fault.error) for fault in troubles.values())
    if not unknown:
        kinds = {fault.kind for fault in troubles.values()}
        return _fault(where, f"can't be used: no Sentinel says where its primary is: {each}", _common(kinds))
    message = (
        f"can't be used: {', '.join(unknown)} know{'s' if len(unknown) == 1 else ''} no service {service!r}: check the "
        f"name in the URL; SENTINEL MASTERS lists the services there"
    )
    # Another one, which can't be asked now, may know it.
    return _fault(where, f"{message} ({each})") if each else _fault(where, message, "unfit")


def primary_down(where: str, service: str, primary: str, error: Exception) -> Fault:
    """It could not be reached, or did not like how the connection began."""
    fault = not_connected(primary, error)
    message = f"can't be used: its primary, {fault.error}"
    if fault.kind == "down":
        message += f". If it stays down, the Sentinels promote a replica; SENTINEL CKQUORUM {service} says if they can"
    return fault._replace(error=StoreUnavailable(f"{where} {message}", {where: message}))


def disagree(where: str, service: str) -> Fault:
    message = (
        f"has Sentinels that do not agree which replicas {service} has: they will when the failover is over. If this "
        f"lasts, compare what each of them says to SENTINEL REPLICAS {service}"
    )
    return Fault(StoreUnavailable(f"{where} {message}", {where: message}))


def no_primary(where: str, primary: str) -> Fault:
    message = (
        f"can't be used: the Sentinels say that {primary} is its primary, and that server says that it is a replica"
    )
    return _fault(where, f"{message}: a failover may be under way; look at SENTINEL MASTERS and at ROLE on the server")


def role_refused(where: str, primary: str, error: ReplyError) -> Fault:
    fault = refused(primary, error)
    message = f"can't be used: its primary, {fault.error}"
    if fault.kind == "no_rights":
        message = f"can't be used: its primary, {primary}, does not let this user use ROLE: grant it +role"
    return fault._replace(error=StoreUnavailable(f"{where} {message}", {where: message}))


def _common(kinds: set[Kind | Literal["down"]]) -> Kind | Literal["down"]:
    """Retrying is in vain only if it is so with every one of them."""
    return kinds.pop() if len(kinds) == 1 else "down"


def _fault(name: str, message: str, kind: Kind | Literal["down"] = "down") -> Fault:
    return Fault(StoreUnavailable(f"{name} {message}", {name: message}), kind)
