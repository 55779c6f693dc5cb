"""Endpoints, routers and sockets of every kind: the lock is held while the body runs, and one thing has one name."""

import asyncio
import enum
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Path, WebSocket
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute

import gripfast
from contrib.asgi import connect, get
from gripfast.contrib import starlette as plain
from gripfast.contrib.fastapi import locked
from support.both_colours import staged

client = gripfast.connect("memory://")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert list(client.list()) == []


def lock(**options: Any) -> Any:
    return Depends(locked("cart:{cart_id}", client=client, **options))


Cart = Annotated[gripfast.AsyncLease, lock()]
After = Annotated[gripfast.AsyncLease, lock(release="after-response")]


async def lose(name: str) -> None:
    assert client.force_release(name)
    await asyncio.Event().wait()


# -- names -------------------------------------------------------------------------------------------------------------


class Size(enum.Enum):
    SMALL = "small"


def cart_of(cart_id: int) -> int:
    return cart_id


def by_dependency() -> FastAPI:
    app = FastAPI()

    @app.get("/{cart_id}/name")
    async def pay(lease: Cart, cart: Annotated[int, Depends(cart_of)]) -> str:
        return lease.name

    return app


def by_alias() -> FastAPI:
    app = FastAPI()

    @app.get("/{cart_id}/name")
    async def pay(lease: Cart, number: Annotated[int, Path(alias="cart_id")]) -> str:
        return lease.name

    return app


def by_router() -> FastAPI:
    app, router = FastAPI(), APIRouter(dependencies=[lock()])

    @router.get("/name")
    async def pay(cart: Annotated[int, Depends(cart_of)]) -> str:
        return next(client.list()).name

    app.include_router(router, prefix="/{cart_id}")
    return app


@pytest.mark.parametrize("make", [by_dependency, by_alias, by_router])
@staged
async def test_7_and_007_are_one_cart_wherever_it_is_converted(make: Callable[[], FastAPI]) -> None:
    app = make()
    assert [(await get(app, f"/{cart}/name")).json for cart in ("7", "007")] == ["cart:7", "cart:7"]
    assert (await get(app, "/seven/name")).status == 422


@staged
async def test_an_enum_is_called_by_its_value() -> None:
    app = FastAPI()

    @app.get("/{cart_id}")
    async def pay(cart_id: Size, lease: Cart) -> str:
        return lease.name

    assert (await get(app, "/small")).json == "cart:small"


@pytest.mark.parametrize("wrong", [7, None])
@staged
async def test_a_function_that_returns_no_name_is_a_mistake_of_the_program(wrong: Any) -> None:
    app = FastAPI()

    @app.get("/", dependencies=[Depends(locked(lambda: wrong, client=client))])
    async def pay() -> None:
        raise AssertionError("it ran")

    with pytest.raises(gripfast.ConfigurationError, match="must return text"):
        await get(app, "/")


@pytest.mark.parametrize("one", [locked, plain.locked])
def test_a_name_that_no_request_can_make_valid_is_refused_at_once(one: Callable[..., Any]) -> None:
    with pytest.raises(gripfast.ConfigurationError, match="1 to 512"):
        one("")


# -- bodies ------------------------------------------------------------------------------------------------------------


def streaming(lease: Any) -> FastAPI:
    """Bodies with `yield`, which FastAPI runs while the answer is sent."""
    app = FastAPI()

    @app.get("/async/{cart_id}")
    async def chunks(cart_id: int, lease: lease) -> AsyncIterable[bool]:
        yield lease.held

    @app.get("/plain/{cart_id}")
    def more_chunks(cart_id: int, lease: lease) -> Iterable[bool]:
        yield lease.held

    return app


@pytest.mark.parametrize("kind", ["async", "plain"])
@staged
async def test_a_body_with_yield_does_not_run_without_the_lock(kind: str) -> None:
    assert (await get(streaming(After), f"/{kind}/7")).json is True
    with pytest.raises(gripfast.ConfigurationError, match="release='after-response'"):
        await get(streaming(Cart), f"/{kind}/7")


def test_starlette_has_no_endpoints_with_yield() -> None:
    async def chunks(request: Request) -> AsyncIterator[str]:
        yield "first"

    with pytest.raises(gripfast.ConfigurationError, match="generator"):
        plain.locked("all")(chunks)


class Pay:
    async def __call__(self, request: Request) -> JSONResponse:
        return JSONResponse(gripfast.current_lease().name)


async def pay_and_lose(request: Request) -> JSONResponse:
    await lose(gripfast.current_lease().name)
    raise AssertionError("it was not cancelled")


async def pass_on(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    return await call_next(request)


@staged
async def test_under_mounts_and_behind_middleware_that_has_a_task_of_its_own() -> None:
    held = plain.locked("cart:{cart_id}", client=client)
    carts = Mount("/{cart_id}", routes=[Route("/pay", held(Pay())), Route("/lose", held(pay_and_lose))])
    app = Starlette(routes=[carts], middleware=[Middleware(BaseHTTPMiddleware, dispatch=pass_on)])
    assert (await get(app, "/7/pay")).json == "cart:7"
    assert (await get(app, "/7/lose")).status == 503


# -- websockets --------------------------------------------------------------------------------------------------------


async def talk(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text(str([info.name for info in client.list()]))
    if websocket.path_params["cart_id"] == "lost":
        await lose("cart:lost")
    await websocket.close()


def of_fastapi(release: plain.Release) -> Any:
    app = FastAPI()

    @app.websocket("/{cart_id}")
    async def endpoint(websocket: WebSocket, lease: Annotated[gripfast.AsyncLease, lock(release=release)]) -> None:
        await talk(websocket)

    return app


def of_starlette(release: plain.Release) -> Any:
    endpoint = plain.locked("cart:{cart_id}", client=client, release=release)(talk)
    return Starlette(routes=[WebSocketRoute("/{cart_id}", endpoint)])


@pytest.mark.parametrize("make", [of_fastapi, of_starlette])
@pytest.mark.parametrize("release", ["before-response", "after-response"])
@staged
async def test_a_websocket_holds_the_lock_until_it_ends(make: Callable[[Any], Any], release: str) -> None:
    app = make(release)
    told = [("websocket.accept", None), ("websocket.send", "['cart:7']"), ("websocket.close", 1000)]
    assert [await connect(app, "/7"), await connect(app, "/7")] == [told, told]
    with client.lock("cart:7"):
        assert await connect(app, "/7") == [("websocket.http.response.start", 409)]
    assert (await connect(app, "/lost"))[-1] == ("websocket.close", 1013)
