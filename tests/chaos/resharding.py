"""Moves slots of a Cluster from node to node, as `redis-cli --cluster reshard` does, but several at a time."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gripfast.stores.redis import keys
from gripfast_lab.sim.history import Event
from gripfast_lab.verify.journal import now
from support.cluster_servers import SLOTS, Cluster
from support.redis_server import HOST, RedisServer
from support.waiting import until

TOGETHER = 32
"""Slots that are on the way at the same time."""
KEYS = 5
"""Of a slot that are sent at once: fewer than a busy name has, so that it is in two places for a while."""


class Moved(NamedTuple):
    slot: int
    began: float
    ended: float


class Resharding:
    def __init__(self, cluster: Cluster) -> None:
        self.moves: list[Moved] = []
        self._primaries = cluster.primaries()
        self._ids = {server.port: cluster.id_of(server).encode() for server in self._primaries}
        self._clients = {server.port: server.client() for server in self._primaries}
        self._owners = {
            slot: server for server, shares in cluster.shares().items() for share in shares for slot in share
        }

    def round(self, slots: Iterable[int]) -> None:
        """Each of them goes to the next primary. After as many rounds as there are primaries, each is where it was."""
        before = dict(self._owners)
        shares = [[slot for slot in slots if before[slot] is server] for server in self._primaries]
        targets = [*self._primaries[1:], self._primaries[0]]
        for start in range(0, max(map(len, shares)), TOGETHER):  # in turn: one that has no slot left becomes a replica
            for server, target, share in zip(self._primaries, targets, shares, strict=True):
                if some := share[start : start + TOGETHER]:
                    self._move(some, server, target)

    def _move(self, slots: Sequence[int], source: RedisServer, target: RedisServer) -> None:
        until(self._agree, within=30.0)
        began = now()
        self._tell(target, slots, "IMPORTING", self._ids[source.port])
        self._tell(source, slots, "MIGRATING", self._ids[target.port])
        left = list(slots)
        while left:
            found = self._all(source, [("CLUSTER", "GETKEYSINSLOT", slot, KEYS) for slot in left])
            sends = [("MIGRATE", HOST, target.port, "", 0, 5000, "KEYS", *some) for some in found if some]
            for reply in self._all(source, sends):
                assert reply in (b"OK", b"NOKEY", True), reply
            left = [slot for slot, some in zip(left, found, strict=True) if some]
        others = [server for server in self._primaries if server not in (source, target)]
        for server in (target, source, *others):
            self._tell(server, slots, "NODE", self._ids[target.port])
        self.moves += [Moved(slot, began, now()) for slot in slots]
        self._owners |= dict.fromkeys(slots, target)

    def _agree(self) -> bool:
        """No two have the same config epoch. Of two that took slots at the same moment one may still lose them to the
        other, which is no fault of the locks in them."""
        views = [self._view(server) for server in self._primaries]
        return all(view == views[0] for view in views) and len({epoch for _, epoch, _ in views[0]}) == len(views)

    def _view(self, server: RedisServer) -> list[tuple[str, str, str]]:
        """What a node says of each: its id, its config epoch, its slots."""
        reply = self._all(server, [("CLUSTER", "NODES")])[0]
        lines = [line.split() for line in (reply.decode() if isinstance(reply, bytes) else reply).splitlines()]
        return sorted((line[0], line[6], " ".join(each for each in line[8:] if each[0] != "[")) for line in lines)

    def _tell(self, server: RedisServer, slots: Sequence[int], state: str, node: bytes) -> None:
        self._all(server, [("CLUSTER", "SETSLOT", slot, state, node) for slot in slots])

    def _all(self, server: RedisServer, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        with self._clients[server.port].pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            return list(pipeline.execute())

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


def slots_of(names: Iterable[str]) -> list[int]:
    """Under the usual prefix."""
    return sorted({keys.slot(f"lock:{name}".encode()) for name in names})


def pauses_after(moves: Sequence[Moved], history: Sequence[Event]) -> list[float]:
    """For each slot that moved and had locks in use: how long after that, or after it was released, if that came later,
    a lock was granted again."""
    by_slot: dict[int, list[Event]] = {}
    for event in sorted(history, key=lambda event: event.at):
        if event.kind in ("granted", "releasing"):
            by_slot.setdefault(keys.slot(f"lock:{event.name}".encode()), []).append(event)
    found = (_pause_after(move, by_slot.get(move.slot, [])) for move in moves)
    return [pause for pause in found if pause is not None]


def _pause_after(move: Moved, events: Sequence[Event]) -> float | None:
    free = move.ended
    for event in events:
        if event.at >= move.ended and event.kind == "granted":
            return event.at - free
        if event.kind == "releasing":
            free = max(free, event.at)
    return None


ALL = range(SLOTS)
