"""Which node has which slot, as far as this client knows. Pure.

What is known may be old: the nodes themselves say so (`redirects.py`). The hosts of the URL are only where to begin;
after that nodes are called as the cluster announces them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from gripfast.stores.redis.keys import SLOTS
from gripfast.stores.redis.protocol import command

ASK_SLOTS = command(b"CLUSTER", b"SLOTS")
"""Every version knows it. SHARDS, which is to replace it, is new in 7.0."""
ASK_NODES = command(b"CLUSTER", b"NODES")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Remap = Callable[[tuple[str, int]], tuple[str, int]]
"""From the address that a node announces to the one that it has for this client: redis-py's `address_remap`."""


class Topology:
    def __init__(self, seeds: Sequence[Address], remap: Remap | None = None) -> None:
        self.seeds = seeds
        self.owners: list[Address | None] = [None] * SLOTS
        """By slot."""
        self.version = 0
        """How often all of it was read."""
        self.ids: dict[Address, bytes] = {}
        """Of the nodes."""
        self.leaving: set[int] = set()
        """Slots that a node was giving away, when it was last asked for something in them."""
        self.primaries: list[Address] = []
        """In order."""
        self._remap = remap
        self._all: list[Address] = []
        self._gaps: tuple[int, list[int]] = (0, [])

    @property
    def is_known(self) -> bool:
        return self.version > 0

    def announced(self) -> list[Address]:
        """Replicas, too."""
        return self._all

    def all(self) -> list[Address]:
        """Whom to ask about the cluster: the primaries first."""
        return list(dict.fromkeys([*self.primaries, *self._all, *self.seeds]))

    def move(self, slot: int, owner: Address) -> bool:
        """A node says that another one has this slot. Whether that is news."""
        was, self.owners[slot] = self.owners[slot], owner
        if owner not in self.primaries:
            self.primaries = sorted([*self.primaries, owner])
        return was != owner

    def keeps(self, address: Address, slot: int) -> bool:
        """Whether it has that slot, and is not giving it away, as far as that is known."""
        return self.owners[slot] == address and slot not in self.leaving

    def address(self, host: str, port: int, asked: Address) -> Address:
        """As a node that was asked has announced it: without a host, it means its own."""
        announced = (host, port) if host not in ("", "?") else (asked.host, port)
        return Address(*(announced if self._remap is None else self._remap(announced)))

    def read(self, reply: Any, asked: Address) -> None:
        """Take over the reply to CLUSTER SLOTS."""
        owners: list[Address | None] = [None] * SLOTS
        primaries: set[Address] = set()
        found: dict[Address, None] = {}
        ids: dict[Address, bytes] = {}
        for first, last, *nodes in reply:
            addresses = [self.address(_host(node), node[1], asked) for node in nodes]
            found |= dict.fromkeys(addresses)
            primaries.add(addresses[0])
            ids |= {address: node[2] for address, node in zip(addresses, nodes, strict=True) if len(node) > 2}
            owners[first : last + 1] = [addresses[0]] * (last + 1 - first)
        self.owners, self.primaries = owners, sorted(primaries)
        self._all, self.ids, self.leaving = list(found), ids, set()
        self.version += 1

    def read_gaps(self, reply: bytes) -> None:
        """From the reply to CLUSTER NODES of a node that finds slots missing: those that no living primary has."""
        covered: set[int] = set()
        for line in reply.decode(errors="replace").splitlines():
            _, _, flags, *rest = line.split()
            if not {"fail", "noaddr", "handshake"} & set(flags.split(",")):
                for first, _, last in (each.partition("-") for each in rest[5:] if not each.startswith("[")):
                    covered.update(range(int(first), int(last or first) + 1))
        self._gaps = self.version, [slot for slot in range(SLOTS) if slot not in covered]

    def gaps(self) -> list[int]:
        """The slots that no node has, as far as that is known."""
        version, found = self._gaps
        return found if version == self.version else [slot for slot, owner in enumerate(self.owners) if owner is None]


def read_epochs(reply: bytes) -> dict[bytes, bytes]:
    """From the reply to CLUSTER NODES: the config epoch of each node, by its id."""
    return {fields[0]: fields[6] for fields in (line.split() for line in reply.splitlines())}


def ranges(slots: Iterable[int]) -> str:
    found: list[list[int]] = []
    for slot in slots:
        if found and found[-1][1] == slot - 1:
            found[-1][1] = slot
        else:
            found.append([slot, slot])
    return ", ".join(f"{first}-{last}" if first < last else f"{first}" for first, last in found)


def _host(node: Sequence[Any]) -> str:
    """What it prefers to be called by; its IP address if that is a name that it does not have."""
    host: str = (node[0] or b"").decode()
    more: list[str] = [each.decode() for each in node[3]] if len(node) > 3 else []
    if host == "?" and "ip" in more[::2]:
        return more[more.index("ip") + 1]
    return host
