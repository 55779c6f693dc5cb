"""Which slots a node may grant locks of: those that did not come from a node in its grace.

Each node has a grace of its own (`levels.py`). If a slot is moved away from a promoted node, the node that takes it has
no grace, and would grant what the promoted one has forgotten. So a key in the slot itself, its *stamp*, says which
incarnation of a node may grant there. The stamp travels with the slot, and then it names another node. Every script
that may grant compares it in the same step as the incarnation (`Script.stamped`). A claim that gets nothing for this
reason has the slot *certified*, and is repeated:

1. It is read when that begins by the node's clock, and who the primaries are, by what this node knows.
2. If all of them are out of their grace, the slot is stamped. A slot that came from a node in its grace came earlier
   than that, so that node is among them.
3. The node does so only within a second of 1. by its own clock, and only if it still is the same incarnation.

*The others' failovers* do not stop a node that has taken no slot since they were all out of their grace. Taking one
raises the node's config epoch above those of all others, and so does a promotion. So whoever finds all primaries out of
their grace writes down the epoch of each, at that node. As long as it has this epoch, 2. need not be looked at.

*A stamp that is overwritten* names the node that the slot came from. If a failover lost the new one, and the slot went
back in the grace, that node would grant at once: so the replicas that are connected must have the new one first.

A stamp or an epoch that is lost costs a few requests. What is not closed is in docs/redis-replicas.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hiredis import ReplyError

from gripfast.core.ports import Prepared, Unreachable, unreachable
from gripfast.errors import StoreUnavailable
from gripfast.stores.cluster.discovery import TELLS_MOST, Discovery
from gripfast.stores.cluster.levels import Levels, NodeGrace
from gripfast.stores.cluster.nodes import Node, Nodes
from gripfast.stores.cluster.topology import ASK_NODES, Address, Topology, read_epochs
from gripfast.stores.faults import Fault
from gripfast.stores.redis.faults import refused
from gripfast.stores.redis.keys import MARK, pack, stamp_of
from gripfast.stores.redis.protocol import command
from gripfast.stores.redis.script import Script
from gripfast.stores.redis.store import RedisStore

VALID_MS = 1000
"""For how long it counts what the primaries have said."""
KEEP_MS = 24 * 3600 * 1000
"""How long a stamp lasts, and what is written down at a node."""
WAIT_MS = 500
"""For the replicas to get a stamp."""

_OURS = tuple(MARK + kind for kind in (b"primary", b"epoch", b"stamp"))

# KEYS: the stamp. {ms of the node's clock, what it says, how many replicas follow}
LOOK = Script(
    """
local time = redis.call('TIME')
local followers = string.match(redis.call('INFO', 'replication'), 'connected_slaves:(%d+)')
return {time[1] * 1000 + math.floor(time[2] / 1000), redis.call('GET', KEYS[1]) or '', tonumber(followers)}
""",
    keys=1,
    arguments=0,
)

# KEYS: the stamp. ARGV: until when it may be written, in ms; what the two arguments of guarded scripts must be. 1 if
# it was written.
STAMP = Script(
    f"""
local time = redis.call('TIME')
local is_late = time[1] * 1000 + math.floor(time[2] / 1000) > tonumber(ARGV[1])
local function is_in(section, text)
  return string.find(redis.call('INFO', section), text, 1, true)
end
if is_late or not is_in('server', ARGV[2]) or not is_in('replication', ARGV[3]) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. ARGV[3], 'PX', {KEEP_MS})
return 1
""",
    keys=1,
    arguments=3,
)


class Stamps:
    def __init__(self, topology: Topology, nodes: Nodes, discovery: Discovery) -> None:
        self._topology = topology
        self._nodes = nodes
        self._discovery = discovery

    async def certify(self, node: Node, store: RedisStore, slot: int) -> Unreachable | None:
        """None: the node may grant there. `store`: by which its slot is reached."""
        key = pack(stamp_of(slot))
        seen = await store.ask(LOOK.by_hash + key, LOOK)
        if isinstance(seen, Fault):
            return _because(seen)
        grace = self._levels.of(node.address)
        if seen[1] == grace.in_words and seen[1]:
            return None  # somebody else was quicker
        trouble = await self._discovery.read_from(node)
        epochs = await node.store.ask(ASK_NODES) if trouble is None else trouble
        if isinstance(epochs, Unreachable | Fault):
            return epochs if isinstance(epochs, Unreachable) else _because(epochs)
        read = read_epochs(epochs)
        if not await self._has_taken_none(node, grace, read):
            trouble = await self._look_at_all(slot) or await self._write_down(read)
        return trouble or await self._stamp(store, grace, key, seen)

    async def settle(self) -> Unreachable | None:
        """After `gripfast init`, which has ended every grace: a failover shall not stop the other nodes."""
        epochs = await self._nodes[self._topology.primaries[0]].store.ask(ASK_NODES)
        return _because(epochs) if isinstance(epochs, Fault) else await self._write_down(read_epochs(epochs))

    async def why_not_new(self) -> Prepared | Unreachable | None:
        """Why `gripfast init` must not begin: a node has no marker, and others have. None if it may."""
        if self._nodes.levels is None:
            return None
        unmarked: list[Address] = []
        for address in self._topology.primaries:
            marker = await self._nodes[address].store.ask(command(b"GET", self._levels.of(address).key()))
            if isinstance(marker, Fault):
                return _because(marker)
            unmarked += [address] if marker is None else []
        for address in self._topology.primaries if unmarked else ():
            found = await self._nodes[address].store.finds(_OURS)
            if found:
                return found if isinstance(found, Unreachable) else _not_new(unmarked[0])
        return None

    @property
    def _levels(self) -> Levels:
        assert self._nodes.levels is not None
        return self._nodes.levels

    async def _has_taken_none(self, node: Node, grace: NodeGrace, epochs: dict[bytes, bytes]) -> bool:
        """No slot since all primaries were out of their grace."""
        written = await node.store.ask(command(b"GET", grace.epoch_key()))
        return bool(grace.in_words) and written == self._settled(node.address, epochs)

    def _settled(self, address: Address, epochs: dict[bytes, bytes]) -> bytes | None:
        """What is written down at a node. None: its epoch is not known."""
        epoch = epochs.get(self._topology.ids.get(address, b""))
        return None if epoch is None else self._levels.of(address).in_words + b" " + epoch

    async def _look_at_all(self, slot: int) -> Unreachable | None:
        """Why one of the primaries may be in its grace."""
        found: dict[Address, Unreachable | None] = {}

        async def look(address: Address) -> None:
            found[address] = await self._nodes[address].store.grace_left()

        primaries = self._topology.primaries
        await self._nodes.driver.together([look(address) for address in primaries], TELLS_MOST)
        silent = [str(address) for address in primaries if address not in found]
        if silent:
            message = f"node {silent[0]} did not answer in time, and slot {slot} may have come from there: try again"
            return unreachable(StoreUnavailable(message, {silent[0]: "did not answer in time"}))
        troubles = [trouble for trouble in found.values() if trouble is not None]
        return max(troubles, key=_left) if troubles else None

    async def _write_down(self, epochs: dict[bytes, bytes]) -> Unreachable | None:
        """At each primary. If it can't be written there, that costs a look at all later."""
        for address in self._topology.primaries:
            settled = self._settled(address, epochs)
            if settled is not None:
                grace = self._levels.of(address)
                words = command(b"SET", grace.epoch_key(), settled, b"PX", b"%d" % KEEP_MS)
                await self._nodes[address].store.ask(words)
        return None

    async def _stamp(self, store: RedisStore, grace: NodeGrace, key: bytes, seen: Sequence[Any]) -> Unreachable | None:
        began, old, followers = seen
        wanted = followers if old else 0
        packed = STAMP.by_hash + key + pack(b"%d" % (began + VALID_MS)) + grace.incarnation
        wait = command(b"WAIT", b"%d" % wanted, b"%d" % WAIT_MS)
        replies = await store.ask_together(STAMP, packed, wait)
        if isinstance(replies, Fault):
            return _because(replies)
        for reply in replies:
            if isinstance(reply, ReplyError):
                return _because(refused(grace.where, reply))
        if replies[0] != 1 or replies[1] < wanted:
            return _again(grace.where, "it was too slow" if replies[0] != 1 else "its replicas were too slow")
        return None


def _not_new(node: Address) -> Prepared:
    return Prepared(
        0.0,
        0,
        0.0,
        f"node {node} has no marker, but other nodes of this Cluster have one: it was just promoted, or was added",
    )


def _left(trouble: Unreachable) -> float:
    return trouble.ready_in or 0.0


def _because(fault: Fault) -> Unreachable:
    return unreachable(fault.error, fault.was_sent, fault.was_refused, fault.is_permanent)


def _again(where: str, why: str) -> Unreachable:
    message = (
        f"has taken over a slot, and could not confirm in time that it may grant locks there, because {why}: try again"
    )
    return unreachable(StoreUnavailable(f"{where} {message}", {where: message}))
