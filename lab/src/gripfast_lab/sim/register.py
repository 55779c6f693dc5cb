"""What a lock guards: a number at some other service, which is read, and written one larger a while later.

It checks tokens, when it is read as well as when it is written, as `gripfast.fencing` does: so it loses no update as
long as tokens grow, whatever became of exclusion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gripfast_lab.sim.chance import Chance
from gripfast_lab.sim.processes import Process
from gripfast_lab.sim.world import Promise, World

T = TypeVar("T")

SLOWEST = 0.005


class Register:
    def __init__(self, world: World, name: str, chance: Chance, note: Callable[..., None]) -> None:
        self._world = world
        self._name = name
        self._chance = chance
        self._note = note
        self._value = 0
        self._fence = 0

    async def read(self, process: Process, token: int) -> int | None:
        """None if the token is stale."""
        return await self._visit(process, lambda: self._value if self._admits(token) else None)

    async def write(self, process: Process, who: str, token: int, value: int) -> None:
        """One more than the value that was read."""
        await self._visit(process, lambda: self._write(who, token, value))

    def _admits(self, token: int) -> bool:
        is_fresh = token >= self._fence
        if is_fresh:
            self._fence = token
        return is_fresh

    def _write(self, who: str, token: int, value: int) -> None:
        if self._admits(token):
            self._value = value + 1
            self._note(who, self._name, "wrote", token=token, note=f"{value} {value + 1}")

    def _visit(self, process: Process, act: Callable[[], T]) -> Promise[T]:
        promise: Promise[T] = Promise()
        chance = self._chance

        def arrive() -> None:
            answer = act()
            self._world.at(self._world.now + SLOWEST * chance.random(), process.do, promise.keep, answer)

        self._world.at(self._world.now + SLOWEST * chance.random(), arrive)
        return promise
