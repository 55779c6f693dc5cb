"""One nursery for all chaos tests; a server, or several, and a stage for each."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.cutting import COLOURS, World
from chaos.stage import LONG, NURSERY, Stage
from support.processes import Worker
from support.proxy import Proxy
from support.redis_server import RedisServer


@pytest.fixture(scope="session")
def _nurseries() -> Iterator[list[Worker]]:
    """The one that is in use; a test that fails in the middle of a play leaves one nobody can talk to."""
    nurseries: list[Worker] = []
    yield nurseries
    for nursery in nurseries:
        nursery.__exit__(None, None, None)


@pytest.fixture
def nursery(_nurseries: list[Worker], request: pytest.FixtureRequest) -> Iterator[Worker]:
    if not _nurseries:
        _nurseries.append(Worker(str(NURSERY)))
    failed_before = request.session.testsfailed
    yield _nurseries[0]
    if request.session.testsfailed > failed_before:
        _nurseries.pop().__exit__(None, None, None)


@pytest.fixture
def arguments() -> tuple[str, ...]:
    """Of the server; a test that wants other ones overrides this."""
    return ()


@pytest.fixture
def server(arguments: tuple[str, ...]) -> Iterator[RedisServer]:
    with RedisServer(*arguments) as server:
        yield server


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> str:
    """The same in every run, unless it is a long one."""
    usual = f"{request.node.name} {time.time_ns()}" if LONG else str(request.node.name)
    return os.environ.get("GRIPFAST_SEED", usual)


@pytest.fixture
def servers(server: RedisServer) -> list[RedisServer]:
    """All there are; a module with several overrides this, and the next one."""
    return [server]


@pytest.fixture
def url(server: RedisServer) -> str:
    """Of the locks."""
    return server.url


@pytest.fixture
def stage(nursery: Worker, servers: list[RedisServer], url: str, tmp_path: Path, seed: str) -> Iterator[Stage]:
    stage = Stage(nursery, servers, url, tmp_path, seed)
    yield stage
    stage.close()


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", server.port)) as proxy:
        yield proxy


@pytest.fixture
def request_timeout() -> float:
    """Of the client behind the proxy; a test that wants another one overrides this."""
    return 1.0


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, server: RedisServer, proxy: Proxy, request_timeout: float) -> Iterator[World]:
    behind = f"redis://{proxy.host}:{proxy.port}/0?request_timeout={request_timeout}"
    world = World(request.param, server.url, proxy, behind, request_timeout)
    yield world
    world.close()
