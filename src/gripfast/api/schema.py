"""The tables as text, for those who run migrations themselves."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from gripfast import fencing
from gripfast.errors import ConfigurationError

ENGINES = ("postgresql", "mysql", "mariadb", "sqlite")

_SCRIPTS: Mapping[str, str] = {
    "postgresql": "gripfast.stores.postgres.scripts",
    "mysql": "gripfast.stores.mysql.scripts",
    "mariadb": "gripfast.stores.mysql.scripts",
}
"""The module with the texts of an engine; none of them needs a driver."""


def locks(engine: str) -> str:
    """The DDL of the tables the locks are in, for all modes; safe to run again."""
    if engine not in _SCRIPTS:
        raise ConfigurationError(
            f"{engine} needs no tables for locks, because the embedded store creates its own file. For the tables of "
            "fencing tokens, use --fencing-only"
        )
    statements = importlib.import_module(_SCRIPTS[engine]).SCHEMA
    return "\n".join(f"{statement.sql.strip()};\n" for statement in statements)


def fences(engine: str) -> str:
    """The DDL of the tables `fencing.guard` keeps its tokens in; safe to run again."""
    return f"{fencing.schema(engine)}\n{fencing.schema(engine, shared=True)}"


def engine_of(url: str) -> str | None:
    """The engine of a URL; None if it has no tables."""
    scheme = url.partition("://")[0].partition("+")[0].lower()
    engine = {"postgres": "postgresql"}.get(scheme, scheme)
    return engine if engine in ENGINES else None
