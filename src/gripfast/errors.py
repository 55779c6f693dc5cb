"""Every error Gripfast raises, split by who must act.

LockTimeout           the caller: wait longer, or find out why the holder takes so long
LeaseLost             the caller: stop; someone else may hold the lock
StaleToken            the caller: stop; a newer holder has written
StoreUnavailable      the operator: the engine can't be reached, or refused the request
ConfigurationError    the developer: a bad URL, name or ttl, a missing extra, the wrong loop or connection
ClientClosed          the developer: the client is used after its end
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NoReturn

if TYPE_CHECKING:
    from gripfast.core.ports import LockInfo

Reason = Literal["expired", "taken", "broken", "session", "max_hold", "released", "detached"]

WHY: Mapping[Reason, str] = {
    "expired": "it was not renewed before its deadline",
    "taken": "someone else holds the lock now",
    "broken": "it was released by force",
    "session": "its session with the server, or the process that held it, has ended",
    "max_hold": "it was held for max_hold seconds",
    "released": "it was already released",
    "detached": "it was detached, and belongs to whoever adopts it",
}
_MINUTES_FROM = 100.0
"""Seconds, from which on a duration is told in minutes, hours and days."""
_STOP = "Someone else may hold the lock: stop the work that needs it"


class GripfastError(Exception):
    """Base of everything Gripfast raises."""

    if not TYPE_CHECKING:  # which would believe that there is every attribute

        def __getattr__(self, name: str) -> NoReturn:
            has = ", ".join(each for each in vars(self) if not each.startswith("_")) or "no attributes"
            raise AttributeError(f"{type(self).__name__} has no {name!r}: it has {has}", name=name, obj=None)


class LockTimeout(GripfastError, TimeoutError):
    """The wait is over, and someone else still holds the lock. `holder` says who.

    `holder` is None if that is not known. That is rare on most stores, but not on ZooKeeper and in the modes *row* and
    *advisory* of SQL: the holder may just have left when the client looks. So print the error itself, whose text is
    right in any case, or write `busy.holder.label if busy.holder else "somebody"`.
    """

    def __init__(
        self, name: str, waited: float, holder: LockInfo | str | None = None, here: str = "", what: str = "lock"
    ) -> None:
        """`here`: the holder in words, if it is in the process that waited. `what`: the kind of lock, in words.

        Whoever carries an error as JSON, as Celery's results do, brings the holder back as a text: it says who, but
        nobody can ask it for `expires_in`.
        """
        self.name = name
        self.waited = waited
        self.holder: LockInfo | None = None if isinstance(holder, str) else holder
        self._here = here
        self._what = what
        super().__init__(name, waited, holder)

    def __str__(self) -> str:
        holder = describe_holder(self.holder, self._here)
        return f"{self._what} {self.name!r} not acquired in {self.waited:.3g} s: {holder}"


class LeaseLost(GripfastError):
    """The lease is not held any more; `reason` says why. Stop the work that needs the lock.

    - `expired`: it was not renewed before its deadline.
    - `taken`: someone else holds the lock now.
    - `broken`: it was released by force. `note` is the text that `force_release(reason=…)` or `gripfast break --reason`
      gave, or None.
    - `session`: its session with the server, or the process that held it, has ended; or this is a forked child, and the
      lease belongs to the parent process.
    - `max_hold`: it was held for max_hold seconds, so Gripfast released it.
    - `released`: it was already released. Acquire the lock again.
    - `detached`: `lease.detach()` has ended it here. Whoever adopts it holds the lock.
    """

    def __init__(self, name: str, reason: Reason, why: str | None = None, note: str | None = None) -> None:
        """`why`: in words, and what to do, where more is known than the reason says. `note`: what the operator wrote
        who released it by force."""
        self.name = name
        self.reason: Reason = reason
        self.note = note
        super().__init__(name, reason, why, *(() if note is None else (note,)))

    def __str__(self) -> str:
        if self.reason == "released":
            return f"lease on {self.name!r} is not held: {WHY[self.reason]}; acquire the lock again"
        if self.reason == "detached":
            return f"lease on {self.name!r} is not held here any more: {WHY[self.reason]}"
        return f"lease on {self.name!r} lost ({self.reason}): {self.args[2] or f'{why_lost(self)}. {_STOP}'}"


class StaleToken(GripfastError):
    """A fencing check rejected a token, because it has seen a larger one for the resource. There is a newer holder:
    stop writing, and roll back."""

    def __init__(self, resource: str, token: int, seen: int) -> None:
        self.resource = resource
        self.token = token
        self.seen = seen
        super().__init__(resource, token, seen)

    def __str__(self) -> str:
        return f"token {self.token} is stale for {self.resource!r}: a newer holder has token {self.seen}. Stop writing"


class StoreUnavailable(GripfastError):
    """The store can't be reached, or refused the request; `nodes` maps the address of each server to its error."""

    _is_permanent = False  # asking again will not help: a wrong password
    _reply = ""  # the server's own words, for a store that can go on from there

    def __init__(self, message: str, nodes: Mapping[str, str] | None = None) -> None:
        self.message = message
        self.nodes: Mapping[str, str] = dict(nodes or {})
        super().__init__(message, self.nodes)

    def __str__(self) -> str:
        return self.message


class OutcomeUnknown(StoreUnavailable):
    """No answer came, so the request may or may not have taken effect.

    After a failed acquire Gripfast cleans up by itself: you can try again. You can also repeat extend(). Before you
    repeat force_release(), check with inspect() who holds the lock.
    """


class ConfigurationError(GripfastError, ValueError):
    """The program has to be changed: a bad URL, name, ttl or option, a missing extra, the wrong event loop, a lease
    that is entered twice, or a connection or transaction that can't be used."""


class ClientClosed(GripfastError):
    """The client was closed, before the call or during it. Nothing was acquired."""

    def __init__(self, message: str = "this client is closed: connect again") -> None:
        super().__init__(message)


SHOWN_MOST = 200
"""Characters of somebody else's text in a message: who chose it chose its length, too."""


def visible(text: str) -> str:
    """Nothing in it may steer a terminal, forge a line of a log or break a document: what can't be seen is told by its
    number. For all texts that somebody else has chosen: labels, hosts, owners of other software."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _shown(text: str) -> str:
    return visible(text) if len(text) <= SHOWN_MOST else f"{visible(text[:SHOWN_MOST])}…"


def quoted(text: str) -> str:
    """Between quotes, so that the reader sees where somebody else's words begin and end."""
    return repr(text if len(text) <= SHOWN_MOST else f"{text[:SHOWN_MOST]}…")


def why_lost(error: LeaseLost) -> str:
    """The reason in words, with the operator's note."""
    return WHY[error.reason] if error.note is None else f"{WHY[error.reason]}: {quoted(error.note)}"


def describe_holder(holder: LockInfo | None, here: str = "") -> str:
    """Who holds it and for how long, in words an operator can act on. `here`: the holder in this process, in words."""
    if holder is None:
        return "held, but the holder is unknown"
    if holder.kept is not None:
        return _describe_kept(holder)
    if holder.since is None:
        return f"held by software other than Gripfast ({_shown(holder.owner)}), {_expiry(holder.expires_in)}"
    label = f" ({_shown(holder.label)})" if holder.label else ""
    who = f"{here}{', ' if here else ''}pid {holder.pid} on {_shown(holder.host)}{label}"
    expiry = _expiry(holder.expires_in, " unless renewed")
    return f"held by {who} since {holder.since:%Y-%m-%d %H:%M:%S} UTC, {expiry}"


def _describe_kept(holder: LockInfo) -> str:
    by = f" by {_shown(holder.host)}" if holder.host else ""
    label = f" ({_shown(holder.label)})" if holder.label else ""
    since = f" at {holder.since:%Y-%m-%d %H:%M:%S} UTC" if holder.since else ""
    if holder.kept == "done":
        return f"done{by}{label}{since}, as once() has recorded; the record ends in {_seconds(holder.expires_in)}"
    return f"released{by}{label}{since}, but kept for its min_hold: free in {_seconds(holder.expires_in)}"


def _expiry(seconds: float, unless: str = "") -> str:
    return "does not expire by itself" if seconds == math.inf else f"expires in {_seconds(seconds)}{unless}"


def _seconds(number: float) -> str:
    """As `6d 23h`, not as `6.05e+05 s`."""
    if number < _MINUTES_FROM:
        return f"{number:.3g} s"
    from gripfast import durations  # most programs never show such a time

    return durations.shown(number)
