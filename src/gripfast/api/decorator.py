"""`@client.locked("report:{user_id}")`: hold a lock while a function runs."""

from __future__ import annotations

import functools
import inspect
import string
from collections.abc import Callable
from typing import Any

from gripfast.core import rules
from gripfast.errors import ConfigurationError, LockTimeout

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def locked_plain(
    make_lock: Callable[..., Any], name: str, wait: float | None, busy: str, settings: dict[str, Any]
) -> Decorator:
    """For plain functions."""
    _check(wait, busy)
    settings = {"group": name, **settings}

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        name_of = _Namer(name, function)

        @functools.wraps(function)
        def hold(*args: Any, **kwargs: Any) -> Any:
            lock = make_lock(name_of(args, kwargs), **settings)
            try:
                lease = lock.acquire(wait)
            except LockTimeout:
                if busy == "skip":
                    return None
                raise
            with lease:
                return function(*args, **kwargs)

        return hold

    return decorate


def locked_async(
    make_lock: Callable[..., Any], name: str, wait: float | None, busy: str, settings: dict[str, Any]
) -> Decorator:
    """For coroutine functions."""
    _check(wait, busy)
    settings = {"group": name, **settings}

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if not inspect.iscoroutinefunction(function):
            raise ConfigurationError(
                f"{function.__qualname__} is not async: decorate it with a client of connect(), not of connect_async()"
            )
        name_of = _Namer(name, function)

        @functools.wraps(function)
        async def hold(*args: Any, **kwargs: Any) -> Any:
            lock = make_lock(name_of(args, kwargs), **settings)
            try:
                lease = await lock.acquire(wait)
            except LockTimeout:
                if busy == "skip":
                    return None
                raise
            async with lease:
                return await function(*args, **kwargs)

        return hold

    return decorate


class _Namer:
    """Fills the arguments of a call into the name."""

    def __init__(self, template: str, function: Callable[..., Any]) -> None:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(
                f"{function.__qualname__} is a generator function: the decorator would release the lock before its "
                "body runs. Use `with lock` inside it"
            )
        self._template = rules.checked_name(template)
        self._signature = inspect.signature(function)
        self._fields = self._check_fields(function)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        if not self._fields:
            return self._template.format()
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return self._template.format(**bound.arguments)

    def _check_fields(self, function: Callable[..., Any]) -> bool:
        try:
            parsed = list(string.Formatter().parse(self._template))
        except ValueError as error:
            raise ConfigurationError(
                f"the name {self._template!r} is not a valid template: {error}. Write a literal brace as {{{{ or }}}}"
            ) from None
        roots = [field.partition(".")[0].partition("[")[0] for _, field, _, _ in parsed if field is not None]
        unknown = [root for root in roots if root not in self._signature.parameters]
        if unknown:
            raise ConfigurationError(
                f"the name {self._template!r} uses {unknown[0]!r}, but {function.__qualname__} has no such argument"
            )
        return bool(roots)


def _check(wait: float | None, busy: str) -> None:
    rules.checked_wait(wait)
    if busy not in ("raise", "skip"):
        raise ConfigurationError(f"busy must be 'raise' or 'skip', not {busy!r}")
