"""The third runtime: the recipes of `core` on virtual time.

It has what the other two have: an Env with the process's own clock, a watchdog that goes round whenever something is
due, and notices that look at the clock alone. In the blocking colour the watchdog also gives back what nobody will
release; in the asyncio colour an undertaker does, over a store of its own.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from gripfast.core import closing
from gripfast.core.acquire import acquire
from gripfast.core.handover import adopt, detach
from gripfast.core.lease import LeaseState, Want
from gripfast.core.ledger import Ledger, Mark
from gripfast.core.notice import Notices
from gripfast.core.once import record_done
from gripfast.core.permits import downgrade
from gripfast.core.ports import Env, Granted, Store, Taken, Unreachable
from gripfast.core.release import release
from gripfast.core.upkeep import Errand, Extend, Reaper, Upkeep
from gripfast_lab.sim.processes import Process, Timer
from gripfast_lab.sim.world import Promise, running


class SimInbox:
    """Where the notifications for one waiter arrive."""

    __slots__ = ("__weakref__", "_hearing", "_process", "_pushes")

    def __init__(self, process: Process) -> None:
        self._process = process
        self._pushes: deque[Granted | None] = deque()
        self._hearing: Promise[None] | None = None

    def deliver(self, push: Granted | None) -> bool:
        self._pushes.append(push)
        if self._hearing is not None:
            self._hearing.keep(None)
        return True

    async def hear(self, until: float) -> Granted | None:
        if not self._pushes:
            self._hearing = self._process.wake_at(until)
            await self._hearing
        return self._pushes.popleft() if self._pushes else None


class Runtime:
    """One client of a process: what production has in `api.Client` and its runtime."""

    def __init__(
        self,
        process: Process,
        store: Store,
        aside: Store | None,
        request_timeout: float,
        connect_patience: float,
        ledger: Callable[[Callable[[Mark], None]], Ledger] = Ledger,
    ) -> None:
        self.process = process
        self.store = store
        self.is_closed = False
        self.listeners: list[Callable[[LeaseState], None]] = []
        """Told when the moments of a lease have moved."""
        self._aside = aside
        self._owners = 0
        self._watchdog = _Ticker(process, "watchdog", self._look_after)
        self._undertaker = None if aside is None else _Ticker(process, "undertaker", self._give_back)
        self.env = Env(
            store=store,
            ledger=ledger(self._drop),
            now=process.now,
            pause=process.sleep,
            new_owner=self._new_owner,
            announce=self._announce,
            request_timeout=request_timeout,
            connect_patience=connect_patience,
            look_at=self._watchdog.look_before,
        )
        self._upkeep = Upkeep(self.env)
        self._losses = Notices(self.env)
        self._reaper = None if aside is None else Reaper(aside, process.now)
        self._notice: Timer | None = None
        self._notice_at = math.inf

    async def acquire(self, want: Want, wait: float | None) -> LeaseState | Taken:
        return await acquire(self.env, want, wait)

    async def release(self, state: LeaseState) -> None:
        await release(self.env, state)

    async def extend(self, state: LeaseState, ttl: float) -> Unreachable | None:
        """The reply, or None with the lease over."""
        replies: list[Unreachable | None] = []
        bell: Promise[None] = Promise()

        def replied(answer: Unreachable | None) -> None:
            replies.append(answer)
            bell.keep(None)

        self._watchdog.put(Extend(state, ttl, replied))
        while not replies and state.remaining(self.process.now()) > 0.0:
            bell = self.process.wake_at(state.deadline)
            await bell
        return replies[0] if replies else None

    async def downgrade(self, state: LeaseState) -> None:
        await downgrade(self.env, state)

    async def record_done(self, state: LeaseState, seconds: float) -> None:
        await record_done(self.env, state, seconds)

    async def detach(self, state: LeaseState) -> None:
        await detach(self.env, state)

    async def adopt(self, want: Want, former: str) -> LeaseState:
        return await adopt(self.env, want, former)

    async def close(self) -> None:
        closing.begin(self.env)
        await self._watchdog.stop()
        if self._undertaker is not None:
            await self._undertaker.stop()
        self._losses.tell()  # what is lost by now is told as a loss
        for state in self.env.ledger.states():
            state.finish("released")
            state.tell()
        if self._reaper is None:
            await self._upkeep.give_all_back()
        else:
            await self._upkeep.read_all()
            await self._reaper.reap_all(self.env.ledger)
        if self._notice is not None:
            self._notice.cancel()
        await self.store.close()
        if self._aside is not None:
            await self._aside.close()

    def _new_owner(self) -> str:
        """Not random, so that a history can be read: who asks, and the how manieth time."""
        self._owners += 1
        return f"{running()}#{self._owners}"

    def _drop(self, mark: Mark) -> None:
        (self._undertaker or self._watchdog).put(mark)

    def _announce(self, state: LeaseState) -> None:
        self._losses.announce(state)
        self._upkeep.renews_at.announce(state.renew_at)
        self._look_before(-math.inf if state.ending is not None else state.deadline)
        self._watchdog.look_before(state.renew_at)
        for listener in self.listeners:
            listener(state)

    def _look_before(self, moment: float) -> None:
        if moment < self._notice_at:
            if self._notice is not None:
                self._notice.cancel()
            self._notice_at = moment
            self._notice = self.process.at(max(moment, self.process.now()), self._tell)

    def _tell(self) -> None:
        self._notice, self._notice_at = None, math.inf
        self._look_before(self._losses.tell())

    async def _look_after(self, errands: Sequence[Errand]) -> float:
        return await self._upkeep.round(errands)

    async def _give_back(self, errands: Sequence[Errand]) -> float:
        assert self._reaper is not None
        return await self._reaper.reap(errand for errand in errands if isinstance(errand, Mark))


class _Ticker:
    """Works whenever its moment has come, or when something is put on its queue."""

    def __init__(
        self, process: Process, name: str, work: Callable[[Sequence[Errand]], Coroutine[Any, Any, float]]
    ) -> None:
        self._process = process
        self._name = f"{process.name}/{name}"
        self._work = work
        self._queue: list[Errand] = []
        self._wakes_at = math.inf
        self._timer: Timer | None = None
        self._round_over: Promise[None] | None = None
        self._is_stopped = False

    def put(self, errand: Errand) -> None:
        self._queue.append(errand)
        self.look_before(-math.inf)

    def look_before(self, moment: float) -> None:
        if moment >= self._wakes_at or self._is_stopped:
            return
        self._wakes_at = moment
        if self._round_over is None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._process.at(max(moment, self._process.now()), self._start)

    async def stop(self) -> None:
        """The round that is under way is still made."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._round_over is not None:
            await self._round_over

    def _start(self) -> None:
        self._timer = None
        self._round_over = Promise()
        self._process.start(self._name, self._round(self._round_over))

    async def _round(self, over: Promise[None]) -> None:
        self._wakes_at = math.inf  # first: what is announced meanwhile must count
        errands, self._queue = self._queue, []
        moment = await self._work(errands)
        self._round_over = None
        moment, self._wakes_at = min(moment, self._wakes_at), math.inf
        self.look_before(-math.inf if self._queue else moment)
        over.keep(None)
