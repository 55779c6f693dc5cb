"""The nodes that this client talks to: the connections to each, made when they are needed."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, Protocol

from gripfast.core.ports import Inbox
from gripfast.stores.cluster.asking import Asking, NodeLink
from gripfast.stores.cluster.levels import Levels
from gripfast.stores.cluster.topology import Address
from gripfast.stores.redis.grace import Grace
from gripfast.stores.redis.store import RedisStore

GIVE_BACK_WITHIN, GIVE_BACK_AT_SILENT = 0.5, 0.1
"""Seconds for a batch of clean-ups, after which it is tried again: the watchdog has renewals to make at other nodes."""


class Driver(Protocol):
    """What differs between threads and asyncio."""

    def link(self, address: Address) -> NodeLink: ...

    def inbox(self) -> Inbox: ...

    def pause(self, seconds: float) -> Awaitable[None]: ...

    def together(self, jobs: Sequence[Coroutine[Any, Any, None]], within: float) -> Awaitable[None]:
        """All of them at the same time, until all are done, or their time is over: none waits for another."""
        ...

    def at_end(self) -> None: ...


class Node:
    def __init__(self, address: Address, link: NodeLink, grace: Grace | None) -> None:
        self.address = address
        self.link = link
        self.store = RedisStore(link, grace)
        self.asked = RedisStore(Asking(link), grace)
        """For requests that another node has sent here by ASK."""
        self.is_silent = False

    @property
    def is_silent(self) -> bool:
        """It did not answer when many were renewed, or released."""
        return self._is_silent

    @is_silent.setter
    def is_silent(self, is_silent: bool) -> None:
        self._is_silent = is_silent
        for store in (self.store, self.asked):
            store.give_back_within = GIVE_BACK_AT_SILENT if is_silent else GIVE_BACK_WITHIN

    def has_claims_of(self, owner: str) -> bool:
        """That were not answered."""
        server = self.link.server
        return owner in server.unanswered or owner in server.late

    def stop_waiting(self) -> None:
        self.store.stop_waiting()
        self.asked.stop_waiting()


class Nodes:
    def __init__(self, driver: Driver, levels: Levels | None = None) -> None:
        self.driver = driver
        self.is_closing = False
        self.levels = levels
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
        made = Node(address, self.driver.link(address), None if self.levels is None else self.levels.of(address))
        node = self._by_address.setdefault(address, made)  # another thread may have been quicker
        if self.is_closing:
            node.stop_waiting()
        return node
