"""An interrupt at any opcode, or a cancel at any await: observers are told one end of every claim all the same."""

import asyncio
import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from gripfast.testing.observing import Recorder, broken_stories
from support.misbehaving import every_client_has
from support.sweeping import Action, Moment, Report, Swept, combined, sweep_cancels, sweep_interrupts
from support.waiting import auntil, until
from sweeps import test_cancels, test_interrupts_asyncio, test_interrupts_blocking
from sweeps.test_cancels import AsyncWorld, CancelTrial
from sweeps.test_interrupts_asyncio import CASES, AsyncioTrial, Main
from sweeps.test_interrupts_blocking import BlockingTrial, Scenario
from sweeps.worlds import PATIENCE, TARGET, World, url_of

pytestmark = pytest.mark.filterwarnings("ignore")  # a broken run may well drop a lease, or a coroutine it did not start

POINTS = 40
"""Of each scenario in `make test`."""


@pytest.fixture
def seen() -> Iterator[Recorder]:
    """What is told of all clients."""
    seen = Recorder()
    with every_client_has(lambda client: seen):
        yield seen


@pytest.fixture
def world(seen: Recorder, tmp_path: Path) -> Iterator[World]:
    with contextlib.closing(World(url_of("memory", tmp_path))) as world:
        yield world


def broken(seen: Recorder, name: str) -> list[str]:
    return broken_stories(seen.of(name))


class Observed:
    """A trial that asks in the end what was told of its lock."""

    def __init__(self, trial: BlockingTrial | AsyncioTrial, world: World, seen: Recorder) -> None:
        self._trial = trial
        self._world = world
        self._seen = seen

    def begin(self) -> Action:
        return self._trial.begin()

    def problem(self) -> str | None:
        name = self._world.name
        if (problem := self._trial.problem()) is not None:
            return problem
        with contextlib.suppress(AssertionError):
            until(lambda: not broken(self._seen, name), within=PATIENCE)
        return "; ".join(broken(self._seen, name)) or None


class ObservedCancel(CancelTrial):
    def __init__(self, world: AsyncWorld, scenario: test_cancels.Scenario, seen: Recorder) -> None:
        super().__init__(world, scenario)
        self._seen = seen

    async def problem(self) -> str | None:
        name = self._world.name
        if (problem := await super().problem()) is not None:
            return problem
        with contextlib.suppress(AssertionError):
            await auntil(lambda: not broken(self._seen, name), within=PATIENCE)
        return "; ".join(broken(self._seen, name)) or None


@pytest.mark.parametrize("scenario", test_interrupts_blocking.SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_an_interrupt_at_any_opcode(scenario: Scenario, world: World, seen: Recorder, report: Report) -> None:
    gc.disable()  # dropping the exception must be enough
    try:
        trial = Observed(BlockingTrial(world, scenario), world, seen)
        report(sweep_interrupts(trial, TARGET, POINTS))
    finally:
        gc.enable()
    assert seen.events


@pytest.mark.parametrize(("main", "state"), CASES, ids=lambda part: getattr(part, "__name__", part))
def test_an_interrupt_at_any_opcode_beside_an_event_loop(
    main: Main, state: str, world: World, seen: Recorder, report: Report
) -> None:
    trial = Observed(AsyncioTrial(world, main, state), world, seen)
    report(sweep_interrupts(trial, TARGET, test_interrupts_asyncio.BUDGET["memory"]))
    assert seen.events


@pytest.mark.parametrize("scenario", test_cancels.SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_cancel_at_any_await(scenario: test_cancels.Scenario, seen: Recorder, tmp_path: Path, report: Report) -> None:
    async def main() -> Swept:
        world = AsyncWorld(url_of("memory", tmp_path))
        try:
            return combined([await sweep_cancels(ObservedCancel(world, scenario, seen), moment) for moment in Moment])
        finally:
            await world.aclose()

    report(asyncio.run(main()))
    assert seen.events
