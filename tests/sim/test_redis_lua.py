"""Lua programs on the simulated server do and answer what they do on a real one."""

from collections.abc import Iterator

import pytest

from sim.redis_pair import Pair, hold_alike, pair_of_servers
from sim.redis_programs import cases, programs_are_alike


@pytest.fixture(scope="module")
def pair_of_module() -> Iterator[Pair]:
    with pair_of_servers() as pair:
        yield pair


@pytest.fixture
def pair(pair_of_module: Pair) -> Pair:
    pair_of_module.reset()
    return pair_of_module


@pytest.mark.timeout(400)  # making a failure smaller takes a while
def test_any_program(pair: Pair) -> None:
    hold_alike(pair, cases, programs_are_alike, examples=250)
