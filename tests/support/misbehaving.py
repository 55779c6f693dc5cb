"""Observers that do what no observer should, and a way to give one to every client of a test: nothing may change.

`pytest tests/conformance --observer all` runs the whole suite beside each of them. Clients that have observers of their
own get none of these: all observers of a client share a thread, so theirs would wait, too.
"""

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gripfast
from gripfast.api.base import AnyClient
from gripfast.runtime import observers
from gripfast.testing.colours import ACTOR, AsyncActor, BlockingActor

OF_THE_OBSERVER = "what an observer locks"


class Misbehaving(gripfast.Observer):
    def __init__(self, client: AnyClient, over: threading.Event) -> None:
        self._client = weakref.ref(client)
        self._over = over
        """Set at the end of the test: no thread need stay for longer."""

    def _act(self, event: gripfast.Event) -> None:
        threading.current_thread().name = f"{ACTOR}observer"  # one that is busy in here can't end with its client
        self.misbehave(event)

    claimed = granted = refused = renewed = lost = released = unreachable = _act

    def misbehave(self, event: gripfast.Event) -> None:
        raise NotImplementedError


class Raises(Misbehaving):
    def misbehave(self, event: gripfast.Event) -> None:
        raise SystemExit(3) if event.kind == "granted" else ValueError("planted")


class Sleeps(Misbehaving):
    def misbehave(self, event: gripfast.Event) -> None:
        self._over.wait(1.0)


class NeverReturns(Misbehaving):
    def misbehave(self, event: gripfast.Event) -> None:
        self._over.wait()


class ReEnters(Misbehaving):
    """Uses the client whose lock it is told of: looks at that lock, and acquires another."""

    def misbehave(self, event: gripfast.Event) -> None:
        client = self._client()
        if isinstance(client, gripfast.Client):
            client.inspect(event.name)
            if (lease := client.lock(OF_THE_OBSERVER).try_acquire()) is not None:
                lease.release()
        elif client is not None and event.name != OF_THE_OBSERVER:
            runtime: Any = client._runtime  # type: ignore[attr-defined]
            runtime.loop.call_soon_threadsafe(_start, runtime.loop, client, event.name)


def _start(loop: asyncio.AbstractEventLoop, client: Any, name: str) -> None:
    task = loop.create_task(_use(client, name), name=f"{ACTOR}observer")
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


async def _use(client: gripfast.AsyncClient, name: str) -> None:
    with contextlib.suppress(gripfast.GripfastError):  # it may be closed by now
        await client.inspect(name)
        if (lease := await client.lock(OF_THE_OBSERVER).try_acquire()) is not None:
            await lease.release()


_tasks: set[asyncio.Task[None]] = set()

KINDS: dict[str, type[Misbehaving]] = {
    "raise": Raises,
    "sleep": Sleeps,
    "reenter": ReEnters,
    "forever": NeverReturns,
}


def add_option(parser: pytest.Parser) -> None:
    choices = (*KINDS, "all")
    parser.addoption("--observer", choices=choices, help="run the conformance suite beside an observer that misbehaves")


def chosen(config: pytest.Config) -> list[str]:
    kind = config.getoption("observer")
    return list(KINDS) if kind == "all" else [kind] if kind else []


@contextlib.contextmanager
def every_client_has(make: Callable[[AnyClient], gripfast.Observer]) -> Iterator[None]:
    """Every client that is made meanwhile has such an observer, unless it has one already."""
    make_client = AnyClient.__init__

    def make_observed(client: AnyClient, config: Any) -> None:
        make_client(client, config if config.observers else config._replace(observers=(make(client),)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AnyClient, "__init__", make_observed)
        yield


@contextlib.contextmanager
def beside(kind: str | None) -> Iterator[None]:
    """Of this kind; without one, nothing is done."""
    if kind is None:
        yield
        return
    over = threading.Event()
    with every_client_has(lambda client: KINDS[kind](client, over)), pytest.MonkeyPatch.context() as patch:
        patch.setattr(observers, "LAST_WORDS", 0.1)  # thousands of clients wait for that when they are closed
        for actor in (BlockingActor, AsyncActor):
            patch.setattr(actor, "listing", _without_ours(actor.listing))
        try:
            yield
        finally:
            over.set()


def _without_ours(listing: Any) -> Any:
    """Tests count what they hold themselves."""

    async def without(infos: Any) -> list[Any]:
        return [info for info in await infos if info.name != OF_THE_OBSERVER]

    return lambda actor, prefix="", **kind: asyncio.ensure_future(without(listing(actor, prefix, **kind)))
