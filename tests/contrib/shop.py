"""An application of FastAPI with every kind of endpoint, for the tests. Endpoints stop at gates, which tests open: a
gate is a file in $SHOP. What happens is written to the diary there."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import BackgroundTasks, Depends, FastAPI, Header
from fastapi.responses import StreamingResponse
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.responses import StreamingResponse as Streaming
from starlette.routing import Route

import gripfast
from gripfast.contrib import starlette as plain
from gripfast.contrib.fastapi import locked, only_one
from gripfast.testing.waiting import auntil, until

FOLDER = Path(os.environ["SHOP"])
PATIENCE = 60.0
ME = os.environ.get("ME", "")


def note(text: str) -> None:
    with (FOLDER / "diary").open("a", encoding="utf-8") as diary:
        diary.write(f"{text} {ME or os.getpid()}\n")


async def gate(name: str) -> None:
    note(f"at {name}")
    try:
        await auntil((FOLDER / name).exists, within=PATIENCE)
    except asyncio.CancelledError:
        note(f"cancelled at {name}")
        raise


# -- what runs on one worker only --------------------------------------------------------------------------------------


async def lead(term: gripfast.AsyncLease) -> None:
    note(f"leads {term.token}")
    try:
        if not ME.startswith("brief"):
            await asyncio.Event().wait()
    finally:
        note("done leading")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, str]]:
    note("up")
    yield {"greeting": "hello"}
    note("down")


app = FastAPI(lifespan=only_one("leader", lead, lifespan=lifespan))

# -- endpoints ---------------------------------------------------------------------------------------------------------

Cart = Annotated[gripfast.AsyncLease, Depends(locked("cart:{cart_id}"))]
Patient = Annotated[gripfast.AsyncLease, Depends(locked("cart:{cart_id}", wait=PATIENCE))]


@app.get("/greeting")
async def greeting(request: Request) -> str:
    return str(request.state.greeting)


@app.post("/carts/{cart_id}/unlocked/{stop}")
async def unlocked(cart_id: int, stop: str) -> str:
    await gate(stop)
    return "done"


@app.post("/carts/{cart_id}/stop/{stop}")
async def stop_at(cart_id: int, stop: str, lease: Cart) -> int:
    await gate(stop)
    return lease.token


@app.post("/carts/{cart_id}/stubborn/{stop}")
async def stubborn(cart_id: int, stop: str, lease: Cart) -> str:
    with contextlib.suppress(asyncio.CancelledError):
        await gate(stop)
    return "as if nothing had happened"


@app.post("/carts/{cart_id}/patient/{stop}")
async def patient(cart_id: int, stop: str, lease: Patient) -> int:
    await gate(stop)
    return lease.token


@app.post("/carts/{cart_id}/count")
async def count(cart_id: int, lease: Patient) -> int:
    """Reads, gives way, and writes."""
    total = FOLDER / f"total-{cart_id}"
    before = int(await asyncio.to_thread(total.read_text)) if total.exists() else 0
    await asyncio.to_thread(total.write_text, str(before + 1))
    return before + 1


@app.post("/carts/{cart_id}/thread/{stop}")
def in_a_thread(cart_id: int, stop: str, lease: Cart) -> str:
    note(f"at {stop}")
    until((FOLDER / stop).exists, within=PATIENCE)
    note(f"{stop} held: {lease.held}")
    return "done"


def stream(stop: str) -> AsyncIterator[str]:
    async def chunks() -> AsyncIterator[str]:
        yield "first\n"
        await gate(stop)
        yield "last\n"

    return chunks()


@app.get("/carts/{cart_id}/stream-before/{stop}")
async def stream_before(cart_id: int, stop: str, lease: Cart) -> StreamingResponse:
    return StreamingResponse(stream(stop))


After = Annotated[gripfast.AsyncLease, Depends(locked("cart:{cart_id}", release="after-response"))]


@app.get("/carts/{cart_id}/stream-after/{stop}")
async def stream_after(cart_id: int, stop: str, lease: After) -> StreamingResponse:
    return StreamingResponse(stream(stop))


@app.get("/carts/{cart_id}/background-after/{stop}")
async def background_after(cart_id: int, stop: str, lease: After, tasks: BackgroundTasks) -> str:
    tasks.add_task(gate, stop)
    return "done"


def of_tenant(cart_id: int, x_tenant: Annotated[str, Header()]) -> str:
    return f"cart:{x_tenant}:{cart_id}"


@app.post("/carts/{cart_id}/tenant/{stop}", dependencies=[Depends(locked(of_tenant))])
async def of_a_tenant(cart_id: int, stop: str) -> str:
    await gate(stop)
    return "done"


@app.post("/nothing", dependencies=[Depends(locked("cart:{cart_id}"))])
async def without_a_parameter() -> None:
    """A mistake."""


@app.post("/named/{name}", dependencies=[Depends(locked("named:{name}", busy=423, retry_after=7))])
async def named(name: str) -> str:
    await gate(name)
    return "done"


# -- Starlette's own ---------------------------------------------------------------------------------------------------


@plain.locked("cart:{cart_id}")
async def plain_async(request: Request) -> JSONResponse:
    await gate(request.path_params["stop"])
    return JSONResponse(gripfast.current_lease().token)


@plain.locked(lambda request: f"cart:{request.path_params['cart_id']}")
def plain_thread(request: Request) -> JSONResponse:
    note(f"at {request.path_params['stop']}")
    until((FOLDER / request.path_params["stop"]).exists, within=PATIENCE)
    return JSONResponse(gripfast.current_lease().token)


class Method(HTTPEndpoint):
    @plain.locked("cart:{cart_id}")
    async def post(self, request: Request) -> JSONResponse:
        return await plain_body(request)


async def plain_body(request: Request) -> JSONResponse:
    await gate(request.path_params["stop"])
    return JSONResponse("done")


@plain.locked("cart:{cart_id}", release="after-response")
async def plain_stream(request: Request) -> Streaming:
    return Streaming(stream(request.path_params["stop"]))


def routes() -> Iterator[Any]:
    for name, endpoint in [("async", plain_async), ("thread", plain_thread), ("stream", plain_stream)]:
        yield Route(f"/carts/{{cart_id:int}}/{name}/{{stop}}", endpoint, methods=["POST"])
    yield Route("/carts/{cart_id:int}/method/{stop}", Method)


app.mount("/plain", Starlette(routes=list(routes())))
