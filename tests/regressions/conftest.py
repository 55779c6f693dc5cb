"""Every store, and every store in both colours, for what once went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from support.colours import COLOURS, World
from support.lanes import Lanes
from support.redis_server import RedisServer
from support.stores import STORES


@pytest.fixture(params=STORES, ids=lambda store: store.name)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with request.param.fresh(tmp_path) as fresh:
        yield fresh


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, url: str) -> World:
    return World(url, COLOURS[request.param])


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """One that a test may mistreat."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def admin(server: RedisServer) -> Iterator[redis.Redis]:
    """Everything is forgotten on the server."""
    with server.client() as client:
        client.flushall()
        client.script_flush()
        yield client


@pytest.fixture
def lanes(server: RedisServer, admin: redis.Redis) -> Iterator[Lanes]:
    """A proxy in front of it that treats each connection on its own."""
    with Lanes(server.port) as lanes:
        yield lanes
