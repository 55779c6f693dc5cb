"""A link of either colour, and what tests do with it: each call is carried out when it returns.

A file of tests takes the fixtures that it needs by their names:

    actor, colour = etcd_stage.actor, etcd_stage.colour
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import pytest

import gripfast
from gripfast.machine import boottime
from gripfast.runtime.blocking import drive
from gripfast.stores.etcd.aio import AioLink
from gripfast.stores.etcd.blocking import BlockingLink
from gripfast.stores.etcd.dial import Dialer
from gripfast.stores.etcd.link import Link, Notice, Told
from gripfast.stores.etcd.messages import Request
from gripfast.stores.etcd.watches import Watch
from gripfast.stores.faults import Fault
from support.etcd_servers import Trio, etcd_server
from support.proxy import Proxy
from support.server_process import HOST

T = TypeVar("T")
COLOURS = ("sync", "async")
SOON = 5.0
EACH = 0.4
"""Seconds of one try."""


class Stage:
    link: Link

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        raise NotImplementedError

    def call(self, request: Request[Any], seconds: float = SOON, **options: Any) -> Any:
        return self.run(self.link.call(request, boottime() + seconds, **options))

    def call_told(self, request: Request[Any], seconds: float = SOON, **options: Any) -> Told:
        return self.run(self.link.call_told(request, boottime() + seconds, **options))

    def call_many(self, requests: Sequence[Request[Any]], seconds: float = SOON, **options: Any) -> list[Any]:
        return self.run(self.link.call_many(requests, boottime() + seconds, **options))

    def watch(self, key: bytes, revision: int = 0, **options: Any) -> Heard:
        return Heard(self, key, revision, **options)


class Heard:
    """A watch, and what was heard of it."""

    def __init__(self, stage: Stage, key: bytes, revision: int, **options: Any) -> None:
        self._stage = stage
        self._inbox = stage.run(_made(stage.link.inbox))
        self.notices: list[Notice] = []
        made = stage.run(stage.link.watch(key, revision, self._notify, boottime() + SOON, **options))
        assert not isinstance(made, Fault), made.error
        self.watch: Watch = made  # type: ignore[assignment]

    def _notify(self, notice: Notice) -> None:
        self.notices.append(notice)
        self._inbox.deliver(None)

    def hear(self, seconds: float = SOON) -> Notice | None:
        """The notice, once there is one."""
        until = boottime() + seconds
        while not self.notices and boottime() < until:
            self._stage.run(self._inbox.hear(until))
        return self.notices[0] if self.notices else None


async def _made(make: Callable[[], T]) -> T:
    return make()


class Sync(Stage):
    def __init__(self, dialer: Dialer) -> None:
        self.link: BlockingLink = BlockingLink(dialer)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return drive(coroutine)


class Async(Stage):
    def __init__(self, dialer: Dialer, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.link: AioLink = self.run(_made(lambda: AioLink(dialer)))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(coroutine)


@contextlib.contextmanager
def stage(colour: str, *endpoints: str, timeout: float = SOON, **options: Any) -> Iterator[Any]:
    dialer = Dialer(endpoints, timeout, **options)
    loop = asyncio.new_event_loop()
    made = Sync(dialer) if colour == "sync" else Async(dialer, loop)
    try:
        yield made
    finally:
        made.run(made.link.close())
        loop.close()


def new_key() -> bytes:
    return f"test/{uuid.uuid4().hex}".encode()


def address(proxy: Proxy) -> str:
    return f"{proxy.host}:{proxy.port}"


def keys_below(prefix: str) -> list[str]:
    return [line for line in etcd_server().ctl("get", prefix, "--prefix", "--keys-only").splitlines() if line]


class Detour(NamedTuple):
    """Three ways to one member."""

    first: Proxy
    second: Proxy

    @property
    def endpoints(self) -> list[str]:
        return [address(self.first), address(self.second), etcd_server().address]

    def lose_an_answer(self) -> None:
        """The next request can't be sent on the first way, gets no answer on the second, and gets one on the third."""
        self.second.hold("replies")
        self.first.close()


# -- fixtures ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def actor(colour: str) -> Iterator[Stage]:
    with stage(colour, etcd_server().address) as made:
        yield made


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """In front of the shared member."""
    with Proxy((HOST, etcd_server().port)) as made:
        yield made


@pytest.fixture
def detour() -> Iterator[Detour]:
    target = (HOST, etcd_server().port)
    with Proxy(target) as first, Proxy(target) as second:
        yield Detour(first, second)


@pytest.fixture(scope="module")
def trio() -> Iterator[Trio]:
    with Trio() as made:
        yield made


@pytest.fixture
def root() -> str:
    return f"store-{uuid.uuid4().hex}/"


@pytest.fixture
def client(root: str) -> Iterator[gripfast.Client]:
    with gripfast.connect(etcd_server().url_with(root=root)) as client:
        yield client
