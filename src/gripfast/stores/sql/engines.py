"""SQLAlchemy engines that an application has already: which of our engines serves which, and what their connections are
made with.

With psycopg and PyMySQL an engine makes our connections itself. For an engine with another driver they are made by
psycopg or PyMySQL, as that driver would make them: what its arguments say is said in the words of the other, and what
can't be said there is refused. Nothing is left out, but what is known to be about statements and rows alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Mapping
from typing import Any

from gripfast.errors import ConfigurationError
from gripfast.stores import StoreFactory, specs

Translation = Callable[[str, Any], Mapping[str, Any] | None]
"""What an argument is in the words of the driver that is used here; None if it can't be said."""

_MAKES_CONNECTIONS = "sqlalchemy.engine.create"
_ARGUMENTS = ("cargs_tup", "cparams")
"""Variables of the function that an engine makes connections by, unless it was given one."""


def factory_of(engine: Any, options: dict[str, Any]) -> StoreFactory:
    """Of an Engine or an AsyncEngine, from the store in SQL that has its scheme."""
    name = engine.dialect.name
    for spec in specs():
        if spec.builds_on == "sql" and name in spec.schemes:
            made: StoreFactory = spec.load().factory_of(engine, options)
            return made
    raise ConfigurationError(f"SQLAlchemy engines for {name} are not supported: pass a URL such as sqlite:///locks.db")


def translated(engine: Any, used: str, translate: Translation, of_queries: Container[str]) -> dict[str, Any]:
    """What to make connections with by the driver `used`, so that they are those of the engine. ConfigurationError if
    it does something else with its own."""
    settings: dict[str, Any] = {}
    for name, value in _arguments(engine, used).items():
        if name in of_queries or value is None:
            continue
        told = translate(name, value)
        if told is None:
            raise _refusal(engine, used, f"the argument {name!r} of {engine.dialect.driver}")
        settings |= told
    return settings


def arguments(engine: Any) -> Mapping[str, Any] | None:
    """What its driver is called with, from its URL and its connect_args; None if nobody knows."""
    creator = engine.pool._creator
    if getattr(creator, "__module__", None) != _MAKES_CONNECTIONS:
        return None
    found = inspect.getclosurevars(creator).nonlocals
    if not all(name in found for name in _ARGUMENTS) or any(found["cargs_tup"]):
        return None
    known: Mapping[str, Any] = found["cparams"]
    return known


def _arguments(engine: Any, used: str) -> Mapping[str, Any]:
    if any(True for _ in engine.dialect.dispatch.do_connect) or any(map(_is_foreign, engine.pool.dispatch.connect)):
        raise _refusal(engine, used, "the engine's events for new connections (do_connect, connect)")
    known = arguments(engine)
    if known is None:
        raise _refusal(engine, used, "the engine's creator function")
    return known


def _is_foreign(listener: Any) -> bool:
    """Not one of SQLAlchemy's own, which it needs for itself."""
    module = str(getattr(listener, "__module__", ""))
    return not module.startswith("sqlalchemy.") or module.startswith("sqlalchemy.event.")


def _refusal(engine: Any, used: str, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"Gripfast can't use this engine: Gripfast connects with {used}, and can't translate {what} to {used}. Pass "
        f"connect() a URL with the options of {used}, or an engine whose driver is {used}"
    )
