"""Starlette: an endpoint that holds a lock, and something that runs on one worker only.

`contrib/fastapi.py` has the same lock as a dependency. Here is what both have in common: whose lock it is, how it is
acquired, and what the visitor is told.

- Busy: the status that the program chose, with Retry-After.
- The store can't be reached: 503, with Retry-After. The endpoint does not run.
- Lost while the endpoint runs: it is cancelled, and the answer is 503. A lease is released before the answer is sent,
  unless the program wants it otherwise, because only then is it known that it was held to the end.
- No answer says who holds the lock, or where: hosts and process ids are for the log.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException, WebSocketException
from starlette.requests import HTTPConnection

import gripfast
from gripfast.api.current import await_with
from gripfast.api.decorator import check_settings, fields_of, filled, refuse_generators
from gripfast.api.default import default_client
from gripfast.errors import ClientClosed, ConfigurationError, LeaseLost, LockTimeout, StoreUnavailable

if TYPE_CHECKING:
    from typing import Unpack

    from starlette.types import Receive, Scope, Send

__all__ = ["Release", "locked", "only_one"]

_log = logging.getLogger("gripfast.starlette")

Release = Literal["before-response", "after-response"]
AnyClient = gripfast.Client | gripfast.AsyncClient
F = TypeVar("F", bound=Callable[..., Any])

TRY_AGAIN_SECONDS = 1
"""Retry-After, if nothing better is known."""
TRY_AGAIN_LATER = 1013
"""The same, as the code with which a websocket is closed."""
PAUSE_SECONDS = 5.0
"""After the function of `only_one` has failed."""


def locked(
    name: str | Callable[[Any], str],
    *,
    busy: int = 409,
    lost: int = 503,
    retry_after: float | None = None,
    release: Release = "before-response",
    client: AnyClient | None = None,
    **settings: Unpack[gripfast.LockKwargs[gripfast.AsyncLease]],
) -> Callable[[F], F]:
    """A decorator for endpoints of Starlette: hold the lock while the endpoint runs.

    A placeholder in the name, such as `{cart_id}`, is replaced by the path parameter. Or `name` is a function that gets
    the request and returns the name. `gripfast.current_lease()` returns the lease inside the endpoint.

    - `busy`: the status if somebody else has the lock.
    - `lost`: the status if the lease is lost while the endpoint runs.
    - `retry_after`: seconds for the header Retry-After of these answers. By default, until the holder's lease expires.
    - `release`: "before-response" releases the lock when the endpoint has returned, "after-response" when the answer
      was sent and its background tasks have ended.
    - `client`: whose lock it is; by default that of `gripfast.async_lock()`.
    - `settings` are those of `AsyncClient.lock`. Here `wait`, the seconds to wait for the lock, is 0 by default.
    """
    visit = Visit(name, client, busy, lost, retry_after, release, settings)
    name_of = name if callable(name) else Template(name)

    def decorate(endpoint: F) -> F:
        run = _as_coroutine(endpoint)

        @functools.wraps(endpoint)
        async def hold(*args: Any, **kwargs: Any) -> Any:
            request = _request_in(args, kwargs)
            async with AsyncExitStack() as stack:
                lease = await stack.enter_async_context(visit.held(name_of(request), request))
                response = await await_with(lease, run, args, kwargs)
                if release == "before-response" or response is None:  # a websocket's endpoint returns None
                    return response
                return _Sending(response, stack.pop_all())

        return hold  # type: ignore[return-value]

    return decorate


def _as_coroutine(endpoint: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    if inspect.isclass(endpoint):
        raise ConfigurationError(f"{endpoint.__qualname__} is a class: decorate its methods, such as `get`, instead")
    refuse_generators(endpoint)
    if inspect.iscoroutinefunction(endpoint) or inspect.iscoroutinefunction(type(endpoint).__call__):
        return endpoint
    return functools.partial(run_in_threadpool, endpoint)


def _request_in(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> HTTPConnection:
    """Of a function, or of a method."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, HTTPConnection):
            return value
    raise ConfigurationError(
        "@locked(…) decorates endpoints, which get a request, but this function was called without one: decorate the "
        "endpoint, or pass the request"
    )


class _Sending:
    """A response that is sent while the lock is held."""

    def __init__(self, response: Any, held: AsyncExitStack) -> None:
        self._response = response
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._held:
            await self._response(scope, receive, send)


# -- names -------------------------------------------------------------------------------------------------------------


class Template:
    """A name with placeholders for path parameters."""

    def __init__(self, text: str) -> None:
        fields = fields_of(text)
        if wrong := [field for field in fields if not field.isidentifier()]:
            raise ConfigurationError(
                f"the name {text!r} has a placeholder {wrong[0]!r}: write the name of a path parameter, such as "
                "{cart_id}, or pass a function that returns the lock's name"
            )
        self._text = text
        self.fields = fields

    def __call__(self, request: HTTPConnection) -> str:
        return self.filled({field: self.raw(request, field) for field in self.fields})

    def filled(self, values: Mapping[str, object]) -> str:
        return filled(self._text, values)

    def raw(self, request: HTTPConnection, field: str) -> Any:
        """As Starlette's convertors have left it."""
        if field not in request.path_params:
            raise ConfigurationError(
                f"the name {self._text!r} has a placeholder {field!r}, but the path of {request.url.path} has no such "
                "parameter: name one of the path, or pass a function that returns the lock's name"
            )
        return request.path_params[field]


def _group_of(name: object) -> str:
    """What metrics call such locks: the template, as for `@client.locked(…)`."""
    return name if isinstance(name, str) else str(getattr(name, "__qualname__", "locked"))


# -- one visit ---------------------------------------------------------------------------------------------------------


class Visit:
    """How a request holds a lock, and what its visitor is told. Its arguments are those of `locked()`, here and in
    `contrib/fastapi.py`. What is wrong with them is told here, not at the first request."""

    def __init__(
        self,
        name: object,
        client: AnyClient | None,
        busy: int,
        lost: int,
        retry_after: float | None,
        release: Release,
        settings: Mapping[str, Any],
    ) -> None:
        for option, status in (("busy", busy), ("lost", lost)):
            if status not in range(400, 600):
                raise ConfigurationError(f"{option} must be the status of an error, such as 409 or 503, not {status!r}")
        if release not in ("before-response", "after-response"):
            raise ConfigurationError(f"release must be 'before-response' or 'after-response', not {release!r}")
        if retry_after is not None and not _is_seconds(retry_after):
            raise ConfigurationError(f"retry_after must be a number of seconds, 0 or more, not {retry_after!r}")
        self._client = client
        self._busy = busy
        self._lost = lost
        self._retry_after = retry_after
        self._settings = {"group": _group_of(name), "wait": 0.0, **settings}
        check_settings("any", self._settings)
        if client is not None:  # its store may not have them all
            client.lock("any", **self._settings)

    @asynccontextmanager
    async def held(self, name: str, connection: HTTPConnection) -> AsyncIterator[gripfast.AsyncLease]:
        """For the task of the request, which is cancelled when the lease is lost."""
        lease = await self._acquired(name)
        try:
            async with lease:
                yield lease
        except LeaseLost as error:
            if error.name != lease.name:
                raise
            _log.warning("a request was stopped: %s", error)
            detail = "The lock of this request was lost, and the request was stopped. Try again."
            if connection.scope["type"] == "websocket":  # once that is accepted, it takes no other answer
                raise WebSocketException(TRY_AGAIN_LATER, detail) from error
            raise self._refusal(self._lost, detail, TRY_AGAIN_SECONDS) from error

    async def _acquired(self, name: str) -> gripfast.AsyncLease:
        lock = self._lock(name)
        try:
            return await lock.acquire()
        except LockTimeout as error:
            _log.info("a request was refused: %s", error)
            detail = "Someone else is working on this. Try again later."
            raise self._refusal(self._busy, detail, _until_free(error)) from error
        except (StoreUnavailable, ClientClosed) as error:
            _log.warning("a request was refused: %s", error)
            detail = "The locks can't be reached, so the request was not begun. Try again later."
            raise self._refusal(503, detail, TRY_AGAIN_SECONDS) from error

    def _lock(self, name: str) -> gripfast.AsyncLock:
        client = client_here(self._client)
        if not isinstance(name, str):
            raise ConfigurationError(f"the function that makes the lock's name must return text, not {name!r}")
        try:
            return client.lock(name, **self._settings)
        except ConfigurationError as error:
            client.lock("any", **self._settings)  # or the settings are wrong, and that is the program's fault
            _log.info("a request was refused: %s", error)
            raise HTTPException(400, "The values of this request do not make a valid lock name.") from error

    def _refusal(self, status: int, detail: str, seconds: int) -> HTTPException:
        seconds = seconds if self._retry_after is None else max(1, math.ceil(self._retry_after))
        return HTTPException(status, detail, {"Retry-After": str(seconds)})


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _until_free(error: LockTimeout) -> int:
    """Nobody knows when the holder is done. But by then it has renewed its lease, or it is dead and the lock free."""
    expires_in = math.inf if error.holder is None else error.holder.expires_in
    return TRY_AGAIN_SECONDS if expires_in == math.inf else max(TRY_AGAIN_SECONDS, math.ceil(expires_in))


def client_here(client: AnyClient | None) -> gripfast.AsyncClient:
    """That of the running loop, which a plain client has for each."""
    if isinstance(client, gripfast.AsyncClient):
        return client
    return (default_client() if client is None else client)._twins.here()


# -- one worker --------------------------------------------------------------------------------------------------------


def only_one(
    name: str,
    function: Callable[[gripfast.AsyncLease], Coroutine[Any, Any, object]],
    *,
    lifespan: Callable[[Any], AbstractAsyncContextManager[Any]] | None = None,
    client: AnyClient | None = None,
    ttl: float | None = None,
) -> Callable[[Any], AbstractAsyncContextManager[Any]]:
    """A lifespan: of all workers of the application, on all machines, one runs `function(term)`.

    It is an election. When the worker that leads ends or dies, another one runs the function. When its term is lost,
    the function is cancelled. When the application is shut down, too: the term is released after the function has
    ended. A function that returns is not called again while its worker leads. If it raises, that is logged, and another
    worker may lead.

    - `lifespan`: that of the application. It begins before the function, and ends after it.
    - `client`, `ttl`: as in `AsyncClient.election`; by default the client is that of `gripfast.async_lock()`.
    """
    if not inspect.iscoroutinefunction(function):
        raise ConfigurationError(
            f"only_one() takes an `async def` function, which it calls with the term, not {function!r}"
        )

    @asynccontextmanager
    async def with_leader(app: Any) -> AsyncIterator[Any]:
        async with nullcontext() if lifespan is None else lifespan(app) as state:
            election = client_here(client).election(name, ttl=ttl)
            task = asyncio.create_task(_campaign(election, function), name=f"only_one {name}")
            try:
                yield state
            finally:
                task.cancel()
                await asyncio.wait([task])

    return with_leader


async def _campaign(
    election: gripfast.AsyncElection, function: Callable[[gripfast.AsyncLease], Coroutine[Any, Any, object]]
) -> None:
    """Until it is cancelled. The function may make anything of that: return, or raise another error."""
    task = asyncio.current_task()
    assert task is not None

    async def lead(term: gripfast.AsyncLease) -> None:
        await function(term)
        if not task.cancelling():
            await asyncio.Event().wait()  # for ever: or the next worker would do the same again

    while not task.cancelling():
        try:
            await election.run(lead)
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and task.cancelling():
                raise
            _log.exception(
                "the function of only_one(%r) failed; unless the application ends, this worker is a candidate again in "
                "%g s",
                election.name,
                PAUSE_SECONDS,
            )
        await asyncio.sleep(0 if task.cancelling() else PAUSE_SECONDS)
