"""The observers of a client: which objects can be one, and the one that comes with Gripfast, which writes a log."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable
from typing import Any, cast, get_args

from gripfast.core.events import Event, EventKind, Observer
from gripfast.errors import ConfigurationError

METHODS: tuple[str, ...] = get_args(EventKind)

_EXTRA = [field for field in Event._fields if field not in ("kind", "at", "wall", "error")]


def checked_observers(observers: object) -> tuple[Observer, ...]:
    if observers is None:
        return ()
    if not isinstance(observers, Iterable) or isinstance(observers, str):
        raise ConfigurationError(f"observers must be a list of observers, not {observers!r}: write observers=[…]")
    return tuple(_checked(observer) for observer in cast(Iterable[object], observers))


def _checked(observer: Any) -> Observer:
    if isinstance(observer, type):
        raise ConfigurationError(f"an observer must be an object, not a class: write {observer.__name__}()")
    methods = [method for name in METHODS if (method := getattr(observer, name, None)) is not None]
    if not methods or not all(map(callable, methods)):
        raise ConfigurationError(f"an observer must have some of the methods {', '.join(METHODS)}: {observer!r}")
    for method in methods:
        if inspect.iscoroutinefunction(method):
            name = getattr(method, "__qualname__", repr(method))
            raise ConfigurationError(
                f"{name} must be a plain function, not async: observers are called on a thread. Use "
                "loop.call_soon_threadsafe() in it to reach an event loop"
            )
    known: Observer = observer
    return known


class LoggingObserver(Observer):
    """Writes a line for each event to the logger `gripfast.events`, or to another that you name.

    Claims and renewals are logged at DEBUG, grants, refusals and releases at INFO, losses and an unreachable store at
    WARNING. Each record has the fields of the event as attributes, which formatters for JSON and structlog pick up:
    `gripfast_event` is its kind, `gripfast_error` the name of the error's class, and `gripfast_name`, `gripfast_group`,
    `gripfast_owner`, `gripfast_token`, `gripfast_store`, `gripfast_ttl`, `gripfast_waited`, `gripfast_held`,
    `gripfast_margin`, `gripfast_reason`, `gripfast_request`, `gripfast_queued`, `gripfast_trace` and
    `gripfast_holder_trace` are the rest. All of them are text, numbers, true or false, or None.
    """

    def __init__(self, logger: str = "gripfast.events") -> None:
        self._log = logging.getLogger(logger)

    def claimed(self, event: Event) -> None:
        self._write(logging.DEBUG, event, "claimed %r", event.name)

    def granted(self, event: Event) -> None:
        self._write(logging.INFO, event, "granted %r after %.3f s, token %s", event.name, event.waited, event.token)

    def refused(self, event: Event) -> None:
        self._write(logging.INFO, event, "refused %r after %.3f s (%s)", event.name, event.waited, event.reason)

    def renewed(self, event: Event) -> None:
        self._write(logging.DEBUG, event, "renewed %r with %.3f s left", event.name, event.margin)

    def lost(self, event: Event) -> None:
        self._write(logging.WARNING, event, "lost %r after %.3f s (%s)", event.name, event.held, event.reason)

    def released(self, event: Event) -> None:
        self._write(logging.INFO, event, "released %r after %.3f s", event.name, event.held)

    def unreachable(self, event: Event) -> None:
        what = "can't %s %r on %s: %s"
        self._write(logging.WARNING, event, what, event.request, event.name, event.store, event.error)

    def _write(self, level: int, event: Event, what: str, *args: object) -> None:
        if self._log.isEnabledFor(level):
            extra = {f"gripfast_{name}": getattr(event, name) for name in _EXTRA}
            error = None if event.error is None else type(event.error).__name__
            self._log.log(level, what, *args, extra={"gripfast_event": event.kind, "gripfast_error": error, **extra})
