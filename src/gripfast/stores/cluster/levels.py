"""What is special about the levels of `stores/redis/failover.py` in a Cluster: each node has a grace of its own.

*The marker* of a node is in a slot that it has. The node's id and its slots decide which, so all clients look at
the same place; and a node that was promoted has none. If that slot moves away, there is no marker at the next place. So
a client that knows the node to grant writes one there, and no grace begins; a client that knows nothing begins one,
which is the safe side, and the next client that knows better ends it (`Grace.reopens`).

*A slot that moves* comes from a node that may be in its grace: `stamps.py`.

*How long an old primary goes on* that is cut off from the others: it stops after the node time-out, and the others have
waited for as long before they promoted another. The nodes tell their time-out by CONFIG GET, if they may.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hiredis import HiredisError

from gripfast.core.ports import Unreachable, unreachable
from gripfast.errors import StoreUnavailable
from gripfast.stores.cluster.topology import ASK_NODES, Address, Topology
from gripfast.stores.faults import LinkDown
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.failover import Failover
from gripfast.stores.redis.faults import no_reply
from gripfast.stores.redis.followers import Replicas
from gripfast.stores.redis.grace import Grace
from gripfast.stores.redis.keys import MARK, SLOTS, pack, slot, stamp_of
from gripfast.stores.redis.protocol import command
from gripfast.stores.redis.script import Script

NODE_TIMEOUT = 15.0
"""Seconds, if the nodes do not tell: as it is unless somebody has changed it."""
ASK_TIMEOUT = command(b"CONFIG", b"GET", b"cluster-node-timeout")


UNSTAMPED = "UNSTAMPED"
"""What a node is taken to have said that grants nothing in a slot."""


def goes_on(node_timeout: float) -> float:
    return 2 * node_timeout


def read_timeout(reply: Any) -> float | None:
    """Seconds; None if it does not tell."""
    try:
        return int(reply[1]) / 1000
    except (TypeError, ValueError, IndexError):
        return None


class Levels:
    """For all nodes, and for both stores of an asyncio client."""

    def __init__(
        self, failover: Failover, topology: Topology, dialer: Callable[[Address], Dialer], is_given: bool
    ) -> None:
        """`is_given`: for how long an old primary goes on; otherwise the nodes tell it."""
        self._failover = failover
        self._topology = topology
        self._dialer = dialer
        self._is_given = is_given
        self._graces: dict[Address, NodeGrace] = {}

    def of(self, address: Address) -> NodeGrace:
        grace = self._graces.get(address)
        if grace is None:
            failover = self._failover._replace(promotable=lambda: promotable(self._dialer(address)))
            made = NodeGrace(failover, self._dialer(address).where, self._topology, address)
            grace = self._graces.setdefault(address, made)
        return grace

    @property
    def wants_timeout(self) -> bool:
        return not self._is_given

    def learn_timeout(self, node_timeout: float) -> None:
        self._failover = self._failover._replace(goes_on=goes_on(node_timeout))
        for grace in list(self._graces.values()):
            grace.failover = grace.failover._replace(goes_on=goes_on(node_timeout))


class NodeGrace(Grace):
    why_none = "it had no marker: it is new or was just promoted, or has lost its data"
    reopens = True

    def __init__(self, failover: Failover, where: str, topology: Topology, address: Address) -> None:
        super().__init__(failover, where)
        self._topology = topology
        self._address = address

    def guarded(self, script: Script, packed: bytes, name: str) -> tuple[Script, bytes]:
        """What may grant looks at the stamp of its slot, too (`stamps.py`)."""
        if not script.grants:
            return super().guarded(script, packed, name)
        form = script.stamped_and_acked if self.replicas and script.is_believed else script.stamped
        stamp = pack(stamp_of(slot(name.encode())))
        return form, script.call(form, packed, self.incarnation, stamp)

    def uncertified(self, known: bytes) -> Unreachable | None:
        """If it was the node that was known to grant, the slot has no stamp of it."""
        if known != self.incarnation:
            return None
        message = "does not know yet whether it may grant locks of a slot that it has taken: try again"
        error = StoreUnavailable(f"{self.where} {message}", {self.where: message})
        error._reply = UNSTAMPED
        return unreachable(error)

    def key(self) -> bytes:
        """Of the marker: the first of those that begin with its id, and that it has."""
        return self._own_key(b"primary")

    def epoch_key(self) -> bytes:
        """Of what `stamps.py` writes down."""
        return self._own_key(b"epoch")

    def _own_key(self, kind: bytes) -> bytes:
        node = self._topology.ids.get(self._address, b"")
        tags = (b"%b-%d" % (node, number) for number in range(SLOTS))
        tag = next((tag for tag in tags if self._topology.keeps(self._address, slot(tag))), node)
        return b"{" + tag + b"}" + MARK + kind


def promotable(dialer: Dialer) -> Replicas | None:
    """The replicas of this primary, dead ones included: they may come back."""
    wire = dialer.dial()
    try:
        reply = wire.ask(ASK_NODES)
    except (OSError, HiredisError) as error:
        raise LinkDown(no_reply(dialer.where, dialer.timeout, error)) from None
    finally:
        wire.close()
    return replicas_of_itself(reply) if isinstance(reply, bytes) else None


def replicas_of_itself(nodes: bytes) -> Replicas:
    """From what a primary says to CLUSTER NODES: id, host:port@bus,name, flags, whom it follows, …"""
    lines = [line.split() for line in nodes.splitlines()]
    itself = next((node for node, _, flags, *_ in lines if b"myself" in flags.split(b",")), b"")
    found = frozenset(at.partition(b"@")[0] for _, at, _, followed, *_ in lines if followed == itself)
    return Replicas(found, found)
