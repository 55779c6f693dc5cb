"""Engine adapters, one folder each. A new store joins by its folder and one entry in FACTORIES."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import SplitResult

from gripfast.core.ports import Capabilities, Store
from gripfast.errors import ConfigurationError
from gripfast.extras import how_to_install

FACTORIES: Mapping[str, str] = {
    "memory": "gripfast.stores.memory.factory",
    "sqlite": "gripfast.stores.sqlite.factory",
    "redis": "gripfast.stores.redis.factory",
    "rediss": "gripfast.stores.redis.factory",
    "unix": "gripfast.stores.redis.factory",
    "redlock": "gripfast.stores.redlock.factory",
    "redlocks": "gripfast.stores.redlock.factory",
    "postgresql": "gripfast.stores.postgres.factory",
    "postgres": "gripfast.stores.postgres.factory",
    "mysql": "gripfast.stores.mysql.factory",
    "mariadb": "gripfast.stores.mysql.factory",
    "zookeeper": "gripfast.stores.zookeeper.factory",
}
"""URL scheme, without the driver that some name in it, to the module whose `factory(url, options)` makes the stores."""

DATABASES = {"postgresql", "postgres", "mysql", "mariadb"}
"""Schemes in which some name a driver."""

CLIENTS: Mapping[str, str] = {
    "redis.client.Redis": "gripfast.stores.redis.factory",
    "redis.asyncio.client.Redis": "gripfast.stores.redis.factory",
    "kazoo.client.KazooClient": "gripfast.stores.zookeeper.factory",
    "sqlalchemy.engine.base.Engine": "gripfast.stores.sql.engines",
    "sqlalchemy.ext.asyncio.engine.AsyncEngine": "gripfast.stores.sql.engines",
}
"""Class of an engine's own client to the module whose `factory_of(client, options)` makes stores from it. By name:
nobody's driver is imported to recognise its client."""

SEVERAL = "gripfast.stores.redlock.factory"
"""The module whose `factory_of_several(targets, options)` makes stores of several servers together."""

SEVERAL_HOSTS = {"redlock", "redlocks", "postgresql", "postgres", "zookeeper"}
"""Schemes of URLs that name several hosts, with commas between them."""

EXTRAS: Mapping[str, str] = {
    "gripfast.stores.redis.factory": "redis",
    "gripfast.stores.redlock.factory": "redis",
    "gripfast.stores.postgres.factory": "postgres",
    "gripfast.stores.mysql.factory": "mysql",
    "gripfast.stores.zookeeper.factory": "zookeeper",
}
"""The extra that brings what a module needs."""


class Address(NamedTuple):
    """A URL, and the options in its query."""

    url: SplitResult
    options: dict[str, Any]


class AioStores(NamedTuple):
    store: Store
    aside: Store
    """The same engine in the blocking colour, for clean-ups that must work when the loop no longer runs."""


class StoreFactory(Protocol):
    """Checked settings of one engine, no I/O yet. Each client and each forked child makes its own stores from it."""

    where: str
    """What to call the engine in messages; never with a password."""
    capabilities: Capabilities
    request_timeout: float
    """For clients that do not set one."""
    max_ttl: float
    """What the engine is prepared for; a larger ttl is refused."""

    def blocking(self, request_timeout: float) -> Store: ...

    def aio(self, request_timeout: float) -> AioStores: ...


def factory_for(url: SplitResult, options: dict[str, Any]) -> StoreFactory:
    """The factory of a URL; takes the options it knows out of `options`."""
    module = FACTORIES.get(without_driver(url.scheme))
    if module is None:
        known = ", ".join(f"{scheme}://" for scheme in FACTORIES)
        raise ConfigurationError(f"unknown scheme {url.scheme!r}: a URL starts with one of {known}")
    made: StoreFactory = import_store(module).factory(url, options)
    return made


def without_driver(scheme: str) -> str:
    """`postgresql+asyncpg` is written for others: Gripfast has drivers of its own."""
    engine, _, driver = scheme.lower().partition("+")
    return engine if driver and engine in DATABASES else scheme.lower()


def factory_of(client: object, options: dict[str, Any]) -> StoreFactory:
    """The factory of an engine's own client, whose connection settings it uses."""
    for kind in type(client).__mro__:
        module = CLIENTS.get(f"{kind.__module__}.{kind.__qualname__}")
        if module is not None:
            made: StoreFactory = import_store(module).factory_of(client, options)
            return made
    known = ", ".join(CLIENTS)
    raise ConfigurationError(
        f"can't connect to a {type(client).__module__}.{type(client).__qualname__}: "
        f"give a URL such as sqlite:///locks.db, or one of {known}"
    )


def factory_of_several(targets: Sequence[Address | object], options: dict[str, Any]) -> StoreFactory:
    """The factory of several servers together, each an Address or an engine's own client."""
    made: StoreFactory = import_store(SEVERAL).factory_of_several(targets, options)
    return made


def import_store(module: str) -> Any:
    """Told with the extra that brings what is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if module not in EXTRAS or (error.name or "").startswith("gripfast"):
            raise
        raise ConfigurationError(
            f"this store needs {error.name}, which is not installed: {how_to_install(EXTRAS[module])}"
        ) from None
