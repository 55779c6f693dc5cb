"""FastAPI: `Depends(locked("cart:{cart_id}"))`. `contrib/starlette.py` has what Starlette's own endpoints share.

When a dependency ends depends on FastAPI's version and on the scope that `Depends` is given. So the choice is made
here: what `locked()` returns depends on another dependency, whose scope is told by `release`.

A path parameter is converted as the endpoint, or a dependency of it, converts it. `/carts/7` and `/carts/07` are one
cart if its id is an int, so they must have one lock.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from fastapi import Depends
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from starlette.requests import HTTPConnection

import gripfast
from gripfast.api.misuse import NoSuchAttribute
from gripfast.contrib.starlette import AnyClient, Release, Template, Visit, only_one
from gripfast.errors import ConfigurationError
from gripfast.extras import how_to_install

if TYPE_CHECKING:
    from typing import Unpack

__all__ = ["Release", "locked", "only_one"]

SCOPES: dict[Release, Any] = {"before-response": "function", "after-response": "request"}


def locked(
    name: str | Callable[..., Any],
    *,
    busy: int = 409,
    lost: int = 503,
    retry_after: float | None = None,
    release: Release = "before-response",
    client: AnyClient | None = None,
    **settings: Unpack[gripfast.LockKwargs[gripfast.AsyncLease]],
) -> Callable[..., Any]:
    """A dependency: the request holds the lock. Write `Depends(locked("cart:{cart_id}"))`; its value is the lease.

    A placeholder in the name is replaced by the path parameter, converted as the argument of that name, which the
    endpoint or one of its dependencies has. Or `name` is a dependency of yours, which returns the name.

    - `busy`: the status if somebody else has the lock.
    - `lost`: the status if the lease is lost while the endpoint runs.
    - `retry_after`: seconds for the header Retry-After of these answers. By default, until the holder's lease expires.
    - `release`: "before-response" releases the lock when the endpoint has returned, "after-response" when the answer
      was sent and its background tasks have ended.
    - `client`: whose lock it is; by default that of `gripfast.async_lock()`.
    - `settings` are those of `AsyncClient.lock`. Here `wait`, the seconds to wait for the lock, is 0 by default.
    """
    visit = Visit(name, client, busy, lost, retry_after, release, settings)
    name_of = name if callable(name) else _filler(Template(name))

    async def hold(connection: HTTPConnection, name: str = Depends(name_of)) -> AsyncIterator[gripfast.AsyncLease]:
        if release == "before-response":
            _check_endpoint(connection.scope["endpoint"])
        async with visit.held(name, connection) as lease:
            yield lease

    held = _depends(hold, release)

    async def lease_of(lease: Any = held) -> gripfast.AsyncLease:
        return lease  # type: ignore[no-any-return]

    return _Dependency(lease_of)


class _Dependency:
    """What `Depends` is given: for FastAPI the coroutine function itself. As a decorator it would make a coroutine of
    the endpoint, and FastAPI's error would not say why."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        vars(self).update(__globals__=getattr(function, "__globals__"), __call__=function)  # noqa: B009

    @property
    def dependency(self) -> NoReturn:
        """What FastAPI reads of each entry of `dependencies=[…]`."""
        raise NoSuchAttribute(
            "locked() of gripfast.contrib.fastapi is what Depends() takes: write dependencies=[Depends(locked(…))]"
        )

    def __call__(self, *endpoint: object, **values: Any) -> Any:
        if endpoint:
            raise ConfigurationError(
                "locked() of gripfast.contrib.fastapi is no decorator: write `lease=Depends(locked(…))` among the "
                "arguments of the endpoint, or @app.post(…, dependencies=[Depends(locked(…))])"
            )
        return vars(self)["__wrapped__"](**values)


def _depends(hold: Callable[..., Any], release: Release) -> Any:
    try:
        return Depends(hold, scope=SCOPES[release])
    except TypeError:
        raise ConfigurationError(
            f"locked() needs FastAPI 0.121 or newer, whose dependencies have a scope: {how_to_install('fastapi')}"
        ) from None


def _check_endpoint(endpoint: Any) -> None:
    """Of an endpoint with `yield`, FastAPI runs the body while the answer is sent."""
    function = inspect.unwrap(endpoint.func if isinstance(endpoint, functools.partial) else endpoint)
    function = function if inspect.isroutine(function) else type(function).__call__
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"{function.__qualname__} has a `yield`, so its body runs while the answer is sent, and the lock would be "
            "released before: write locked(…, release='after-response')"
        )


def _filler(template: Template) -> Callable[..., Any]:
    async def name_of(connection: HTTPConnection) -> str:
        dependant = connection.scope["route"].dependant
        values = {field: _converted(dependant, field, template.raw(connection, field)) for field in template.fields}
        return template.filled(values)

    return name_of


def _converted(dependant: Dependant, name: str, text: Any) -> object:
    """Refused as the endpoint would refuse it. Without such an argument, the text of the URL counts."""
    field = next(_fields(dependant, name), None)
    if field is None:
        return text
    value, errors = field.validate(text, {}, loc=("path", name))
    if errors:
        raise RequestValidationError(errors)
    return value.value if isinstance(value, enum.Enum) else value


def _fields(dependant: Dependant, name: str) -> Iterator[Any]:
    """The arguments of that name: of the endpoint, then of its dependencies. One that stands in the prefix of a router
    is among the query's, because the route alone does not know the prefix."""
    yield from (field for field in (*dependant.path_params, *dependant.query_params) if field.alias == name)
    for each in dependant.dependencies:
        yield from _fields(each, name)
