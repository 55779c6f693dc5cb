"""SQLAlchemy engines that an application has already: which of our engines serves which."""

from __future__ import annotations

from typing import Any

from gripfast.errors import ConfigurationError
from gripfast.stores import StoreFactory, import_store

FACTORIES = {
    "postgresql": "gripfast.stores.postgres.factory",
    "mysql": "gripfast.stores.mysql.factory",
    "mariadb": "gripfast.stores.mysql.factory",
}


def factory_of(engine: Any, options: dict[str, Any]) -> StoreFactory:
    """Of an Engine or an AsyncEngine."""
    name = engine.dialect.name
    if name not in FACTORIES:
        raise ConfigurationError(f"no store for SQLAlchemy's {name} engines: give a URL such as sqlite:///locks.db")
    made: StoreFactory = import_store(FACTORIES[name]).factory_of(engine, options)
    return made
