"""What one engine brings to `guard` and `schema`: a leaf, so that each engine's module can build its own entry."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gripfast.drivers import CallerConnection
from gripfast.errors import ConfigurationError

if TYPE_CHECKING:
    from gripfast.fencing.shared import Texts


@dataclass(frozen=True, slots=True)
class Dialect:
    name: str
    ddl: str
    guard: Callable[[CallerConnection, str, int], Coroutine[Any, Any, None]]
    """Both colours: it suspends only where the caller's connection does."""
    begin: str
    """How a transaction is opened."""
    other_names: tuple[str, ...] = ()
    shared: Texts | None = None

    def needs_a_transaction(self) -> ConfigurationError:
        return ConfigurationError(
            "the guard and the write must be in one transaction, but this connection is in autocommit mode. "
            f"Before the guard, {self.begin}"
        )


def missing_table(ddl: str) -> ConfigurationError:
    return ConfigurationError(f"this database has no fencing table yet; create it with\n{ddl}")
