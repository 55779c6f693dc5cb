"""A process of the world: its clock, its tasks, and what can be done to it.

While it is paused (a long collection of garbage, SIGSTOP) its clock goes on and the world goes on; whatever would have
happened in it happens when it goes on, in the same order. A dead one does nothing any more, not even clean up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import Any

from gripfast_lab.sim.clocks import Clock
from gripfast_lab.sim.world import Promise, Task, World

_ROUNDING = 1e-9
"""Seconds that a timer fires later than its moment, so that the clock, as a float, has surely reached it."""


class Timer:
    __slots__ = ("args", "call", "moment")

    def __init__(self, moment: float, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.moment = moment
        self.call: Callable[..., object] | None = call
        self.args = args

    def cancel(self) -> None:
        self.call = None


class Process:
    def __init__(self, world: World, name: str, clock: Clock) -> None:
        self.name = name
        self.world = world
        self.clock = clock
        self.is_dead = False
        self.tasks: dict[Task, None] = {}
        self._pauses = 0
        self._missed: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._timers: dict[Timer, None] = {}
        """Those that have not fired yet."""

    def now(self) -> float:
        return self.clock.read(self.world.now)

    def do(self, call: Callable[..., object], *args: Any) -> None:
        """As soon as it runs."""
        if self._pauses:
            self._missed.append((call, args))
        elif not self.is_dead:
            call(*args)

    def at(self, local: float, call: Callable[..., object], *args: Any) -> Timer:
        """When its own clock shows this."""
        timer = Timer(local, call, args)
        if local < math.inf:
            self._timers[timer] = None
            self._set(timer)
        return timer

    def call_later(self, seconds: float, call: Callable[..., object], /, *args: Any) -> Timer:
        """As a loop of production's drivers; and so is the next."""
        return self.at(self.now() + seconds, call, *args)

    def call_soon(self, call: Callable[..., object], /, *args: Any) -> Timer:
        return self.call_later(0.0, call, *args)

    def speed_up(self, factor: float) -> None:
        """Its clock, and so all that it waits for by it."""
        self.clock.speed_up(self.world.now, factor)
        for timer in self._timers:
            self._set(timer)

    def _set(self, timer: Timer) -> None:
        self.world.at(self.clock.true_at(timer.moment) + _ROUNDING, self.do, self._fire, timer)

    def _fire(self, timer: Timer) -> None:
        call = timer.call
        if call is not None and self.now() < timer.moment:  # its clock stood still, or went back
            self._set(timer)
            return
        self._timers.pop(timer, None)
        timer.cancel()  # it may have been set twice
        if call is not None:
            call(*timer.args)

    async def sleep(self, seconds: float) -> None:
        await self.wake_at(self.now() + max(0.0, seconds))

    def wake_at(self, local: float) -> Promise[None]:
        promise: Promise[None] = Promise()
        self.at(local, promise.keep, None)
        return promise

    def start(self, name: str, coroutine: Coroutine[Any, Any, None]) -> Task:
        task = Task(name, coroutine, self._ended)
        self.tasks[task] = None
        task.start()
        return task

    def _ended(self, task: Task) -> None:
        self.tasks.pop(task, None)

    def pause(self) -> None:
        self._pauses += 1

    def go_on(self) -> None:
        self._pauses -= 1
        while self._missed and not self._pauses and not self.is_dead:
            call, args = self._missed.pop(0)
            call(*args)

    def die(self) -> None:
        self.is_dead = True
