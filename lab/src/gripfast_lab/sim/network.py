"""Connections between processes and nodes, as TCP makes them, and what can go wrong with them.

Each direction of a connection keeps the order of what it carries; different connections overtake each other. What is
sent into a cut arrives when the cut is over. What is lost is lost with everything behind it: the connection is half
open, and nobody is told. A reset is told to both ends, and takes with it what was on its way, in either direction.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from gripfast_lab.sim.chance import Chance
from gripfast_lab.sim.processes import Process
from gripfast_lab.sim.world import Promise, World

BASE_DELAY = 0.000_1
JITTER = 0.001
RESEND = 0.2
"""Seconds within which what was held up by a cut is sent again after it."""


class Peer(Protocol):
    """The node's side."""

    name: str

    def accepts(self, connection: Connection) -> bool: ...

    def receive(self, connection: Connection, message: Any) -> None: ...

    def hung_up(self, connection: Connection) -> None: ...


class Path:
    """One direction between a process and a node, for all their connections."""

    __slots__ = ("cut_until", "slow_by")

    def __init__(self) -> None:
        self.cut_until = 0.0
        self.slow_by = 0.0


class Pipe:
    """One direction of one connection."""

    __slots__ = ("_arrive", "_busy_until", "_chance", "_path", "_world", "is_broken", "is_lost")

    def __init__(self, world: World, path: Path, chance: Chance, arrive: Callable[[Any], None]) -> None:
        self._world = world
        self._path = path
        self._chance = chance
        self._arrive = arrive
        self._busy_until = 0.0
        self.is_lost = False
        """What is sent from now on never arrives."""
        self.is_broken = False
        """Nor does what is on its way."""

    def send(self, message: Any) -> None:
        if self.is_lost:
            return
        now, path = self._world.now, self._path
        moment = now + BASE_DELAY + (JITTER + path.slow_by) * self._chance.random()
        if path.cut_until > now:
            moment += path.cut_until - now + RESEND * self._chance.random()
        if moment < self._busy_until:
            moment = self._busy_until
        self._busy_until = moment
        self._world.at(moment, self._deliver, message)

    def send_late(self, message: Any, seconds: float) -> None:
        """And whatever comes behind it."""
        self._busy_until = max(self._busy_until, self._world.now + seconds)
        self.send(message)

    def _deliver(self, message: Any) -> None:
        if not self.is_broken:
            self._arrive(message)


class _Signal(enum.Enum):
    """What is said about a connection, on it."""

    CONNECT = enum.auto()
    ACCEPT = enum.auto()
    REFUSE = enum.auto()
    HANG_UP = enum.auto()


class Connection:
    def __init__(self, network: Network, process: Process, peer: Peer, label: str) -> None:
        self.process = process
        self.peer = peer
        self.is_open = True
        """By what its process knows."""
        self.session: Any = None
        """What the node knows about it."""
        self.receive: Callable[[Any], None] = _drop
        """The process's side: what to do with a message, and with the end."""
        self.ended: Callable[[], None] = _nothing
        self._network = network
        chance = network.chance.fork(label)
        there, back = network.paths(process, peer)
        self.there = Pipe(network.world, there, chance.fork("there"), self._arrived_there)
        self.back = Pipe(network.world, back, chance.fork("back"), self._arrived_back)

    def send(self, message: Any) -> None:
        if not self.is_open:
            return
        trouble = self._network.trouble(self.process, self.peer, "request")
        if trouble is None:
            self.there.send(message)
        elif trouble.kind == "lost request":
            self.there.is_lost = True
        elif trouble.kind == "late request":
            self.there.send_late(message, trouble.lasts)
        else:
            self.there.send(message)
            self.there.send(Duplicate(message))

    def answer(self, message: Any, is_push: bool = False) -> None:
        trouble = self._network.trouble(self.process, self.peer, "push" if is_push else "reply")
        if trouble is None:
            self.back.send(message)
        elif trouble.kind == "reset in a reply":
            self.reset()
        elif trouble.kind in ("late reply", "late push"):
            self.back.send_late(message, trouble.lasts)
        else:
            self.back.is_lost = True

    def hang_up(self) -> None:
        """By its process."""
        if self.is_open:
            self.is_open = False
            self._network.forget(self)
            self.there.send(_Signal.HANG_UP)

    def hang_up_there(self) -> None:
        """By its node."""
        self.back.send(_Signal.HANG_UP)

    def reset(self) -> None:
        self.there.is_broken = self.there.is_lost = True
        self.back.is_broken = self.back.is_lost = True
        self.peer.hung_up(self)
        self.process.do(self._end)

    def reset_here(self) -> None:
        """Only its process is told; what was sent before still arrives."""
        self.back.is_broken = self.back.is_lost = True
        self.there.send(_Signal.HANG_UP)
        self.process.do(self._end)

    def vanish(self) -> None:
        """The process's machine is gone: nothing is said."""
        self.is_open = False
        self.there.is_lost = True

    def _arrived_there(self, message: Any) -> None:
        if message is _Signal.HANG_UP:
            self.peer.hung_up(self)
        elif message is not _Signal.CONNECT:
            self.peer.receive(self, message)
        elif self.peer.accepts(self):
            self.back.send(_Signal.ACCEPT)
        else:
            self.back.send(_Signal.REFUSE)

    def _arrived_back(self, message: Any) -> None:
        self.process.do(self._received, message)

    def _received(self, message: Any) -> None:
        if not self.is_open:
            return
        if message is _Signal.HANG_UP:
            self._end()
        else:
            self.receive(message)

    def _end(self) -> None:
        if self.is_open:
            self.is_open = False
            self._network.forget(self)
            self.ended()


class Duplicate:
    """A request that arrives once more, right behind itself; nobody waits for its reply."""

    __slots__ = ("message",)

    def __init__(self, message: Any) -> None:
        self.message = message


class Trouble(NamedTuple):
    """What one message meets with."""

    kind: str
    lasts: float
    fired: Callable[[], None]


class Network:
    def __init__(self, world: World, chance: Chance) -> None:
        self.world = world
        self.chance = chance
        self.connections: dict[Connection, None] = {}
        """The open ones, by what their processes know."""
        self._paths: dict[tuple[Process, Peer], tuple[Path, Path]] = {}
        self._armed: dict[tuple[Process, Peer, str], list[Trouble]] = {}
        self._made = 0

    def paths(self, process: Process, peer: Peer) -> tuple[Path, Path]:
        """There, and back."""
        ends = process, peer
        if ends not in self._paths:
            self._paths[ends] = Path(), Path()
        return self._paths[ends]

    def arm(self, process: Process, peer: Peer, on: str, trouble: Trouble) -> None:
        """The next request, reply or push between these two meets with this trouble."""
        self._armed.setdefault((process, peer, on), []).append(trouble)

    def disarm(self) -> None:
        self._armed.clear()

    def trouble(self, process: Process, peer: Peer, on: str) -> Trouble | None:
        if not self._armed or not (waiting := self._armed.get((process, peer, on))):
            return None
        trouble = waiting.pop(0)
        trouble.fired()
        return trouble

    def connect(self, process: Process, peer: Peer) -> tuple[Connection, Promise[bool]]:
        """A connection, and whether it was accepted; not kept if nobody answers."""
        self._made += 1
        connection = Connection(self, process, peer, f"{process.name} {self._made}")
        accepted: Promise[bool] = Promise()
        connection.receive = lambda answer: accepted.keep(answer is _Signal.ACCEPT)
        connection.ended = lambda: accepted.keep(False)
        self.connections[connection] = None
        connection.there.send(_Signal.CONNECT)
        return connection, accepted

    def of(self, process: Process) -> list[Connection]:
        return [each for each in self.connections if each.process is process]

    def forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)


def _drop(_: Any) -> None:
    pass


def _nothing() -> None:
    pass
