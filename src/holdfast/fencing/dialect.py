"""What one engine brings to `guard` and `schema`: a leaf, so that each engine's module can build its own entry."""

from __future__ import annotations

from collections.abc import Callable
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
        """Whether the connection is of one of these classes, or of a class derived from one."""
        return any(f"{cls.__module__}.{cls.__qualname__}" in self.connections for cls in type(connection).__mro__)
