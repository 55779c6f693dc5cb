"""What one engine brings to `guard` and `schema`: a leaf, so that each engine's module can build its own entry."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Dialect:
    """`connections` are full class names, not classes: nobody's driver is imported to recognise a connection."""

    name: str
    connections: tuple[str, ...]
    ddl: str
    guard: Callable[[Any, str, int], None]

    def speaks(self, connection: object) -> bool:
        return is_a(connection, self.connections)


def is_a(thing: object, names: Container[str]) -> bool:
    """Whether the thing is of one of these classes, or of a class derived from one."""
    return any(full_name(cls) in names for cls in type(thing).__mro__)


def full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
