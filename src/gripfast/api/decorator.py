"""`@client.locked("report:{user_id}")`: hold a lock while a function runs. `api/typed.py` has its types."""

from __future__ import annotations

import functools
import inspect
import re
import string
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, cast

from gripfast.api.misuse import NotLikeOthers, no_truth
from gripfast.api.settings import LockSettings
from gripfast.api.words import OF_DECORATORS, OPTIONS
from gripfast.core import rules
from gripfast.errors import ConfigurationError, LockTimeout

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Busy = Literal["raise", "skip"] | Callable[[LockTimeout], Any]


class LockedBy(NotLikeOthers, lacks=OF_DECORATORS):
    """What `locked()` returns: it decorates a function, and says so to whoever takes it for a question."""

    def __init__(self, decorate: Decorator) -> None:
        self._decorate = decorate

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self._decorate(function)

    __bool__ = no_truth("`locked` decorates functions. To see who holds a lock, write client.inspect(name)")


def locked_plain(make_lock: Callable[..., Any], name: str, busy: Busy, settings: Mapping[str, Any]) -> Decorator:
    """For plain functions."""
    from gripfast.api.current import call_with  # most programs decorate nothing

    settings = {"group": name, **settings}

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(busy):
            raise ConfigurationError(
                f"{_name_of(function)} is not async, so it can't await {_name_of(busy)}: pass a plain function as busy"
            )
        name_of = Namer(name, function)

        @functools.wraps(function)
        def hold(*args: Any, **kwargs: Any) -> Any:
            lock = make_lock(name_of(args, kwargs), **settings)
            try:
                lease = lock.acquire()
            except LockTimeout as error:
                if busy == "raise":
                    raise
                return None if busy == "skip" else busy(error)
            with lease:
                return no_coroutine(call_with(lease, function, args, kwargs), function)

        return hold

    return decorate


def locked_async(make_lock: Callable[..., Any], name: str, busy: Busy, settings: Mapping[str, Any]) -> Decorator:
    """For coroutine functions."""
    from gripfast.api.current import await_with  # most programs decorate nothing

    settings = {"group": name, **settings}

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        refuse_generators(function)
        if not inspect.iscoroutinefunction(function):
            raise ConfigurationError(
                f"{_name_of(function)} is not async: decorate it with a client of connect(), not of connect_async()"
            )
        name_of = Namer(name, function)

        @functools.wraps(function)
        async def hold(*args: Any, **kwargs: Any) -> Any:
            lock = make_lock(name_of(args, kwargs), **settings)
            try:
                lease = await lock.acquire()
            except LockTimeout as error:
                if busy == "raise":
                    raise
                result = None if busy == "skip" else busy(error)
                return await result if inspect.isawaitable(result) else result
            async with lease:
                return await await_with(lease, function, args, kwargs)

        return hold

    return decorate


def check_decoration(busy: object, settings: Mapping[str, object], method: str = "locked") -> None:
    if wrong := [option for option in settings if option in OPTIONS["locked"]]:
        raise TypeError(f"{method}() has no {wrong[0]!r}: {OPTIONS['locked'][wrong[0]]}")
    if busy not in ("raise", "skip") and (not callable(busy) or isinstance(busy, NotLikeOthers)):
        raise ConfigurationError(
            f"busy must be 'raise', 'skip', or a function that is called with the LockTimeout, not {busy!r}"
        )
    if busy != "raise" and settings.get("wait") is None:
        what = "busy='skip' would skip no call" if busy == "skip" else "the function in busy would never be called"
        raise ConfigurationError(
            f"{what}: without `wait`, a call waits until the lock is free. Write wait=0 not to wait, or wait=seconds"
        )


class _ClientToCome:
    """In place of a client that is known only at a call: it has every capability, and no ttl of its own."""

    def _settings(self, name: str, ttl: float | None, **others: Any) -> LockSettings:
        ttl = rules.TTL_DEFAULT if ttl is None else ttl
        return LockSettings(name, "", ttl=ttl, max_ttl=rules.TTL_MAX, **others)


def check_settings(name: str, settings: Mapping[str, Any]) -> None:
    """What is wrong with the settings of a lock on every store, told where a function is decorated. For decorators that
    do not know their client yet; `locked()` of a client makes a lock of its own store instead."""
    from gripfast.api.client import Client  # which imports this module

    Client.lock(cast(Client, _ClientToCome()), name, **settings)


def no_coroutine(result: Any, function: Callable[..., Any]) -> Any:
    """Its body has not run yet, and would run without the lock."""
    if inspect.iscoroutine(result):
        result.close()
        raise ConfigurationError(
            f"{_name_of(function)} is not async, but returned a coroutine, which would run after the lock is "
            "released: decorate the coroutine function itself, below its other decorators"
        )
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise ConfigurationError(
            f"{_name_of(function)} returned a generator, which would run after the lock is released: use `with lock` "
            "around the loop, or return a list"
        )
    return result


def _name_of(function: Callable[..., Any]) -> str:
    """A partial, say, has none."""
    return str(getattr(function, "__qualname__", repr(function)))


def refuse_generators(function: Callable[..., Any]) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"{_name_of(function)} is a generator function: the decorator would release the lock before its body runs. "
            "Use `with lock` inside it"
        )


def fields_of(template: str) -> list[str]:
    """The placeholders of a name, as they are written."""
    rules.checked_name(template)
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigurationError(
            f"the name {template!r} is not a valid template: {error}. Write a literal brace as {{{{ or }}}}"
        ) from None
    return [field for _, field, _, _ in parsed if field is not None]


_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+\b")
"""As in `<__main__.User object at 0x7f2c>`, the text of an object whose class does not say better."""


def filled(template: str, values: Mapping[str, object]) -> str:
    """The name. Only one that seems to have an address in it is filled a second time, by Python code."""
    name = template.format(**values)
    return _NoAddress(template).vformat(template, (), values) if _ADDRESS.search(name) else name


class _NoAddress(string.Formatter):
    """Refuses a value whose text has an address in it: the name would be another one for every object. A text that
    somebody has chosen may look like that."""

    def __init__(self, template: str) -> None:
        self._template = template
        self._field = ""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        self._field = field_name
        return super().get_field(field_name, args, kwargs)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        converted = super().convert_field(value, conversion)
        if isinstance(value, str) or not _ADDRESS.search(str(converted)):
            return converted
        part = "__qualname__" if hasattr(value, "__qualname__") else "id"
        raise ConfigurationError(
            f"the name {self._template!r} would contain an address in memory, because that is the text of a "
            f"{type(value).__name__}: every object would have a lock of its own, which excludes nobody. Use a part "
            f"that is the same in all processes, such as {{{self._field}.{part}}}"
        )


class Namer:
    """Fills the arguments of a call into the name."""

    def __init__(self, template: str, function: Callable[..., Any]) -> None:
        refuse_generators(function)
        if inspect.isclass(function):
            raise ConfigurationError(
                f"{_name_of(function)} is a class: the decorator would hold the lock only while an object is made. "
                "Decorate its methods"
            )
        self._template = template
        self._signature = inspect.signature(function)
        kinds = {parameter.kind: name for name, parameter in self._signature.parameters.items()}
        self._more = kinds.get(inspect.Parameter.VAR_KEYWORD, "")
        """What the function calls its `**kwargs`, which may have the arguments of the name, too."""
        self._has_fields = self._check_fields(function)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        if not self._has_fields:
            return self._template.format()
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            return filled(self._template, bound.arguments.get(self._more, {}) | bound.arguments)
        except KeyError as missing:
            raise ConfigurationError(
                f"the name {self._template!r} uses {missing.args[0]!r}, but this call has no such argument"
            ) from None

    def _arguments(self) -> Iterator[str]:
        """What a name is made from: not `*args`, which has no text of its own."""
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        for name, parameter in self._signature.parameters.items():
            if name not in ("self", "cls") and parameter.kind not in several:
                yield name

    def _check_fields(self, function: Callable[..., Any]) -> bool:
        roots = [field.partition(".")[0].partition("[")[0] for field in fields_of(self._template)]
        unknown = [root for root in roots if root not in self._signature.parameters]
        if any(root == "" or root.isdigit() for root in roots):
            known = next(self._arguments(), "user_id")
            raise ConfigurationError(
                f"the name {self._template!r} has braces without the name of an argument: write it in them, such as "
                f"{{{known}}}"
            )
        if unknown and not self._more:
            raise ConfigurationError(
                f"the name {self._template!r} uses {unknown[0]!r}, but {_name_of(function)} has no such argument"
            )
        return bool(roots)
