"""Locks with known faults, and one without: what the sweeps themselves are tested on."""

import asyncio
import weakref


class LeakyLock:
    """Takes the lock before anyone could give it back: an exception on the way out of `__enter__` leaks it."""

    def __init__(self) -> None:
        self.taken = False

    def __enter__(self) -> "LeakyLock":
        self.taken = True
        return self

    def __exit__(self, *_: object) -> None:
        self.taken = False


class SwallowingLock:
    """Frees itself whatever happens, and keeps the exception."""

    taken = False

    def __enter__(self) -> "SwallowingLock":
        try:
            sum(range(3))
        except BaseException:
            pass
        return self

    def __exit__(self, *_: object) -> bool:
        return True


class Handle:
    pass


class SoundLock:
    """Held for as long as its handle lives: dropping the exception drops the handle."""

    def __init__(self) -> None:
        self._handles: weakref.WeakSet[Handle] = weakref.WeakSet()

    @property
    def taken(self) -> bool:
        return len(self._handles) > 0

    def acquire(self) -> Handle:
        handle = Handle()
        self._handles.add(handle)
        return handle


class LeakyAsyncLock:
    def __init__(self) -> None:
        self.taken = False

    async def acquire(self) -> None:
        self.taken = True
        await asyncio.sleep(0)

    async def release(self) -> None:
        self.taken = False
        await asyncio.sleep(0)


class SwallowingAsyncLock:
    taken = False

    async def acquire(self) -> None:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            pass

    async def release(self) -> None:
        pass


class SoundAsyncLock:
    def __init__(self) -> None:
        self.taken = False

    async def acquire(self) -> None:
        self.taken = True
        try:
            await asyncio.sleep(0)
        except BaseException:
            self.taken = False
            raise

    async def release(self) -> None:
        self.taken = False
        await asyncio.sleep(0)
