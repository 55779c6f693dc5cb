"""KeyboardInterrupt at the opcodes of Gripfast's frames while the lock object lives on: a block gives the lock back."""

from collections.abc import Callable, Iterator

import pytest

from gripfast.compat.threading import Lock, RLock
from support.sweeping import Action, sweep_interrupts
from sweeps.worlds import TARGET, World

pytestmark = pytest.mark.filterwarnings("ignore")  # a broken run may well drop a lease

BUDGET = 20

kinds = pytest.mark.parametrize("kind", [Lock, RLock])


def in_a_block(lock: Lock) -> None:
    with lock:
        pass


def in_nested_blocks(lock: Lock) -> None:
    with lock, lock:
        pass


def by_hand(lock: Lock) -> None:
    lock.acquire()
    lock.release()


class Trial:
    """`keeps`: whether the lock object outlives the broken run."""

    def __init__(self, world: World, kind: type[Lock], use: Callable[[Lock], None], keeps: bool) -> None:
        self._world, self._kind, self._use, self._keeps = world, kind, use, keeps
        self._kept: list[Lock] = []

    def begin(self) -> Action:
        lock = self._kind(self._world.new_run().first, self._world.name)
        if self._keeps:
            self._kept.append(lock)
        return lambda: self._use(lock)

    def problem(self) -> str | None:
        return self._world.problem()


@pytest.fixture
def world(url: str) -> Iterator[World]:
    world = World(url)
    yield world
    world.close()


@kinds
def test_an_interrupted_block_gives_the_lock_back(world: World, kind: type[Lock]) -> None:
    swept = sweep_interrupts(Trial(world, kind, in_a_block, keeps=True), TARGET, BUDGET)
    assert not swept.findings, swept.explain()


def test_interrupted_nested_blocks_give_the_lock_back(world: World) -> None:
    swept = sweep_interrupts(Trial(world, RLock, in_nested_blocks, keeps=True), TARGET, BUDGET)
    assert not swept.findings, swept.explain()


@kinds
def test_an_interrupted_acquire_leaves_nothing_once_the_lock_object_is_gone(world: World, kind: type[Lock]) -> None:
    swept = sweep_interrupts(Trial(world, kind, by_hand, keeps=False), TARGET, BUDGET)
    assert not swept.findings, swept.explain()
