"""Every store, and every store in both colours, for what once went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.colours import COLOURS, World
from support.stores import STORES


@pytest.fixture(params=STORES, ids=lambda store: store.name)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with request.param.fresh(tmp_path) as fresh:
        yield fresh


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, url: str) -> World:
    return World(url, COLOURS[request.param])
