"""A lock is a name plus settings, the same in both colours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from gripfast.api.misuse import shape_that_refuses
from gripfast.core import rules
from gripfast.core.lease import RW_LIMIT, Share, Want
from gripfast.core.ports import Taken
from gripfast.errors import ConfigurationError, LockTimeout, Reason
from gripfast.runtime.here import in_this_process


class _LocksWait:
    def __repr__(self) -> str:
        return "<the lock's wait>"


LOCKS_WAIT = cast(float, _LocksWait())
"""The default of `acquire(wait=…)`: the lock's own setting. None can't be it, because None means "for ever"."""


def checked_wait(wait: object) -> float | None:
    """Of one call. True is what threading calls `blocking` there: to wait, not to try."""
    if wait is True:
        raise ConfigurationError(
            "wait must be a number of seconds, not True: leave it out to wait until the lock is free, or write wait=5 "
            "to wait for 5 seconds at most"
        )
    return rules.checked_wait(wait)


class LockSettings:
    def __init__(
        self,
        name: str,
        prefix: str,
        *,
        ttl: float,
        max_ttl: float,
        renew: bool,
        max_hold: float | None,
        reentrant: bool,
        label: str | None,
        on_lost: Callable[[Any, Reason], Any] | None,
        group: str | None,
        wait: float | None,
        share: Share | None = None,
        min_hold: float | None = None,
        is_once: bool = False,
        lazy_release: bool = False,
    ) -> None:
        _check_on_lost(on_lost)
        if lazy_release and min_hold is not None:
            raise ConfigurationError(
                "lazy_release and min_hold do not go together, because the store has to confirm that the name stays "
                "taken: leave one of them out"
            )
        self.want = Want(
            rules.checked_name(name),
            prefix + name,
            rules.checked_ttl(ttl, max_ttl),
            rules.checked_flag("renew", renew),
            rules.checked_max_hold(max_hold),
            rules.checked_label(label),
            rules.checked_group(group),
            share,
            rules.checked_min_hold(min_hold),
            is_once,
            rules.checked_flag("lazy_release", lazy_release),
        )
        self.reentrant = rules.checked_flag("reentrant", reentrant)
        self.on_lost = on_lost
        self.wait = rules.checked_wait(wait)

    def patience(self, wait: float | None) -> float | None:
        """Seconds; None is for ever."""
        return self.wait if wait is LOCKS_WAIT else checked_wait(wait)

    def timed_out(self, waited: float, answer: Taken) -> LockTimeout:
        holder = answer.holder and replace(answer.holder, name=self.want.name)
        if self.want.share is not None:
            what = _described(self.want.share)
            return LockTimeout(self.want.name, waited, holder, in_this_process(holder), what)
        return LockTimeout(self.want.name, waited, holder, in_this_process(holder, self.reentrant))


def _check_on_lost(on_lost: object) -> None:
    """Here, and not at the loss: a function that can't be called would not stop what the loss has to stop."""
    if on_lost is None:
        return
    if not callable(on_lost):
        raise ConfigurationError(f"on_lost must be callable, not {on_lost!r}")
    if shape := shape_that_refuses(on_lost, None, None):
        raise ConfigurationError(
            f"on_lost is called as on_lost(lease, reason), and {shape} does not take these two arguments"
        )


def _described(share: Share) -> str:
    if share.kind == "semaphore":
        return "semaphore"
    return "write lock" if share.n == RW_LIMIT else "read lock"
