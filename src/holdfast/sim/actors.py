"""Those who use locks in the world, as a careful program would, and write down what they are told."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence

from holdfast.core import rules
from holdfast.core.lease import LeaseState, Want
from holdfast.core.ports import Taken
from holdfast.errors import HoldfastError, LeaseLost, Reason, StoreUnavailable
from holdfast.sim.history import Kind
from holdfast.sim.plan import Errand
from holdfast.sim.register import Register
from holdfast.sim.runtime import Runtime
from holdfast.sim.world import Cancelled, Promise

_ROUNDING = 1e-6
"""Seconds by which the true moment of a reading may be wrong, because floats are."""

Note = Callable[..., None]


class Actor:
    def __init__(
        self,
        name: str,
        runtime: Runtime,
        errands: Sequence[Errand],
        registers: dict[str, Register],
        note: Note,
        done: Callable[[], None],
    ) -> None:
        self.name = name
        self.is_over = False
        self.is_busy = False
        self._runtime = runtime
        self.process = runtime.process
        self._errands = errands
        self._registers = registers
        self._write_down = note
        self._done = done
        self._holds: weakref.ref[LeaseState] | None = None
        self._lock = ""
        self._told: Promise[None] = Promise()

    def start(self) -> None:
        self._task = self.process.start(self.name, self._live())

    def cancel(self) -> None:
        if self.is_busy:
            self._task.cancel()

    async def _live(self) -> None:
        for errand in self._errands:
            self._lock = errand.name
            await self.process.sleep(errand.after)
            self.is_busy = True
            try:
                await self._do(errand)
            except Cancelled:
                self._note("cancelled")
            self.is_busy = False
        self.is_over = True
        self._done()

    def holds(self, name: str) -> LeaseState | None:
        """The lease on this lock that it believes in."""
        state = None if self._holds is None or self._lock != name else self._holds()
        if state is None or state.ending is not None or state.deadline <= self.process.now():
            return None
        return state

    def tell_held(self, state: LeaseState, deadline: float = math.inf) -> None:
        self._note("held", token=state.token, until=self._true(min(deadline, state.deadline)), ttl=state.ttl)

    async def _do(self, errand: Errand) -> None:
        now, env = self.process.now(), self._runtime.env
        wait = errand.wait
        silence = env.connect_patience if wait is None else max(wait, env.request_timeout)
        self._note(
            "asked",
            until=self._true(now + (silence if wait is None else wait)) - _ROUNDING,
            patience=self._true(now + silence) - _ROUNDING,
            ttl=errand.ttl,
            renews=errand.renews,
        )
        want = Want(errand.name, errand.ttl, errand.renews, errand.max_hold, None)
        try:
            answer = await self._runtime.acquire(want, wait)
        except StoreUnavailable as error:
            self._note("unreachable", note=type(error).__name__)
        except HoldfastError as error:
            self._note("failed", note=f"{type(error).__name__}: {error}")
        else:
            if isinstance(answer, Taken):
                self._note("refused")
            else:
                await self._hold(errand, answer)

    async def _hold(self, errand: Errand, state: LeaseState) -> None:
        self._told = Promise()
        state.on_lost = self._lost
        self._holds = weakref.ref(state)
        self._note("granted", token=state.token, until=self._true(state.deadline), ttl=errand.ttl)
        try:
            await self._work(errand, state)
        except Cancelled:
            await self._release(state)
            raise
        if errand.ending == "release":
            await self._release(state)
        else:
            self._holds = None
            self._note("releasing", note="dropped")
            self._note("released", note="dropped")

    async def _work(self, errand: Errand, state: LeaseState) -> None:
        register = self._registers[errand.name] if errand.writes else None
        value = None if register is None else await register.read(self.process, state.token)
        for look in range(errand.looks):
            if not await self._goes_on(errand.works / errand.looks, state):
                return
            if errand.extends is not None and look == 0:
                await self._extend(state, errand.extends)
        if register is not None and value is not None:
            await register.write(self.process, self.name, state.token, value)

    async def _extend(self, state: LeaseState, ttl: float) -> None:
        """Who asks for a shorter time has it from then on."""
        self.tell_held(state, rules.deadline(self.process.now(), ttl))
        await self._runtime.extend(state, ttl)
        if state.remaining(self.process.now()) > 0.0:
            self.tell_held(state)

    async def _goes_on(self, seconds: float, state: LeaseState) -> bool:
        """After so many seconds, or as soon as it is told that it has lost the lock."""
        self.process.at(self.process.now() + seconds, self._told.keep, None)
        await self._told
        self._told = Promise()
        if state.remaining(self.process.now()) <= 0.0:
            return False
        self.tell_held(state)
        return True

    async def _release(self, state: LeaseState) -> None:
        self._holds = None
        self._note("releasing")
        try:
            await self._runtime.release(state)
        except LeaseLost as lost:
            self._note("lost", note=lost.reason)
        else:
            self._note("released")

    def _lost(self, state: LeaseState, reason: Reason) -> None:
        if self._holds is not None and self._holds() is state:  # and was not dropped since
            self._note("lost", note=reason)
            self._told.keep(None)

    def _note(self, kind: Kind, **more: object) -> None:
        self._write_down(self.name, self._lock, kind, **more)

    def _true(self, local: float) -> float:
        return self.process.clock.true_at(local)
