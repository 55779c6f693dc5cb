"""A primary and its replicas in the world: who follows whom, who is promoted, and whom clients are sent to.

A `Stream` carries what a primary has written to one that follows it, in order, and acknowledgements back. It is as slow
as the network between the two is; what is sent into a cut arrives when the cut is over, as after a partial sync.

The group does what Sentinel does: it promotes and demotes, and tells clients that connect where the primary is. A
client that is cut off together with an old primary is told of that one (`keeps_to`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gripfast.stores.redis import scripts
from gripfast_lab.sim.chance import Chance
from gripfast_lab.sim.clocks import Clock
from gripfast_lab.sim.network import Connection, Duplicate, Path, Pipe
from gripfast_lab.sim.redis.guarded import GroupObserver
from gripfast_lab.sim.redis.node import SCRIPTS, Node
from gripfast_lab.sim.redis.replication import Effect, Follower, ReplicatedServer, Sync
from gripfast_lab.sim.world import World

GUARDED = (scripts.MARK, *(form for script in SCRIPTS for form in (script, script.guarded, script.acked)))
"""Of all scripts the forms, too, that grant nothing in a grace, and that have to be acknowledged."""


class Member(Node):
    """One server of a group."""

    server: ReplicatedServer

    def __init__(self, world: World, name: str, clock: Clock, observer: GroupObserver) -> None:
        self.observer = observer
        self._waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.stream: Stream | None = None
        """From the one that it follows."""
        super().__init__(world, name, clock, observer)
        self.server.seen = observer.snapshot

    def _new_server(self) -> ReplicatedServer:
        return ReplicatedServer(self.now_us, self.name, lambda seconds, call: self._world.at(self._at(seconds), call))

    def warm_up(self) -> None:
        for script in GUARDED:
            self.server.remember(script.text)

    def _at(self, seconds: float) -> float:
        return self._world.now + seconds

    @property
    def is_primary(self) -> bool:
        return self.is_up and not self.server.is_replica

    def accepts(self, connection: Connection) -> bool:
        if self.is_up:
            connection.session = self.server.connect(
                lambda message: connection.answer([message], is_push=True),
                lambda replies: self._answers_late(connection, replies),
            )
            self._connections[connection] = None
        return self.is_up

    def receive(self, connection: Connection, message: Any) -> None:
        if connection.session is None or self._pauses:
            super().receive(connection, message)
        elif isinstance(message, Duplicate):
            again = (
                self.server.connect()
            )  # on its own: the replies of this one may come later, and nobody waits for them
            again.receive(message.message)
            again.close()
        elif replies := connection.session.receive(message):
            connection.answer(replies)

    def _answers_late(self, connection: Connection, replies: list[Any]) -> None:
        if replies:
            connection.answer(replies)
        else:
            self.hung_up(connection)
            connection.hang_up_there()

    # -- replication ---------------------------------------------------------------------------------------------

    def when_it_runs(self, call: Callable[..., None], *args: Any) -> None:
        if self._pauses:
            self._waiting.append((call, args))
        elif self.is_up:
            call(*args)

    def follows(self, stream: Stream | None) -> None:
        """From now on, or nobody."""
        if self.stream is not None:
            self.stream.close()
        self.stream = stream

    def take_over_memory(self, what: Sync | Effect) -> None:
        self.server.receive(what)
        self._observer.restore(what.seen)

    def go_on(self) -> None:
        super().go_on()
        while self._waiting and not self._pauses:
            call, args = self._waiting.pop(0)
            call(*args)

    def crash(self) -> None:
        super().crash()
        self._waiting.clear()
        self.follows(None)
        self.server.restart()

    def let_all_go(self) -> None:
        """CLIENT KILL TYPE normal."""
        for connection in list(self._connections):
            self.hung_up(connection)
            connection.hang_up_there()


class Stream:
    def __init__(self, world: World, chance: Chance, primary: Member, replica: Member, paths: tuple[Path, Path]):
        self._primary = primary
        self._replica = replica
        self._is_closed = False
        there, back = paths
        self._there = Pipe(world, there, chance.fork("there"), self._arrived)
        self._back = Pipe(world, back, chance.fork("back"), self._acknowledged)
        self.follower = Follower(self._there.send, replica.name)
        primary.server.add(self.follower)

    def comes_from(self, member: Member) -> bool:
        return self._primary is member

    def break_off(self) -> None:
        """The primary is gone, and all that was on its way."""
        self._there.is_broken = self._there.is_lost = True

    def close(self) -> None:
        """By the replica. The primary counts it until it sees that."""
        self._is_closed = True
        self._back.send(None)

    def _arrived(self, what: Sync | Effect) -> None:
        self._replica.when_it_runs(self._apply, what)

    def _apply(self, what: Sync | Effect) -> None:
        if not self._is_closed:
            self._replica.take_over_memory(what)
            self._back.send(what.offset)

    def _acknowledged(self, offset: int | None) -> None:
        if self.follower in self._primary.server.followers:
            self._primary.when_it_runs(self._told, offset)

    def _told(self, offset: int | None) -> None:
        if offset is None:
            self._primary.server.drop(self.follower)
        else:
            self._primary.server.acknowledge(self.follower, offset)


class Group:
    def __init__(self, world: World, chance: Chance, members: list[Member]) -> None:
        self.members = members
        self.primary = 0
        """As clients are told."""
        self.keeps_to: dict[str, int] = {}
        """Processes that are told of another one."""
        self._world = world
        self._chance = chance
        self._streams = 0
        self._paths: dict[tuple[int, int], Path] = {}
        for place in range(1, len(members)):
            members[place].server.demote()
            self.follow(place)

    def for_process(self, name: str) -> Member:
        return self.members[self.keeps_to.get(name, self.primary)]

    def path(self, source: int, to: int) -> Path:
        return self._paths.setdefault((source, to), Path())

    def promote(self, place: int) -> None:
        member = self.members[place]
        member.follows(None)
        member.server.promote()
        self.primary = place

    def demote(self, place: int, syncs: bool = True, lets_go: bool = True) -> None:
        """`syncs`: it follows the primary; otherwise it can't reach that one, and keeps what it has."""
        member = self.members[place]
        member.server.demote()
        if lets_go:
            member.let_all_go()
        member.follows(None)
        if syncs:
            self.follow(place)

    def follow(self, place: int) -> None:
        """The primary, from now on."""
        self._streams += 1
        paths = self.path(self.primary, place), self.path(place, self.primary)
        chance = self._chance.fork(f"stream {self._streams}")
        members = self.members
        members[place].follows(Stream(self._world, chance, members[self.primary], members[place], paths))

    def crash(self, place: int) -> None:
        """What has not arrived at its followers never does."""
        for member in self.members:
            if member.stream is not None and member.stream.comes_from(self.members[place]):
                member.stream.break_off()
        self.members[place].crash()

    def restart(self, place: int) -> None:
        """With its memory: as the primary, if it still is, and as a replica otherwise."""
        member = self.members[place]
        member.restart()
        if place != self.primary:
            self.demote(place)
        else:
            for other in self.replicas():
                self.follow(other)

    def replicas(self) -> list[int]:
        """Those that could be promoted now."""
        return [
            place
            for place, member in enumerate(self.members)
            if place != self.primary and member.is_up and member.server.is_replica
        ]
