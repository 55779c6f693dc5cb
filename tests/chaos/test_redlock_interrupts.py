"""Threads are interrupted at any instruction, nodes forget and hang up: nothing is left behind. `interrupting.py`."""

from collections.abc import Iterator

import pytest

from chaos.five import as_new, five_nodes
from chaos.interrupting import attack
from support.redis_server import RedisServer

# An interrupt also strikes in finalisers, and before a coroutine is awaited.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine.*never awaited:RuntimeWarning"
)


@pytest.fixture(scope="module")
def servers() -> Iterator[list[RedisServer]]:
    with five_nodes() as nodes:
        as_new(nodes)
        yield nodes


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_left_of_threads_that_were_interrupted(servers: list[RedisServer], seed: int) -> None:
    assert attack(servers, seed, seconds=3.0) == []
