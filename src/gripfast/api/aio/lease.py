"""The lease a task holds, and the body of `async with`, which is cancelled when the lease is lost."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gripfast.api.lease import Handle
from gripfast.api.misuse import NEEDS_ASYNC_WITH, exact, no_truth, unknown_option
from gripfast.core.lease import LeaseState
from gripfast.core.ports import to_raise
from gripfast.core.release import release
from gripfast.errors import LeaseLost
from gripfast.machine import boottime
from gripfast.runtime.aio import AioRuntime, running_loop

if TYPE_CHECKING:
    from typing import Never, Self, Unpack

    from gripfast.api.typed import NothingElse


class AsyncLease(Handle[AioRuntime]):
    """One successful acquisition. `async with lease` releases it at the end. If the lease is lost, the body is
    cancelled, and the block raises LeaseLost."""

    _body: Body | None = None
    if not TYPE_CHECKING:  # which has words of its own
        __enter__ = NEEDS_ASYNC_WITH

    @property
    def lost(self) -> AsyncLost:
        """`is_set()` says whether the lease is lost. `await wait(timeout=None)` returns True when the lease is lost,
        and False when it is released or the timeout is over."""
        return AsyncLost([self])

    @exact
    async def extend(self, ttl: float | None = None, *more: Never, **wrong: Unpack[NothingElse]) -> None:
        """Renew now. With `ttl`, the lease lasts that many seconds from now on, and after each renewal."""
        if more or wrong:
            raise unknown_option(AsyncLease.extend, wrong, *more)
        self._runtime.check_loop()
        ttl = self.ttl if ttl is None else self._client._checked_ttl(ttl)
        self.ensure_held()
        answer = await self._runtime.extend(self._state, ttl)
        if answer is not None:
            raise to_raise(answer.error)
        self.ensure_held()

    async def detach(self, ttl: float | None = None) -> str:
        """Hand the lock over: return a text with which another task, thread, process or machine can adopt it. As
        `Lease.detach`."""
        from gripfast.api import handover
        from gripfast.core.handover import detach

        handover.check_detachable(self)
        await self.extend(ttl)
        text = handover.write(self, boottime())
        await detach(self._runtime.env, self._state)
        return text

    @exact
    async def release(self, **wrong: Unpack[NothingElse]) -> None:
        """Release the lock. A second call does nothing. Raises LeaseLost if the lease was already lost."""
        if wrong:
            raise unknown_option(AsyncLease.release, wrong)
        if running_loop() is not self._runtime.loop:
            self._runtime.check_loop()
        if self._let_go():
            await release(self._runtime.env, self._state)

    def _release_soon(self) -> None:
        """For callers that can't await, or are in another loop: over at once here, released in the background."""
        if self._is_inherited():
            return
        self._raise_if_lost()
        if self._let_go() and self._state.finish("released"):
            self._runtime.tell(self._state)
            self._runtime.env.ledger.abandon(self._state)
            if self._state.story is not None:
                self._state.story.released()

    async def __aenter__(self) -> Self:
        self._runtime.check_loop()
        self._begin()
        self._runtime.env.ledger.enter_block(self._state.owner)
        return self

    def _begin(self) -> AsyncLease:
        """The body, on the loop."""
        self.ensure_held()
        self._enter_once()
        if self._body is None:
            self._body = Body(self._state)
        self._body.begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        self._runtime.check_loop()
        await self._end(kind, error)

    async def _end(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        """The body, on the loop: that was checked."""
        was_cancelled_by_loss = self._body is not None and self._body.end(kind)
        try:
            if self._let_go():  # as release(), whose coroutine would cost
                await release(self._runtime.env, self._state)
        except LeaseLost as lost:
            if was_cancelled_by_loss:
                raise lost from error
            if kind is None:
                raise


class Body:
    """The task inside `async with`: cancelled when the lease is lost, as `asyncio.timeout` does it.

    It is a listener of the state, so it knows the state weakly.
    """

    __slots__ = ("_cancels_before", "_has_cancelled", "_state", "_task")

    def __init__(self, state: LeaseState) -> None:
        self._state = weakref.ref(state)
        self._task: asyncio.Task[Any] | None = None
        self._cancels_before = 0
        self._has_cancelled = False

    def begin(self) -> None:
        self._task = asyncio.current_task()
        self._cancels_before = self._task.cancelling() if self._task is not None else 0
        self._has_cancelled = False
        state = self._state()
        if state is not None:
            state.listeners.append(self)

    def end(self, kind: type[BaseException] | None) -> bool:
        """True if the cancellation that ended the body was ours, and not of another task, which leaves in its place."""
        task, self._task = self._task, None
        state = self._state()
        if state is not None and self in state.listeners:
            state.listeners.remove(self)
        if task is None or not self._has_cancelled or task is not asyncio.current_task():
            return False
        return task.uncancel() <= self._cancels_before and kind is not None and issubclass(kind, asyncio.CancelledError)

    def __call__(self) -> None:
        """The lease is over: cancel the task if it was lost."""
        if self._task is not None and not self._has_cancelled and self._is_lost():
            self._has_cancelled = True
            self._task.cancel()

    def _is_lost(self) -> bool:
        state = self._state()
        return state is not None and state.lost(boottime()) is not None


class AsyncLost:
    """Like an event: says whether the lease is lost, by the clock at that moment."""

    if not TYPE_CHECKING:  # which has words of its own
        __bool__ = no_truth("write `lease.lost.is_set()`")

    def __init__(self, leases: Sequence[AsyncLease], whole: object = None) -> None:
        self._leases = leases
        self._whole = whole  # kept, because somebody still wants to hear of it

    def is_set(self) -> bool:
        return any(lease._loss() is not None for lease in self._leases)

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the lease is lost (returns True), or until it is released or the time is over (returns False)."""
        self._leases[0]._runtime.check_loop()
        over = asyncio.Event()
        states = [lease._state for lease in self._leases]
        for state in states:
            state.listeners.append(over.set)
        try:
            if not self.is_set() and all(state.ending is None for state in states):
                async with asyncio.timeout(timeout):
                    await over.wait()
        except TimeoutError:
            pass
        finally:
            for state in states:
                state.listeners.remove(over.set)
        return self.is_set()
