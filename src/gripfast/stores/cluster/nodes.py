"""The nodes that this client talks to: the connections to each, made when they are needed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol

from gripfast.core.ports import Inbox
from gripfast.stores.cluster.asking import Asking, NodeLink
from gripfast.stores.cluster.topology import Address
from gripfast.stores.redis.failover import Failover
from gripfast.stores.redis.store import RedisStore


class Driver(Protocol):
    """What differs between threads and asyncio."""

    def link(self, address: Address) -> NodeLink: ...

    def inbox(self) -> Inbox: ...

    def pause(self, seconds: float) -> Awaitable[None]: ...

    def together(self, jobs: Sequence[Coroutine[Any, Any, Any]]) -> Awaitable[list[Any]]:
        """The results of all, which run at the same time: none waits for another."""
        ...

    def at_end(self) -> None: ...


class Node:
    def __init__(self, address: Address, link: NodeLink, failover: Failover | None) -> None:
        self.address = address
        self.link = link
        self.store = RedisStore(link, failover)
        self.asked = RedisStore(Asking(link), failover)
        """For requests that another node has sent here by ASK."""

    def has_claims_of(self, owner: str) -> bool:
        """That were not answered."""
        server = self.link.server
        return owner in server.unanswered or owner in server.late

    def stop_waiting(self) -> None:
        self.store.stop_waiting()
        self.asked.stop_waiting()


class Nodes:
    def __init__(self, driver: Driver, failover: Callable[[Address], Failover | None]) -> None:
        self.driver = driver
        self.is_closing = False
        self._failover = failover
        self._by_address: dict[Address, Node] = {}

    def __getitem__(self, address: Address) -> Node:
        node = self._by_address.get(address)
        return self._made(address) if node is None else node

    def all(self) -> list[Node]:
        return list(self._by_address.values())

    def keep_only(self, announced: Sequence[Address]) -> list[Node]:
        """Those that have left the cluster, and have nothing to clean up; nobody else gets them from here."""
        gone = [node for node in self.all() if node.address not in announced and not node.link.server.has_unanswered]
        return [node for node in gone if self._by_address.pop(node.address, None) is not None]

    def stop_waiting(self) -> None:
        self.is_closing = True
        for node in self.all():
            node.stop_waiting()

    def _made(self, address: Address) -> Node:
        made = Node(address, self.driver.link(address), self._failover(address))
        node = self._by_address.setdefault(address, made)  # another thread may have been quicker
        if self.is_closing:
            node.stop_waiting()
        return node
