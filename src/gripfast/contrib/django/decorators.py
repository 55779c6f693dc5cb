"""`@locked("order:{pk}", busy=409)`: hold a lock while a view, a command's `handle()` or any other function runs.

The lock is outside of the transactions of `ATOMIC_REQUESTS` (`transactions.py` says how). The client is looked up at
each call, so a view may be decorated before the settings are there.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from asgiref.sync import iscoroutinefunction
from django.core.management.base import BaseCommand, CommandError
from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.views import View

from gripfast.api.decorator import check_decoration, check_settings, locked_async, locked_plain
from gripfast.contrib.django.clients import DEFAULT, locks
from gripfast.contrib.django.transactions import in_its_transactions, left_to_the_lock, refuse_in_transaction
from gripfast.errors import ConfigurationError, LeaseLost, LockTimeout

if TYPE_CHECKING:
    from typing import Unpack

    from gripfast.api.typed import LockKwargs

F = TypeVar("F", bound=Callable[..., Any])
Busy = int | Literal["raise", "skip"] | Callable[[LockTimeout], Any]

BUSY_CODE = 75
"""Of a command that found the lock taken, as of `gripfast run`."""
LOST_CODE = 76
"""Of a command whose lock was lost while it ran, as of `gripfast run`."""
RETRY_AFTER_MOST = 60
_SORRY = "Somebody else is at work on this. Please try again in a moment.\n"
"""Who that is, on which host, is nothing for the user of a page."""


class _Taken(Exception):
    """The lock of this function, not one that its body wanted."""

    def __init__(self, error: LockTimeout) -> None:
        super().__init__(error)
        self.error = error


def locked(
    name: str,
    *,
    using: str = DEFAULT,
    busy: Busy = "raise",
    in_atomic: bool = False,
    **settings: Unpack[LockKwargs[Any]],
) -> Callable[[F], F]:
    """A decorator for views, sync and async, for a command's `handle()`, and for other functions: hold the lock while
    it runs. A placeholder in the name, such as `{pk}`, is replaced by the argument of that name: of the URL, or an
    option of the command. `settings` are those of `Client.lock`.

    If the lock is not free within `wait` seconds, `busy` says what happens instead:

    - a number, such as 409: a response with this status and `Retry-After`. For views, not for commands. `wait`
      is 0 then, unless you pass another.
    - `"raise"`: LockTimeout; of a command, an error message, and the exit code 75.
    - `"skip"`: the call returns None. For commands, not for views. A command says on stderr that it was skipped, unless
      `--verbosity` is 0.
    - a function: it is called with the LockTimeout, and its result is returned.

    If the lock of a command is lost while it runs, the command ends with an error message, and the exit code 76.

    With `ATOMIC_REQUESTS`, the view's transaction commits before the lock is released. Inside another transaction the
    call raises ConfigurationError, unless `in_atomic=True`.
    """
    status = _checked_status(busy)
    if status is not None:
        settings.setdefault("wait", 0.0)
    check_decoration("raise" if status is not None else busy, settings)
    check_settings(name, settings)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        _refuse_class(function)
        make = _locked_view_async if iscoroutinefunction(function) else _locked_view
        return make(_with_its_own_signature(function), name, using, busy, in_atomic, settings)

    return decorate  # type: ignore[return-value]


def _refuse_class(function: object) -> None:
    """Its methods would run without the lock. A class of views would lose `as_view()` as well."""
    if not inspect.isclass(function):
        return
    instead = "Decorate its methods"
    if issubclass(function, BaseCommand):
        instead = "Decorate its method `handle`"
    elif issubclass(function, View):
        instead = 'Write @method_decorator(locked(…), name="dispatch"), or decorate a method such as `post` that way'
    raise ConfigurationError(
        f"{function.__qualname__} is a class: the decorator would hold the lock only while an object is made. {instead}"
    )


def _with_its_own_signature(function: Callable[..., Any]) -> Callable[..., Any]:
    """Django's `method_decorator` passes a partial of a bound method, which claims to be the method, with `self`."""
    if not isinstance(function, functools.partial):
        return function
    called = functools.partial(function.func, *function.args, **function.keywords)
    functools.update_wrapper(called, function)
    called.__signature__ = inspect.signature(function, follow_wrapped=False)  # type: ignore[attr-defined]
    return called


def _checked_status(busy: Busy) -> int | None:
    if isinstance(busy, bool) or not isinstance(busy, int):
        return None
    if not 400 <= busy <= 599:
        raise ConfigurationError(f"busy must be the status of an error, such as 409 or 503, not {busy}")
    return busy


def _locked_view(
    function: Callable[..., Any], name: str, using: str, busy: Busy, in_atomic: bool, settings: Mapping[str, Any]
) -> Callable[..., Any]:
    left = left_to_the_lock(function)

    def make_lock(filled_in: str, **more: Any) -> Any:
        if not in_atomic:
            refuse_in_transaction(filled_in)
        return locks[using].lock(filled_in, **more)

    held = locked_plain(make_lock, name, _taken, settings)(in_its_transactions(_complete(function), left))

    @functools.wraps(function)
    def hold(*args: Any, **kwargs: Any) -> Any:
        _refuse_status(function, busy, args)
        try:
            return held(*args, **kwargs)
        except _Taken as taken:
            return _answer(taken.error, busy, args, kwargs)
        except LeaseLost as lost:
            if _command_in(args) is None:
                raise
            raise CommandError(str(lost), returncode=LOST_CODE) from lost

    hold._non_atomic_requests = left  # type: ignore[attr-defined]
    return hold


def _locked_view_async(
    function: Callable[..., Any], name: str, using: str, busy: Busy, in_atomic: bool, settings: Mapping[str, Any]
) -> Callable[..., Any]:
    """Django itself refuses async views with ATOMIC_REQUESTS."""

    def make_lock(filled_in: str, **more: Any) -> Any:
        if not in_atomic:
            refuse_in_transaction(filled_in)
        return locks.async_lock(using, filled_in, **more)

    @functools.wraps(function)
    async def run(*args: Any, **kwargs: Any) -> Any:
        return _checked_response(await function(*args, **kwargs))

    held = locked_async(make_lock, name, _taken, settings)(run)

    @functools.wraps(function)
    async def hold(*args: Any, **kwargs: Any) -> Any:
        try:
            return await held(*args, **kwargs)
        except _Taken as taken:
            result = _answer(taken.error, busy, args, kwargs)
            return await result if iscoroutinefunction(busy) else result

    return hold


def _taken(error: LockTimeout) -> Any:
    raise _Taken(error)


def _answer(error: LockTimeout, busy: Busy, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    command = _command_in(args)
    if isinstance(busy, int):
        return _busy_response(error, busy)
    if busy == "raise":
        if command is not None:
            raise CommandError(str(error), returncode=BUSY_CODE) from None
        raise error from None
    if busy != "skip":
        answer = busy(error)
        if command is not None and isinstance(answer, HttpResponseBase):
            raise ConfigurationError(f"the function in busy made a response, {_OF_A_VIEW}") from error
        return answer
    if command is not None and kwargs.get("verbosity", 1) > 0:
        command.stderr.write(f"skipped: {error}", command.style.NOTICE)
    return None


_OF_A_VIEW = "which is for views: in a command write wait=0 (exit code 75 if the lock is taken), or wait=0, busy='skip'"


def _refuse_status(function: Callable[..., Any], busy: Busy, args: tuple[Any, ...]) -> None:
    """At every call, because only a call shows whose method it is; not only at the first one that finds the lock taken.
    Django takes what `handle()` returns for text, and can't print a response."""
    if isinstance(busy, int) and _command_in(args) is not None:
        raise ConfigurationError(f"@locked(…, busy={busy}) on {function.__qualname__}: a status, {_OF_A_VIEW}")


def _command_in(args: tuple[Any, ...]) -> BaseCommand | None:
    """If its `handle()` is what is called."""
    return args[0] if args and isinstance(args[0], BaseCommand) else None


def _busy_response(error: LockTimeout, status: int) -> HttpResponse:
    left = error.holder.expires_in if error.holder else 1.0
    seconds = math.ceil(min(max(left, 1.0), RETRY_AFTER_MOST))
    return HttpResponse(_SORRY, status=status, content_type="text/plain", headers={"Retry-After": str(seconds)})


def _complete(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return _checked_response(function(*args, **kwargs))

    return run


def _checked_response(response: Any) -> Any:
    """The body of a streaming response is made after the view has returned. A file's is there before."""
    if isinstance(response, StreamingHttpResponse) and not isinstance(response, FileResponse):
        response.close()
        raise ConfigurationError(
            "a locked view returned a StreamingHttpResponse, whose body would be made after the lock is released: "
            "return an HttpResponse, or take the lock inside the generator, by `with lock(name)`"
        )
    return response
