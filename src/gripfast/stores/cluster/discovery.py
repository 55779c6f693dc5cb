"""How this client learns who has which slot: it asks any node that answers, when it begins and when it has doubts.

One caller reads for all that need it at the same time, and not often: if what was read a moment ago does not help, only
waiting for the cluster does.
"""

from __future__ import annotations

import logging
import math
from typing import Any

from hiredis import ReplyError

from gripfast.core.ports import Unreachable, unreachable
from gripfast.errors import StoreUnavailable
from gripfast.machine import boottime
from gripfast.stores.cluster.levels import ASK_TIMEOUT, read_timeout
from gripfast.stores.cluster.nodes import Node, Nodes
from gripfast.stores.cluster.topology import ASK_NODES, ASK_SLOTS, Address, Topology
from gripfast.stores.cluster.waiting import Waiting
from gripfast.stores.faults import Fault
from gripfast.stores.redis.faults import refused

_log = logging.getLogger("gripfast.connection")

TELLS_LEAST, TELLS_MOST = 0.05, 1.0
"""Seconds that one node may take to tell, if the time-out is not shorter: another one may be quicker."""
PAUSE = 0.1
"""Seconds for which what was read counts as new."""
LOOK, LOOK_MOST = 0.01, 0.25
"""Seconds between two looks whether somebody else has read it, and for how long: an interrupt may have ended that."""


class Discovery:
    def __init__(self, where: str, topology: Topology, nodes: Nodes, waiting: Waiting) -> None:
        self._where = where
        self._topology = topology
        self._nodes = nodes
        self._waiting = waiting
        self._read_at = -PAUSE
        self._is_read = False
        """Just now."""
        self._failed: dict[Address, float] = {}
        """When a node last told nothing: the others are asked first."""

    async def refresh(self, doubted: Address | None = None, until: float = math.inf) -> Unreachable | None:
        """Read the topology, unless that was just done. Why nobody tells, if so."""
        version, looks_until = self._topology.version, min(until, boottime() + LOOK_MOST)
        while self._is_read and boottime() < looks_until:
            await self._nodes.driver.pause(LOOK)
        if self._topology.version != version or boottime() < self._read_at + PAUSE:
            return None
        if doubted is not None:
            self._failed[doubted] = boottime()
        return await self._read(until)

    async def _read(self, until: float) -> Unreachable | None:
        troubles: list[Fault] = []
        try:
            self._is_read = True
            for address in self._in_order():
                node = self._nodes[address]
                seconds = max(TELLS_LEAST, min(TELLS_MOST, until - boottime()))
                reply = await self._told_by(node, ASK_SLOTS, seconds)
                if not isinstance(reply, Fault):
                    await self._read_timeout(node, seconds)
                    self._take(reply, node)
                    return None
                self._failed[address] = boottime()
                troubles.append(reply)
                if boottime() >= until:
                    break
        finally:
            self._is_read = False
        return self._nobody_tells(troubles)

    async def read_from(self, node: Node) -> Unreachable | None:
        """The topology as this node knows it."""
        reply = await self._told_by(node, ASK_SLOTS, TELLS_MOST)
        if isinstance(reply, Fault):
            return unreachable(reply.error, reply.was_sent, reply.was_refused, reply.is_permanent)
        self._take(reply, node)
        return None

    def _in_order(self) -> list[Address]:
        return sorted(self._topology.all(), key=lambda address: self._failed.get(address, 0.0))

    async def _told_by(self, node: Node, question: bytes, seconds: float) -> Any:
        """The reply, or a Fault."""
        replies = node.link.ask_many([question], seconds)
        if node.link.suspends:
            replies = await replies
        if isinstance(replies, Fault):
            return replies
        where = node.link.server.where
        if isinstance(replies[0], ReplyError):
            return _no_cluster(where) if "cluster support disabled" in str(replies[0]) else refused(where, replies[0])
        return replies[0] or _knows_nothing(where)

    async def _read_timeout(self, node: Node, seconds: float) -> None:
        """Before any lock is granted. Some users may not know it, and then it is what it usually is."""
        levels = self._nodes.levels
        if levels is not None and levels.wants_timeout and not self._topology.is_known:
            found = read_timeout(await self._told_by(node, ASK_TIMEOUT, seconds))
            if found is not None:
                levels.learn_timeout(found)

    async def look_for_gaps(self, address: Address) -> None:
        """A node says that the cluster is down: which slots it misses."""
        reply = await self._told_by(self._nodes[address], ASK_NODES, TELLS_MOST)
        if isinstance(reply, bytes):
            self._topology.read_gaps(reply)

    def _take(self, reply: Any, node: Node) -> None:
        before, primaries = self._topology.owners, self._topology.primaries
        self._topology.read(reply, node.address)
        self._read_at = boottime()
        self._failed.pop(node.address, None)
        for slot in self._waiting.slots():
            if self._topology.owners[slot] != before[slot]:
                self._waiting.moved(slot)
        for gone in self._nodes.keep_only([*self._topology.announced(), *self._topology.seeds]):
            gone.link.disconnect()
        if self._topology.primaries != primaries:
            names = ", ".join(map(str, self._topology.primaries))
            _log.info("%s has the primaries %s", self._where, names, extra={"gripfast_store": self._where})

    def _nobody_tells(self, troubles: list[Fault]) -> Unreachable:
        nodes = {where: text for fault in troubles for where, text in fault.error.nodes.items()}
        first = troubles[0]
        message = f"{self._where} can't be reached: none of its nodes tells who has which slot; {first.error}"
        is_permanent = all(fault.is_permanent for fault in troubles)
        was_refused = all(fault.was_refused for fault in troubles)
        return unreachable(StoreUnavailable(message, nodes), False, was_refused, is_permanent)


def _no_cluster(where: str) -> Fault:
    message = "is no node of a Redis Cluster: use redis://host:port for a single server"
    return Fault(StoreUnavailable(f"{where} {message}", {where: message}), "unfit")


def _knows_nothing(where: str) -> Fault:
    message = "knows no node that has slots: run CLUSTER INFO there, and add it to the cluster"
    return Fault(StoreUnavailable(f"{where} {message}", {where: message}))
