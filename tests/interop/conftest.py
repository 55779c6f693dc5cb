"""Every test that asks for `foreign` runs against each library that locks the same key; `world` is Gripfast.

All of them speak to the shared server; each test has a prefix, and so a lock, of its own.
"""

import inspect
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
import redis

from interop.foreign import IN_NODE, IN_PYTHON, Foreign
from interop.node import Node
from support.colours import COLOURS, World, play
from support.redis_server import lock_space, shared_server


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    play(pyfuncitem.obj, {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters})
    return True


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with closing(Node()) as node:
        yield node


@pytest.fixture(scope="module", params=[*IN_PYTHON, *IN_NODE], ids=lambda library: library.name)
def foreign(request: pytest.FixtureRequest) -> Iterator[Foreign]:
    yield from _opened(request.param, request)


@pytest.fixture(scope="module")
def everyone(node: Node) -> Iterator[list[Foreign]]:
    """All of them, for what takes its time and does not need a run for each."""
    with ExitStack() as stack:
        libraries = [*(kind(shared_server()) for kind in IN_PYTHON), *(kind(shared_server(), node) for kind in IN_NODE)]
        yield [stack.enter_context(closing(each)) for each in libraries]


@pytest.fixture(scope="module", params=[each for each in IN_PYTHON if each.endless], ids=lambda library: library.name)
def endless(request: pytest.FixtureRequest) -> Iterator[Foreign]:
    """Those that can lock without a ttl."""
    yield from _opened(request.param, request)


def _opened(library: Any, request: pytest.FixtureRequest) -> Iterator[Foreign]:
    more = [request.getfixturevalue("node")] if library in IN_NODE else []
    with closing(library(shared_server(), *more)) as foreign:
        yield foreign


@pytest.fixture
def prefix() -> str:
    return f"{uuid.uuid4().hex}:"


@pytest.fixture
def url(prefix: str) -> Iterator[str]:
    with lock_space(prefix) as url:
        yield url


@pytest.fixture
def key(prefix: str) -> str:
    """The key that both sides mean by "job"."""
    return f"{prefix}job"


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, url: str) -> World:
    return World(url, COLOURS[request.param])


@pytest.fixture
def onlooker() -> Iterator["redis.Redis"]:
    """To look at the key, and to be the operator who deletes it."""
    with shared_server().client(decode_responses=True) as client:
        yield client
