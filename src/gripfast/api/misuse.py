"""Mistakes of people who know another lock (redis-py's, filelock's, threading's), and what to write here.

Wrong keywords and attributes are errors in any case. The tables of `api/words.py` only make their messages say more.
They cost nothing in right programs: a missing attribute is a descriptor that raises. A `__getattr__` would slow down
every look-up.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, NoReturn, SupportsIndex, TypeVar

from gripfast.api.words import (
    MISSING,
    NAMES,
    NOT_LEAD,
    NOT_WAIT,
    OPTIONS,
    RAISES,
    RAISES_TERM,
    RENEW,
    RENEWS,
    TIMES,
    TO_WAIT_FOR_EVER,
)

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def no_such_module(name: str) -> ModuleNotFoundError:
    """To be raised by a module that is there for this message alone."""
    return ModuleNotFoundError(f"No module named {name!r}: {NAMES[name.removeprefix('gripfast.')]}", name=name)


HOW_TO_ACQUIRE = (
    "to acquire it, write `{async_}with lock:`, or `lease = {await_}lock.try_acquire()` and `if lease:`. To see "
    "whether there is a lock object, write `lock is not None`"
)


class NoSuchAttribute(AttributeError, TypeError):
    """What a lock of another library has. For `hasattr()` it is not there."""


class _Missing:
    """An attribute that is not there, with the words to say so."""

    def __init__(self, name: str, hint: str) -> None:
        self._name = name
        self._hint = hint

    def __get__(self, lock: object, kind: type) -> NoReturn:
        hint = self._hint.format(**_WORDS[kind.__name__.startswith("Async")])
        # With a name and an object of ours: Python would look for its own suggestions otherwise.
        raise NoSuchAttribute(f"{kind.__name__} has no {self._name!r}: {hint}", name=self._name, obj=None)

    def __set__(self, lock: object, value: object) -> NoReturn:
        self.__get__(lock, type(lock))


NEEDS_ASYNC_WITH = _Missing("__enter__", "write `async with`")
NEEDS_PLAIN_WITH = _Missing(
    "__aenter__",
    "write `with`. For `async with`, make the client with gripfast.connect_async(url)",
)
LOCK_NEEDS_PLAIN_WITH = _Missing(
    "__aenter__",
    "write `with`. For `async with`, write gripfast.async_lock(name), or make the client with "
    "gripfast.connect_async(url)",
)
"""In place of the method that the wrong `with` looks for first. Without its `__exit__` it is no context manager."""

_SHOWN_MOST = 80
"""Characters of a value."""
_WORDS = {
    False: {"await_": "", "async_": "", "close": "close", "lock": "lock", "connect": "connect"},
    True: {"await_": "await ", "async_": "async ", "close": "aclose", "lock": "async_lock", "connect": "connect_async"},
}


class Honest(type):
    """A class that does not list what it does not have: help() and mocks look there."""

    _lacks: Collection[str]

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if name not in cls._lacks]


class NotLikeOthers(metaclass=Honest):
    """A base of classes that lack something."""

    __slots__ = ()
    _lacks: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, lacks: Mapping[str, str] | None = None, **others: Any) -> None:
        super().__init_subclass__(**others)
        if lacks is not None:
            cls._lacks = lacks
            for name, hint in lacks.items():
                setattr(cls, name, _Missing(name, hint))

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in self._lacks]


def unknown_option(function: Any, wrong: Mapping[str, object], *given: object) -> TypeError:
    """To be raised by a function that got a keyword which it does not take, or more than it takes."""
    words = _WORDS[function.__qualname__.startswith("Async")]
    if not wrong:
        return TypeError(_too_many(function.__name__, given).format(**words))
    (option, value), *_ = wrong.items()
    name, code = function.__name__, function.__code__
    known = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    hint = OPTIONS[name].get(option)
    if hint == RENEW and value is True:
        hint = RENEWS
    if value == -1 and option in TIMES:
        hint = TO_WAIT_FOR_EVER.get(name, hint)
    if name == "acquire" and value is None and option in TIMES:
        hint = "leave it out: the setting of the lock counts. acquire(wait=None) waits for ever"
    told = _near(option, known) if hint is None else hint.format(value=as_here(value), **words)
    return TypeError(f"{name}() has no {option!r}: {told}")


def _too_many(function: str, given: tuple[object, ...]) -> str:
    """threading has `acquire(blocking, timeout)`, redis-py `extend(additional_time, replace_ttl)`."""
    if function in ("lead", "try_lead"):
        return _too_many_to_lead(function, given)
    if function == "extend":
        return f"extend() takes only `ttl`: {OPTIONS[function]['replace_ttl']}"
    times = [each for each in given if not isinstance(each, bool)]
    if function == "lock":
        wait = as_here(times[-1]) if times else "seconds"
        return f"lock() takes a name and a ttl; all else are keywords, such as wait={wait}, the seconds to wait for it"
    to_wait = f"to wait, write acquire(wait={as_here(times[-1]) if times else 'seconds'}), {RAISES}"
    if function == "try_acquire":
        return f"try_acquire() takes nothing: it never waits; {to_wait}"
    return f"acquire() takes only `wait`: {f'not to wait, {NOT_WAIT}' if given[0] is False else to_wait}"


def _too_many_to_lead(function: str, given: tuple[object, ...]) -> str:
    times = [each for each in given if not isinstance(each, bool)]
    to_wait = f"to wait, write lead(wait={as_here(times[-1]) if times else 'seconds'}), {RAISES_TERM}"
    if function == "try_lead":
        return f"try_lead() takes nothing: it never waits; {to_wait}"
    return f"lead() takes only `wait`: {f'not to wait, {NOT_LEAD}' if given[0] is False else to_wait}"


def more_for_run(function: object, more: tuple[object, ...], wrong: Mapping[str, object]) -> TypeError:
    """kazoo's `Election.run(func, *args, **kwargs)` passes them on."""
    name = getattr(function, "__name__", "function")
    name = name if name.isidentifier() else "function"
    given = [as_here(each) for each in more] + [f"{key}={as_here(value)}" for key, value in wrong.items()]
    arguments = ", ".join(given)
    return TypeError(
        f"run() calls the function with the term alone: to pass more, write run(lambda term: {name}(term, {arguments}))"
    )


def shape_that_refuses(function: Any, *arguments: object) -> str | None:
    """The function's name and signature, if it surely can't be called so. What can't tell its own arguments is
    believed, and so is a wrapper, whatever it wraps."""
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except Exception:  # also of a `__signature__`, and of annotations that are read late (Python 3.14)
        return None
    try:
        signature.bind(*arguments)
    except TypeError:
        return f"{getattr(function, '__name__', type(function).__name__)}{signature}"
    return None


def no_truth(text: str) -> Callable[[object], None]:
    """A `__bool__` for what is always true, and what is meant where somebody asks."""

    def __bool__(self: object) -> None:
        kind = type(self).__name__
        raise TypeError(f"{kind} is neither true nor false: {text.format(**_WORDS[kind.startswith('Async')])}")

    return __bool__


def more_than_a_name(function: str, more: tuple[object, ...]) -> TypeError:
    """The number that others take behind the name, or instead of one, is mostly the wait. Here it would be the ttl."""
    value = more[0]
    if value == -1:
        told = "Leave -1 out: acquire() waits for ever"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        told = (
            f"Write ttl={value!r}, the seconds that a lease lasts unless it is renewed, or wait={value!r}, the seconds "
            "to wait for the lock"
        )
    else:
        told = "Write a keyword, such as ttl=30 or wait=5"
    return TypeError(f"gripfast.{function}() takes one name; settings are keywords. {told}")


NOT_GIVEN: Any = object()


def needs(name: str) -> Callable[[F], F]:
    """An argument that has to be given. It gets a default that neither types nor `inspect.signature()` show: without
    one, Python itself raises, says only that the argument is missing, and never looks at a misspelt one."""

    def mark(function: F) -> F:
        signature = inspect.signature(function)
        function.__signature__ = signature  # type: ignore[attr-defined]
        if signature.parameters[name].kind is inspect.Parameter.KEYWORD_ONLY:
            function.__kwdefaults__ = {**(function.__kwdefaults__ or {}), name: NOT_GIVEN}
        else:
            function.__defaults__ = (NOT_GIVEN, *(function.__defaults__ or ()))
        return function

    return mark


def given(name: str, value: T) -> T:
    if value is NOT_GIVEN:
        raise TypeError(MISSING[name])
    return value


def as_here(value: object) -> str:
    """threading and filelock wait for ever if they are told -1."""
    return "None" if isinstance(value, int | float) and value == -1 else repr(value)[:_SHOWN_MOST]


def _near(option: str, known: tuple[str, ...]) -> str:
    import difflib  # only for an error

    near = difflib.get_close_matches(option, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(known) or 'nothing'}"


def exact(function: F) -> F:
    """`*more` and `**wrong` are there for the message alone, so inspect.signature() does not show them. A type checker
    refuses all that they would take: their types are Never and NothingElse."""
    signature = inspect.signature(function)
    shown = {name: each for name, each in signature.parameters.items() if name not in ("more", "wrong")}
    function.__signature__ = signature.replace(parameters=list(shown.values()))  # type: ignore[attr-defined]
    for name in signature.parameters.keys() - shown.keys():
        del function.__annotations__[name]
    return function


def checked_names(names: tuple[Any, ...]) -> tuple[str, ...]:
    """Of several locks: not as one list."""
    if len(names) == 1 and isinstance(names[0], list | tuple | set | frozenset):
        raise TypeError("locks() takes the names one by one: write locks(*names)")
    return names


def made_by_hand(kind: type, how: str) -> TypeError:
    """For a class that is called as in other libraries."""
    return TypeError(f"do not call {kind.__name__}(): write {how}")


def refuse_to_pickle(self: Any, protocol: SupportsIndex = 0) -> NoReturn:
    """As `__reduce_ex__`. Connections, threads and leases belong to one process."""
    kind, name = type(self).__name__, getattr(self, "name", None)
    make = getattr(self, "_method", "lock({})").format(repr(name))
    connect = f"gripfast.connect{'_async' if kind.startswith('Async') else ''}(url)"
    hand_over = ". To hand this lease over, pass the text of lease.detach(), and call adopt(text) there"
    raise TypeError(
        f"{kind}{'' if name is None else f' {name!r}'} can't be pickled or copied, because it belongs to this process. "
        + (
            f"Pass the URL to the other process, and call {connect} there"
            if name is None
            else f"Pass the URL and the name {name!r} to the other process, and call {connect}.{make} there"
        )
        + (hand_over if kind in ("Lease", "AsyncLease") else "")
        + ". (multiprocessing pickles the arguments of a process that it spawns; a forked one may use a client that it "
        "inherits.)"
    )
