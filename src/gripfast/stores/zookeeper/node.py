"""What a client knows about a node of its own: that of a holder, or of a waiter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from gripfast.stores.zookeeper import protocol
from gripfast.stores.zookeeper.session import Session


@dataclass(slots=True, eq=False)
class Node:
    """What an owner has in a queue."""

    parse: ClassVar[Callable[..., Any]] = staticmethod(protocol.in_order)
    """From the children of its parent to contenders."""
    read_note: ClassVar[Callable[..., str | None]] = staticmethod(protocol.read_note)

    parent: str
    session: Session
    acl: Any
    epoch: int
    life: int
    path: str = ""
    """Empty until it is known."""
    token: int = 0
    details: bytes = b""
    """Of the holder. Written before the node was requested; empty until then."""
    is_first: bool = False
    noted: int | None = None
    """The version of its parent's data in which a note for it was found."""
    moving: str = ""
    """Not empty: it has this path by now, or may get it. Only nodes of permits change theirs (`permits.py`)."""
    former: str = ""
    """The path that it had before."""
    connection: int = 0
    """When it got its present path, as the session counts them: with another one, the former may have reappeared."""

    @property
    def is_over(self) -> bool:
        """Its session may live on, but nothing is believed of it any more."""
        return self.epoch != self.session.epoch

    def paths(self) -> list[str]:
        """What is to be deleted. The node itself is the last one."""
        if self.former and self.connection != self.session.connections:
            return [self.former, self.path]
        return [self.path]
