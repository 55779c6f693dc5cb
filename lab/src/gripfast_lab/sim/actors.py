"""Those who use locks in the world, as a careful program would, and write down what they are told."""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Sequence

from gripfast.core import rules
from gripfast.core.lease import LeaseState, Want
from gripfast.core.ports import Taken
from gripfast.errors import ClientClosed, ConfigurationError, LeaseLost, Reason, StoreUnavailable
from gripfast_lab.sim.history import HELD_BY, Kind
from gripfast_lab.sim.plan import Errand
from gripfast_lab.sim.register import Register
from gripfast_lab.sim.runtime import Runtime
from gripfast_lab.sim.world import Cancelled, Promise

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
        runtime.listeners.append(self._announced)
        self.process = runtime.process
        self._errands = errands
        self._registers = registers
        self._write_down = note
        self._done = done
        self._holds: weakref.ref[LeaseState] | None = None
        self._lock = ""
        self._told: Promise[None] = Promise()
        self._was_told = False
        self._heeds = True
        self._limit = math.inf

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

    def owner(self) -> str:
        """Of the lease that it believes in."""
        state = None if self._holds is None else self._holds()
        return "" if state is None else state.owner

    def tell_held(self, state: LeaseState) -> None:
        self._note("held", token=state.token, until=self._true(state.deadline), ttl=state.ttl)
        if state.deadline > self._limit + _ROUNDING:
            self._note("misled", note="held beyond max_hold")

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
            note=self._says(errand),
        )
        try:
            answer = await self._runtime.acquire(self._want(errand), wait)
        except ConfigurationError:
            self._misfit()
        except (StoreUnavailable, ClientClosed) as error:
            kind: Kind = "unreachable" if isinstance(error, StoreUnavailable) else "failed"
            self._note("cancelled" if self._runtime.is_closed else kind, note=type(error).__name__)
        else:
            if isinstance(answer, Taken):
                self._note("refused", note=self._refusal(answer))
            else:
                await self._hold(errand, answer)

    def _says(self, errand: Errand) -> str:
        """What else it asks for."""
        return "" if errand.share is None else f"{errand.share.n} of {errand.share.limit}"

    def _want(self, errand: Errand) -> Want:
        name = errand.name
        is_lazy, share = errand.is_lazy, errand.share
        return Want(name, name, errand.ttl, errand.renews, errand.max_hold, None, share=share, is_lazy=is_lazy)

    def _misfit(self) -> None:
        self._note("cancelled" if self._runtime.is_closed else "failed", note="ConfigurationError")

    def _refusal(self, taken: Taken) -> str:
        """By whom: nobody is refused by what its own client has released (`rivals.overtaken`)."""
        return "" if taken.holder is None else f"{HELD_BY}{taken.holder.owner}"

    async def _hold(self, errand: Errand, state: LeaseState) -> None:
        self._told = Promise()
        self._was_told = False
        self._heeds = errand.heeds
        state.on_lost = self._lost
        state.listeners.append(self._closed)
        self._holds = weakref.ref(state)
        self._limit = math.inf if errand.max_hold is None else self.process.now() + errand.max_hold
        slots = "" if errand.share is None else ",".join(map(str, state.slots))
        self._note("granted", token=state.token, until=self._true(state.deadline), ttl=errand.ttl, note=slots)
        if state.deadline <= self.process.now():
            self.tell_held(state)  # nobody else would say so: it is late
        try:
            await self._work(errand, state)
        except Cancelled:
            await self._release(state)
            raise
        await self._end(errand, state)

    async def _end(self, errand: Errand, state: LeaseState) -> None:
        if errand.ending != "drop":
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
            if errand.downgrades and look == 0:
                await self._downgrade(state)
        if register is not None and value is not None:
            await register.write(self.process, self.name, state.token, value)

    async def _extend(self, state: LeaseState, ttl: float) -> None:
        least = min(rules.deadline(self.process.now(), min(ttl, state.ceiling)), state.limit)
        answer = await self._runtime.extend(state, ttl)
        if state.remaining(self.process.now()) > 0.0:
            self.tell_held(state)
            if answer is None and state.deadline < least - _ROUNDING:
                self._note("misled", note="an extension had no effect")

    async def _downgrade(self, state: LeaseState) -> None:
        """From before it is requested, it believes in less."""
        if state.remaining(self.process.now()) > 0.0:
            self._note("held", token=state.token, until=self._true(state.deadline), ttl=state.ttl, note="1 left")
            with contextlib.suppress(LeaseLost, ClientClosed):  # that the client is closed ends every request of it
                await self._runtime.downgrade(state)

    def _announced(self, state: LeaseState) -> None:
        """Its moments have moved: a shorter ttl counts from before it is sent."""
        if self._holds is not None and self._holds() is state and state.remaining(self.process.now()) > 0.0:
            self.tell_held(state)

    async def _goes_on(self, seconds: float, state: LeaseState) -> bool:
        """After so many seconds, or as soon as it is told that it has lost the lock."""
        self.process.at(self.process.now() + seconds, self._told.keep, None)
        await self._told
        self._told = Promise()
        if state.remaining(self.process.now()) > 0.0:
            self.tell_held(state)
            return True
        await self.process.sleep(0.0)  # after a pause, what it has missed comes first
        if self._holds is not None and not self._was_told:
            self._note("misled", note="the holder was not notified of its loss")
        return False

    async def _release(self, state: LeaseState) -> None:
        if self._holds is not None:
            self._holds = None
            self._note("releasing")
        try:
            await self._runtime.release(state)
        except LeaseLost as lost:
            self._note("lost", note=lost.reason)
        else:
            if state.ending != "released":
                self._note("misled", note="the release of a lost lease raised no error")
            self._note("released")

    def _lost(self, state: LeaseState, reason: Reason) -> None:
        if self._holds is not None and self._holds() is state:  # and was not dropped since
            self._was_told = True
            self._note("lost", note=reason)
            if self._heeds:
                self._told.keep(None)

    def _closed(self) -> None:
        """Whoever waits for the end of a lease is told of any; here it counts if the client was closed under it."""
        state = None if self._holds is None else self._holds()
        if state is not None and state.ending == "released":
            self._holds = None
            self._note("releasing", note="the client is closed")
            self._told.keep(None)

    def _note(self, kind: Kind, **more: object) -> None:
        self._write_down(self.name, self._lock, kind, **more)

    def _true(self, local: float) -> float:
        return self.process.clock.true_at(local)
