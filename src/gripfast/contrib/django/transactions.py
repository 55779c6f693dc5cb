"""A lock and Django's transactions: which is inside the other.

A lock that is released before the transaction commits protects nothing: the next holder reads what was there before.
So a lock is taken outside of `transaction.atomic()`, or in the transaction itself, by `within()`. What would be wrong
is refused.

`ATOMIC_REQUESTS` opens a transaction around a view and all its decorators. A locked view tells Django not to, and opens
the same transactions itself, inside the lock.

The transactions of `TestCase` never commit, and do not count.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from django.db import connections, transaction
from django.http import HttpRequest

from gripfast.api.current import ensure_all_held
from gripfast.errors import ConfigurationError


def refuse_in_transaction(name: str) -> None:
    """ConfigurationError if a lock that is taken now would be released before a commit."""
    for connection in connections.all(initialized_only=True):
        if any(not block._from_testcase for block in connection.atomic_blocks):
            raise ConfigurationError(
                f"a transaction is open on the database {connection.alias!r}, and the lock {name!r} would be released "
                "before it commits, so the next holder would not see what you wrote. Take the lock outside of "
                "transaction.atomic(); with ATOMIC_REQUESTS, decorate the view itself with @locked(…), or a class's "
                "dispatch(). To hold a lock until the commit, use within(name). If the lock does not protect what this "
                "transaction writes, pass in_atomic=True"
            )


class EveryAlias(set[str]):
    """In place of a view's `_non_atomic_requests`: Django is not to open a transaction on any database. `chosen` has
    those where the view itself wants none."""

    def __init__(self, chosen: set[str]) -> None:
        super().__init__(chosen)
        self.chosen = chosen

    def __contains__(self, alias: object) -> bool:
        return True

    def add(self, alias: str) -> None:
        """`@transaction.non_atomic_requests` above `@locked` does so."""
        self.chosen.add(alias)


def left_to_the_lock(view: Callable[..., Any]) -> EveryAlias:
    """What a locked view has to have as its `_non_atomic_requests`."""
    given: set[str] = getattr(view, "_non_atomic_requests", set())
    return given if isinstance(given, EveryAlias) else EveryAlias(set(given))


def in_its_transactions(view: Callable[..., Any], left: EveryAlias) -> Callable[..., Any]:
    """The view in the transactions that ATOMIC_REQUESTS would have opened. If a lock was lost meanwhile, they are
    rolled back. What is called without a request is no view, and Django would have opened none. What is locked itself
    opens them inside of its own lock."""
    if isinstance(getattr(view, "_non_atomic_requests", None), EveryAlias):
        return view

    @functools.wraps(view)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(each, HttpRequest) for each in args[:2]):  # the first may be the object of a method
            return view(*args, **kwargs)
        with contextlib.ExitStack() as stack:
            for alias, settings in connections.settings.items():
                if settings["ATOMIC_REQUESTS"] and alias not in left.chosen:
                    stack.enter_context(transaction.atomic(using=alias))
            response = view(*args, **kwargs)
            ensure_all_held()
            return response

    return run
