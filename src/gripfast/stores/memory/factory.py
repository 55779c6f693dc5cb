"""`memory://name` is shared by all clients of the process, `memory://` belongs to its client alone."""

from __future__ import annotations

import os
import weakref
from typing import Any
from urllib.parse import SplitResult

from gripfast.errors import ConfigurationError
from gripfast.stores import AioStores, StoreFactory
from gripfast.stores.local import BlockingLocalStore, LocalStore
from gripfast.stores.memory.engine import MemoryEngine, private_engine, shared_engine
from gripfast.stores.memory.spec import CAPABILITIES

replaced: weakref.WeakValueDictionary[str, StoreFactory] = weakref.WeakValueDictionary()
"""Names for which tests have a store of their own (`gripfast.testing`)."""


class MemoryFactory(StoreFactory):
    capabilities = CAPABILITIES

    def __init__(self, name: str) -> None:
        self.where = f"memory://{name}"
        self._name = name
        self._private: dict[int, MemoryEngine] = {}  # by pid: a forked child has its own

    def blocking(self, request_timeout: float) -> LocalStore:
        return BlockingLocalStore(self._engine())

    def aio(self, request_timeout: float) -> AioStores:
        from gripfast.stores.local_aio import AioInbox, yielding

        engine = self._engine()
        return AioStores(LocalStore(engine, AioInbox, yielding), BlockingLocalStore(engine))

    def _engine(self) -> MemoryEngine:
        return shared_engine(self._name) if self._name else self._private_engine()

    def _private_engine(self) -> MemoryEngine:
        return self._private.get(os.getpid()) or self._private.setdefault(os.getpid(), private_engine())


def factory(url: SplitResult, options: dict[str, Any]) -> StoreFactory:
    if url.path not in ("", "/") or "@" in url.netloc:
        raise ConfigurationError("write a memory URL as memory://name, without a path or a user")
    return replaced.get(url.netloc) or MemoryFactory(url.netloc)
