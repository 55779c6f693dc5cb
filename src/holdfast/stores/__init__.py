"""Engine adapters, one folder each. A new store joins by its folder and one entry in FACTORIES."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import SplitResult

from holdfast.core.ports import Capabilities, Store
from holdfast.errors import ConfigurationError

FACTORIES: Mapping[str, str] = {
    "memory": "holdfast.stores.memory.factory",
    "sqlite": "holdfast.stores.sqlite.factory",
}
"""URL scheme to the module whose `factory(url, options)` makes the stores."""


class AioStores(NamedTuple):
    store: Store
    aside: Store
    """The same engine in the blocking colour, for clean-ups that must work when the loop no longer runs."""


class StoreFactory(Protocol):
    """Checked settings of one engine, no I/O yet. Each client and each forked child makes its own stores from it."""

    where: str
    """What to call the engine in messages; never with a password."""
    capabilities: Capabilities

    def blocking(self, request_timeout: float) -> Store: ...

    def aio(self, request_timeout: float) -> AioStores: ...


def factory_for(url: SplitResult, options: dict[str, Any]) -> StoreFactory:
    """The factory of a URL; takes the options it knows out of `options`."""
    module = FACTORIES.get(url.scheme)
    if module is None:
        known = ", ".join(f"{scheme}://" for scheme in FACTORIES)
        raise ConfigurationError(f"unknown scheme {url.scheme!r}: a URL starts with one of {known}")
    made: StoreFactory = importlib.import_module(module).factory(url, options)
    return made
