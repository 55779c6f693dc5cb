"""Those who do things once, hold locks for a least time, and hand them over, as a careful program would."""

from __future__ import annotations

from typing import NamedTuple

from gripfast.core import rules
from gripfast.core.lease import LeaseState, Want
from gripfast.core.ports import Taken
from gripfast.errors import ClientClosed, LeaseLost, OutcomeUnknown, StoreUnavailable
from gripfast_lab.sim.actors import _ROUNDING, Actor
from gripfast_lab.sim.plan import Errand
from gripfast_lab.sim.processes import Process
from gripfast_lab.sim.world import Promise


class Text(NamedTuple):
    """What `api/handover.py` writes into the text of a detached lease, as far as the engine is concerned."""

    owner: str
    ttl: float
    min_hold: float | None


class Board:
    """Where all processes read the texts of detached leases, at once."""

    def __init__(self) -> None:
        self.owners: dict[str, float] = {}
        """That somebody may adopt from, or has; and since when."""
        self._last: dict[str, Text] = {}
        self._readers: dict[str, list[tuple[Process, Promise[None]]]] = {}

    def post(self, name: str, text: Text) -> None:
        self._last[name] = text
        for process, promise in self._readers.pop(name, []):
            process.do(promise.keep, None)

    async def read(self, name: str, process: Process, until: float) -> Text | None:
        """The last one; if there is none, the first that comes."""
        if name not in self._last:
            promise = process.wake_at(until)
            self._readers.setdefault(name, []).append((process, promise))
            await promise
        return self._last.get(name)


class FamilyActor(Actor):
    board: Board
    kill = staticmethod(lambda process, with_machine: None)

    async def _do(self, errand: Errand) -> None:
        if errand.adopts is None:
            await super()._do(errand)
            return
        process = self.process
        text = await self.board.read(errand.name, process, process.now() + 2.0 * errand.ttl)
        if text is not None:
            await process.sleep(errand.adopts)
            await self._adopt(errand, text)

    async def _adopt(self, errand: Errand, text: Text) -> None:
        now, env = self.process.now(), self._runtime.env
        errand = errand._replace(min_hold=text.min_hold)
        self._note(
            "asked",
            until=self._true(now) - _ROUNDING,
            patience=self._true(now + env.request_timeout) - _ROUNDING,
            ttl=errand.ttl,
            renews=errand.renews,
            note=f"{self._says(errand)} adopts {text.owner}".strip(),
        )
        try:
            state = await self._runtime.adopt(self._want(errand), text.owner)
        except LeaseLost as lost:
            self._note("refused", note=lost.reason)
        except (StoreUnavailable, ClientClosed) as error:
            self._note("cancelled" if self._runtime.is_closed else "unreachable", note=type(error).__name__)
        else:
            await self._hold(errand, state)

    def _says(self, errand: Errand) -> str:
        if errand.keep is not None:
            return f"once {errand.keep}"
        return "" if errand.min_hold is None else f"min_hold {errand.min_hold}"

    def _want(self, errand: Errand) -> Want:
        return super()._want(errand)._replace(min_hold=errand.min_hold, is_once=errand.keep is not None)

    def _refusal(self, taken: Taken) -> str:
        return "done" if taken.holder is not None and taken.holder.kept == "done" else ""

    async def _work(self, errand: Errand, state: LeaseState) -> None:
        await super()._work(errand, state)
        if errand.ending == "detach" and state.remaining(self.process.now()) > 0.0:
            await self._extend(state, errand.detaches)

    async def _end(self, errand: Errand, state: LeaseState) -> None:
        if errand.keep is not None and errand.ending == "release":
            await self._record_done(state, errand.keep)
        elif errand.ending == "detach" and state.remaining(self.process.now()) > 0.0:
            await self._detach(errand, state)
        else:
            await super()._end(errand, state)

    async def _record_done(self, state: LeaseState, keep: float) -> None:
        """Also if the lease is over: the engine judges."""
        self._holds = None
        self._note("releasing", ttl=keep, note="done")
        try:
            await self._runtime.record_done(state, keep)
        except LeaseLost as lost:
            self._note("released", note=f"not done: {lost.reason}")
        except (OutcomeUnknown, ClientClosed, StoreUnavailable) as error:
            self._note("released", note=type(error).__name__)
        else:
            self._note("released", note="done")

    async def _detach(self, errand: Errand, state: LeaseState) -> None:
        """As `Lease.detach` does, when the lease is extended."""
        keep = self._runtime.env.ledger.kept(state.owner, self.process.now())
        left = None if keep is None or keep.seconds < rules.TTL_MIN else keep.seconds
        self._holds = None
        self._note("releasing", note="detached")
        try:
            await self._runtime.detach(state)
        except (LeaseLost, StoreUnavailable, ClientClosed) as error:
            self._note("released", note=type(error).__name__)
            return
        self.board.owners[state.owner] = self.process.world.now
        self._note("released", note="detached")
        self.board.post(errand.name, Text(state.owner, state.ttl, left))
        if errand.dies:
            process = self.process
            process.world.at(process.world.now, self.kill, process, False)
