"""The simulated server and the real one, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sim.redis_pair import Pair, pair_of_servers


@pytest.fixture(scope="module")
def pair_of_module() -> Iterator[Pair]:
    with pair_of_servers() as pair:
        yield pair


@pytest.fixture
def pair(pair_of_module: Pair) -> Pair:
    pair_of_module.reset()
    return pair_of_module
