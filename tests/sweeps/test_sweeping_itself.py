"""A sweep that can't fail proves nothing: each fault it is meant to see is shown to it here."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from support import sweeping
from support.sweeping import Moment, sweep_cancels, sweep_interrupts
from sweeps import fakes

FAKES = fakes.__file__


class FakeTrial:
    def __init__(self, lock: Any, scenario: Callable[[Any], object]) -> None:
        self.lock = lock
        self._scenario = scenario

    def begin(self) -> Callable[[], object]:
        return lambda: self._scenario(self.lock)

    def problem(self) -> str | None:
        taken, self.lock = self.lock.taken, type(self.lock)()
        return "still taken" if taken else None


class FakeAsyncTrial:
    def __init__(self, lock: Any) -> None:
        self.lock = lock

    async def begin(self) -> Coroutine[Any, Any, object]:
        return self._scenario()

    async def _scenario(self) -> None:
        await self.lock.acquire()
        await self.lock.release()

    async def problem(self) -> str | None:
        taken, self.lock = self.lock.taken, type(self.lock)()
        return "still taken" if taken else None


def with_lock(lock: Any) -> None:
    with lock:
        pass


@pytest.fixture
def every_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "FULL", True)


@pytest.mark.usefixtures("every_point")
def test_a_lock_that_leaks_on_its_way_out_is_caught_and_the_place_is_named() -> None:
    swept = sweep_interrupts(FakeTrial(fakes.LeakyLock(), with_lock), FAKES, budget=1)
    assert {finding.problem for finding in swept.findings} == {"still taken"}
    assert any("fakes.py:" in finding.where and "__enter__" in finding.where for finding in swept.findings)
    assert any("RETURN" in finding.where for finding in swept.findings), swept.explain()


@pytest.mark.usefixtures("every_point")
def test_a_lock_that_swallows_the_interrupt_is_caught() -> None:
    swept = sweep_interrupts(FakeTrial(fakes.SwallowingLock(), with_lock), FAKES, budget=1)
    assert any("did not come out" in finding.problem for finding in swept.findings)


@pytest.mark.usefixtures("every_point")
def test_a_sound_lock_is_broken_at_every_opcode_and_found_sound() -> None:
    swept = sweep_interrupts(FakeTrial(fakes.SoundLock(), lambda lock: lock.acquire()), FAKES, budget=1)
    assert swept.findings == []
    assert swept.broken == swept.total > 10


def test_nothing_that_the_exception_kept_alive_survives_a_broken_run() -> None:
    gc.disable()
    try:
        trial = FakeTrial(fakes.SoundLock(), lambda lock: [lock.acquire(), lock.acquire()])
        assert sweep_interrupts(trial, FAKES, budget=10_000).findings == []
    finally:
        gc.enable()


def test_a_strided_sweep_keeps_to_its_budget_and_its_stride_is_prime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "FULL", False)
    assert sweeping.stride_for(total=90, budget=90) == 1
    assert sweeping.stride_for(total=900, budget=90) == 11
    assert sweeping.stride_for(total=2000, budget=125) == 17


@pytest.mark.parametrize("moment", Moment)
def test_an_async_lock_that_leaks_when_cancelled_is_caught(moment: Moment) -> None:
    swept = asyncio.run(sweep_cancels(FakeAsyncTrial(fakes.LeakyAsyncLock()), moment))
    assert [(finding.point, finding.problem) for finding in swept.findings] == [(1, "still taken")]
    assert (swept.total, swept.broken) == (2, 2)


@pytest.mark.parametrize("moment", [Moment.SUSPENDING, Moment.WAKING])
def test_an_async_lock_that_swallows_the_cancel_is_caught(moment: Moment) -> None:
    swept = asyncio.run(sweep_cancels(FakeAsyncTrial(fakes.SwallowingAsyncLock()), moment))
    assert ["did not come out" in finding.problem for finding in swept.findings] == [True]


@pytest.mark.parametrize("moment", Moment)
def test_a_sound_async_lock_is_cancelled_at_every_suspension_and_found_sound(moment: Moment) -> None:
    swept = asyncio.run(sweep_cancels(FakeAsyncTrial(fakes.SoundAsyncLock()), moment))
    assert swept.findings == []
    assert (swept.total, swept.broken) == (2, 2)


def test_a_cancel_on_waking_comes_after_the_result() -> None:
    """The awaited future is done and has a value: that grant must not get lost, and this is the moment to lose it."""
    states: list[bool] = []

    class Watching:
        async def begin(self) -> Coroutine[Any, Any, object]:
            return self.wait_for_a_grant()

        async def wait_for_a_grant(self) -> None:
            granted = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(granted.set_result, "yours")
            try:
                await granted
            except asyncio.CancelledError:
                states.append(granted.done() and not granted.cancelled())
                raise

        async def problem(self) -> str | None:
            return None

    swept = asyncio.run(sweep_cancels(Watching(), Moment.WAKING))
    assert (swept.broken, states) == (1, [True])
