"""Both colours on stage at once: what a test waits for is waited for once.

    @staged
    async def test_…(server) -> None:
        async with both_colours(server.url) as actors:
            leases = await each(actors, lambda actor: actor.acquire(actor.colour))

See `gripfast/testing/colours.py` for what actors do.
"""

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from support.colours import COLOURS, World

Call = Callable[[Any, str], Awaitable[Any]]

CLAIMS: dict[str, Call] = {
    "try_acquire": lambda actor, name: actor.try_acquire(name),
    "acquire(wait)": lambda actor, name: actor.acquire(name, wait=0.2),
    "acquire()": lambda actor, name: actor.acquire(name, wait=None),
}
LOOKS: dict[str, Call] = {
    "inspect": lambda actor, name: actor.inspect(name),
    "list": lambda actor, name: actor.listing(),
    "force_release": lambda actor, name: actor.force_release(name),
}
HANG = 6.0
"""Seconds after which a call counts as one that never ends."""


def staged(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))  # type: ignore[arg-type]

    return run


@contextlib.asynccontextmanager
async def both_colours(target: Any, **options: Any) -> AsyncIterator[list[Any]]:
    """An actor of each colour, each with a client of its own."""
    worlds = [World(target, colour) for colour in COLOURS.values()]
    try:
        yield [world.actor(**options) for world in worlds]
    finally:
        for world in worlds:
            await world.close()


def another(actor: Any) -> Any:
    """One more thread or task with the same client; the test ends it with `leaves()`."""
    return type(actor)(actor.client)


async def each(actors: Iterable[Any], act: Callable[[Any], Awaitable[Any]]) -> list[Any]:
    return list(await asyncio.gather(*(act(actor) for actor in actors)))


class Outcome(NamedTuple):
    result: Any
    error: Exception | None
    seconds: float


async def outcome(call: Awaitable[Any]) -> Outcome:
    started = time.monotonic()
    try:
        async with asyncio.timeout(HANG):
            return Outcome(await call, None, time.monotonic() - started)
    except Exception as error:
        return Outcome(None, error, time.monotonic() - started)


async def outcomes(actor: Any, calls: dict[str, Call]) -> dict[str, Outcome]:
    """Of each call, all made at once with one client, each for a lock of its own, called as the call is."""
    actors = [another(actor) for _ in calls]
    try:
        told = await asyncio.gather(
            *(outcome(call(each, name)) for each, (name, call) in zip(actors, calls.items(), strict=True))
        )
    finally:
        for each in actors:
            await each.leaves()
    return {f"{name}, {actor.colour}": result for name, result in zip(calls, told, strict=True)}
