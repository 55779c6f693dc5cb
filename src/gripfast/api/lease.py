"""The lease a caller holds: a handle on a LeaseState.

Everything here reads the clock when asked, in both colours alike. What talks to the engine is in the two subclasses,
`Lease` for threads and `AsyncLease` for tasks, which say the same with and without `await`.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gripfast.core.lease import LeaseState
from gripfast.core.ports import to_raise
from gripfast.core.release import release
from gripfast.errors import LeaseLost, Reason
from gripfast.machine import boottime, this
from gripfast.runtime.aio import AioRuntime
from gripfast.runtime.blocking import BlockingRuntime, drive

if TYPE_CHECKING:
    from gripfast.api.client import AnyClient

R = TypeVar("R", BlockingRuntime, AioRuntime)


class _Handle(Generic[R]):
    """One level of holding. Re-entry makes another handle on the same state; the last one to be released ends it."""

    __slots__ = ("__weakref__", "_client", "_is_released", "_on_lost", "_runtime", "_state")

    def __init__(
        self, client: AnyClient, runtime: R, state: LeaseState, on_lost: Callable[[Any, Reason], Any] | None
    ) -> None:
        self._client = client  # a lease keeps its client alive, not the other way round
        self._runtime: R = runtime
        self._state = state
        self._on_lost = on_lost
        self._is_released = False
        if state.handles:
            state.handles = [ref for ref in state.handles if (each := ref()) is not None and not each._is_released]
        state.handles.append(weakref.ref(self))
        state.on_lost = _tell_handles

    @property
    def name(self) -> str:
        return self._state.name

    @property
    def token(self) -> int:
        """The fencing token: larger than the tokens of all earlier leases of the name."""
        return self._state.token

    @property
    def owner(self) -> str:
        """The id of this acquisition at the engine: random, and new each time."""
        return self._state.owner

    @property
    def ttl(self) -> float:
        """Seconds that a renewal brings; less than requested if the engine's session does not allow more."""
        return self._state.ttl

    @property
    def held(self) -> bool:
        """Whether the lease is neither lost nor released at this moment, by the clock."""
        return self.remaining() > 0.0

    def remaining(self) -> float:
        """Seconds for which the lease is still guaranteed; 0.0 once it is gone."""
        if self._is_released or self._is_inherited():
            return 0.0
        return self._state.remaining(boottime())

    def ensure_held(self) -> None:
        """Raise LeaseLost unless the lease is held at this moment; cheap enough for a loop."""
        if self.remaining() > 0.0:
            return
        raise self._loss_of_a_fork() if self._is_inherited() else LeaseLost(self.name, self._reason())

    def _reason(self) -> Reason:
        if self._is_inherited():
            return "session"
        return self._state.ending or "released"

    def _loss(self) -> Reason | None:
        """Why it was lost; None while it is held and after its release."""
        return "session" if self._is_inherited() else self._state.lost(boottime())

    def _loss_of_a_fork(self) -> LeaseLost:
        """Its parent may live, and hold it."""
        why = f"it belongs to process {self._runtime.pid}, from which this one was forked; acquire the lock here anew"
        return LeaseLost(self.name, "session", why)

    def _is_inherited(self) -> bool:
        """Made by a parent process, which alone owns it."""
        return self._runtime.pid != this.pid

    def _is_last(self) -> bool:
        """Release this handle; True if no other is left, so that the lease itself must go."""
        self._is_released = True
        handles = self._state.handles
        return len(handles) == 1 or all(each is None or each._is_released for each in (ref() for ref in handles))

    def _raise_if_lost(self) -> None:
        loss = self._state.lost(boottime())
        if loss is not None:
            raise LeaseLost(self.name, loss)

    def __repr__(self) -> str:
        state = f"{self.remaining():.3g} s left" if self.held else self._reason()
        return f"<{type(self).__name__} {self.name!r} token={self.token} {state}>"


class Lease(_Handle[BlockingRuntime]):
    """One successful acquisition. A context manager: leaving the block releases it."""

    __slots__ = ()

    @property
    def lost(self) -> Lost:
        """Event-like: `is_set()`, and `wait(timeout=None)`, which blocks until the lease is lost or released."""
        return Lost(self)

    def extend(self, ttl: float | None = None) -> None:
        """Renew now. With `ttl`, change the ttl of this lease, too."""
        ttl = self.ttl if ttl is None else self._client._checked_ttl(ttl)
        self.ensure_held()
        answer = self._runtime.extend(self._state, ttl)
        if answer is not None:
            raise to_raise(answer.error)
        self.ensure_held()

    def release(self) -> None:
        """Release the lock. A second call does nothing. Raises LeaseLost if the lease was already lost."""
        if self._runtime.pid != this.pid:
            return  # inherited
        if self._is_last():
            drive(release(self._runtime.env, self._state))
        else:
            self._raise_if_lost()

    def __enter__(self) -> Lease:
        self.ensure_held()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except LeaseLost:
            if kind is None:
                raise


class AsyncLease(_Handle[AioRuntime]):
    """One successful acquisition. `async with lease` releases it at the end, and cancels the body on a loss."""

    __slots__ = ("_body",)

    def __init__(
        self, client: AnyClient, runtime: AioRuntime, state: LeaseState, on_lost: Callable[[Any, Reason], Any] | None
    ) -> None:
        super().__init__(client, runtime, state, on_lost)
        self._body: _Body | None = None

    @property
    def lost(self) -> AsyncLost:
        """Event-like: `is_set()`, and `await wait(timeout=None)`, which ends when the lease is lost or released."""
        return AsyncLost(self)

    async def extend(self, ttl: float | None = None) -> None:
        """Renew now. With `ttl`, change the ttl of this lease, too."""
        self._check_loop()
        ttl = self.ttl if ttl is None else self._client._checked_ttl(ttl)
        self.ensure_held()
        answer = await self._runtime.extend(self._state, ttl)
        if answer is not None:
            raise to_raise(answer.error)
        self.ensure_held()

    async def release(self) -> None:
        """Release the lock. A second call does nothing. Raises LeaseLost if the lease was already lost."""
        self._check_loop()
        await self._release()

    async def _release(self) -> None:
        if self._is_inherited():
            return
        if self._is_last():
            await release(self._runtime.env, self._state)
        else:
            self._raise_if_lost()

    def _release_soon(self) -> None:
        """For callers that can't await, or are in another loop: over at once here, given back in the background."""
        if self._is_inherited():
            return
        self._raise_if_lost()
        if self._is_last() and self._state.finish("released"):
            self._runtime.tell(self._state)
            self._runtime.env.ledger.abandon(self._state)

    def _check_loop(self) -> None:
        """What a forked child has inherited is refused for that reason, not for its loop."""
        if not self._is_inherited():
            self._runtime.check_loop()

    async def __aenter__(self) -> AsyncLease:
        self._check_loop()
        return self._begin()

    def _begin(self) -> AsyncLease:
        """The body, on the loop."""
        self.ensure_held()
        if self._body is None:
            self._body = _Body(self._state)
        self._body.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._check_loop()
        await self._end(kind, error)

    async def _end(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        """The body, on the loop."""
        was_cancelled_by_loss = self._body is not None and self._body.end(kind)
        try:
            await self._release()
        except LeaseLost as lost:
            if was_cancelled_by_loss:
                raise lost from error
            if kind is None:
                raise


class _Body:
    """The task inside `async with`: cancelled when the lease is lost, as `asyncio.timeout` does it.

    It knows the state weakly, because the state knows it.
    """

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
            state.listeners.append(self._cancel_if_lost)

    def end(self, kind: type[BaseException] | None) -> bool:
        """True if the cancellation that ended the body was ours, and not of another task, which leaves in its place."""
        task, self._task = self._task, None
        state = self._state()
        if state is not None and self._cancel_if_lost in state.listeners:
            state.listeners.remove(self._cancel_if_lost)
        if task is None or not self._has_cancelled or task is not asyncio.current_task():
            return False
        return task.uncancel() <= self._cancels_before and kind is not None and issubclass(kind, asyncio.CancelledError)

    def _cancel_if_lost(self) -> None:
        state = self._state()
        if self._task is None or self._has_cancelled or state is None or state.lost(boottime()) is None:
            return
        self._has_cancelled = True
        self._task.cancel()


class Lost:
    """Event-like: whether the lease is lost, by the clock at the moment of asking."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    def is_set(self) -> bool:
        return self._lease._loss() is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is lost: True; False if the time is over or the lease was released."""
        over = threading.Event()
        state = self._lease._state
        state.listeners.append(over.set)
        try:
            if not self.is_set() and state.ending is None:
                over.wait(None if timeout is None else min(timeout, threading.TIMEOUT_MAX))
        finally:
            state.listeners.remove(over.set)
        return self.is_set()


class AsyncLost:
    """Event-like: whether the lease is lost, by the clock at the moment of asking."""

    def __init__(self, lease: AsyncLease) -> None:
        self._lease = lease

    def is_set(self) -> bool:
        return self._lease._loss() is not None

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is lost: True; False if the time is over or the lease was released."""
        self._lease._check_loop()
        over = asyncio.Event()
        state = self._lease._state
        state.listeners.append(over.set)
        try:
            if not self.is_set() and state.ending is None:
                async with asyncio.timeout(timeout):
                    await over.wait()
        except TimeoutError:
            pass
        finally:
            state.listeners.remove(over.set)
        return self.is_set()


def _tell_handles(state: LeaseState, reason: Reason) -> None:
    """Each level of holding has its own on_lost; the state knows them weakly: their death gives the lease back."""
    for handle in [handle for ref in state.handles if (handle := ref()) is not None]:
        if handle._on_lost is not None and not handle._is_released:
            handle._runtime.call_back(handle._on_lost, handle, reason)
