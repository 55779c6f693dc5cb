"""A member in the world: it is reached over the network, and it can be paused, killed, cut off, or have a slow disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gripfast.stores.etcd.faults import UNAVAILABLE
from gripfast.stores.etcd.messages import (
    LeaseGrantRequest,
    LeaseKeepAliveRequest,
    LeaseKeepAliveResponse,
    LeaseRevokeRequest,
    LeaseTimeToLiveRequest,
    RangeRequest,
    ResponseHeader,
    WatchCancel,
    WatchCreate,
)
from gripfast_lab.sim.clocks import Clock
from gripfast_lab.sim.etcd.cluster import Cluster, Entry, Proposal
from gripfast_lab.sim.etcd.lessor import Lessor
from gripfast_lab.sim.etcd.state import Refused, State, writes
from gripfast_lab.sim.etcd.watcher import Watcher
from gripfast_lab.sim.network import Connection

NO_LEADER = "etcdserver: no leader"


class Ask(NamedTuple):
    """A request, and under which number it is answered."""

    number: int
    request: Any
    with_leader: bool
    sent: float = 0.0
    """When it left, by the world's clock."""


class GiveUp(NamedTuple):
    """Nobody waits for it any more. What is proposed goes its way."""

    number: int


class Answer(NamedTuple):
    number: int
    answer: Any
    """A response, or a Status."""


class Status(NamedTuple):
    status: int
    message: str


class StreamEnded(NamedTuple):
    """All watches of a connection are over."""

    message: str = NO_LEADER


class Session:
    """What a member knows of a connection."""

    def __init__(self) -> None:
        self.asked: set[int] = set()
        self.watchers: dict[int, Watcher] = {}


class Member:
    def __init__(self, cluster: Cluster, name: str, clock: Clock) -> None:
        self.name = name
        self.clock = clock
        self.cluster = cluster
        self.lessor = Lessor(self)
        self.is_up = True
        self.is_cut = False
        self.is_stalled = False
        """Its disk takes nothing any more."""
        self.leader: Member | None = None
        """Whom it takes for the leader."""
        self.held: list[Proposal] = []
        self.held_reads: list[Callable[[], None]] = []
        self.late_by = 0.0
        """Seconds that what is proposed here may take until it is agreed upon; and this, until it is applied here."""
        self.applies_late_by = 0.0
        self.reads_stale = False
        self.loses_deletes = False
        self._applied = 0
        self._revision = cluster.state.revision
        self._compacted = 0
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        """Reads, and how much has to be applied before."""
        self._pauses = 0
        self._missed: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._connections: dict[Connection, Session] = {}
        cluster.add(self)

    def now(self) -> float:
        return self.clock.read(self.cluster.world.now)

    @property
    def is_in_touch(self) -> bool:
        return self.is_up and not self._pauses and not self.is_cut and not self.is_stalled

    @property
    def notices(self) -> bool:
        """That nobody leads. One whose disk stalls, or that is paused, does not."""
        return self.is_up and not self._pauses and not self.is_stalled

    def do(self, call: Callable[..., object], *args: Any) -> None:
        """As soon as it runs; never if it crashes before."""
        if self._pauses:
            self._missed.append((call, args))
        elif self.is_up:
            call(*args)

    # The log ------------------------------------------------------------------------------------------------------

    def learn(self, leader: Member | None) -> None:
        if leader is self and not self.lessor.leads:
            self.lessor.promote()
        elif leader is not self and self.lessor.leads:
            self.lessor.demote()
        self.leader = leader
        if leader is None:
            self._end_streams()

    def apply(self, index: int) -> None:
        if self.is_in_touch:
            for entry in self.cluster.log[self._applied : index]:
                self._applied += 1
                self._apply(entry)
            self._look_at_reads()

    def _apply(self, entry: Entry) -> None:
        request, answer = entry.proposal.request, entry.answer
        self._revision = entry.revision
        if not isinstance(answer, Refused):
            if isinstance(request, LeaseGrantRequest):
                self.lessor.granted(request.id, answer.ttl)
            elif isinstance(request, LeaseRevokeRequest):
                self.lessor.revoked(request.id)
        for connection, session in list(self._connections.items()) if entry.events else ():
            for watcher in session.watchers.values():
                if (response := watcher.take(entry.events, entry.revision)) is not None:
                    connection.answer(response, is_push=True)
        if entry.member is self and entry.proposal.reply is not None:
            entry.proposal.reply(answer)

    def forget(self) -> None:
        """A backup was restored: there is another log."""
        self._applied, self._revision = 0, self.cluster.state.revision
        self._waiting.clear()
        self.held.clear()
        self.held_reads.clear()

    @property
    def _state(self) -> State:
        """As far as it has applied the log."""
        state = self.cluster.state
        return state if self._revision == state.revision else state.as_of(self._revision)

    # The network's side -------------------------------------------------------------------------------------------

    def accepts(self, connection: Connection) -> bool:
        """Also while it is paused: the system does this for it."""
        if self.is_up:
            self._connections[connection] = Session()
        return self.is_up

    def receive(self, connection: Connection, message: Any) -> None:
        self.do(self._take, connection, message)

    def hung_up(self, connection: Connection) -> None:
        self.do(self._connections.pop, connection, None)

    def _take(self, connection: Connection, message: Any) -> None:
        session = self._connections.get(connection)
        if session is None:
            return
        if isinstance(message, Ask):
            session.asked.add(message.number)
            self._ask(connection, session, message)
        elif isinstance(message, GiveUp):
            session.asked.discard(message.number)
        elif isinstance(message, WatchCreate):
            self._watch(connection, session, message)
        elif isinstance(message, WatchCancel):
            session.watchers.pop(message.watch_id, None)

    def _ask(self, connection: Connection, session: Session, ask: Ask) -> None:
        def reply(answer: Any) -> None:
            if ask.number in session.asked and self._connections.get(connection) is session:
                session.asked.discard(ask.number)
                connection.answer(Answer(ask.number, self._told(answer)))

        request = ask.request
        if ask.with_leader and self.leader is None:
            reply(Refused(UNAVAILABLE, NO_LEADER))
        elif isinstance(request, LeaseKeepAliveRequest | LeaseTimeToLiveRequest):
            self._ask_leader(request, reply)
        elif writes(request):
            self.cluster.propose(self, Proposal(request, connection.process.name, reply, ask.sent))
        elif self.reads_stale or (isinstance(request, RangeRequest) and request.serializable):
            reply(self._read(request))
        else:
            self.cluster.read_index(self, lambda index: self._read_later(index, request, reply))

    def _told(self, answer: Any) -> Any:
        if isinstance(answer, Refused):
            return Status(answer.status, answer.message)
        header = answer.header._replace(cluster_id=self.cluster.id, raft_term=self.cluster.term)
        return answer._replace(header=header)

    def _read_later(self, index: int, request: Any, reply: Callable[[Any], None]) -> None:
        self._waiting.append((index, lambda: reply(self._read(request))))
        self._look_at_reads()

    def _look_at_reads(self) -> None:
        ready = [read for index, read in self._waiting if index <= self._applied]
        self._waiting = [each for each in self._waiting if each[0] > self._applied]
        for read in ready:
            read()

    def _read(self, request: Any) -> Any:
        try:
            return self._state.do(request)
        except Refused as refused:
            return refused

    def _ask_leader(self, request: Any, reply: Callable[[Any], None]) -> None:
        """Without asking the others whether it is one."""
        leader = self.leader
        is_reached = leader is self or (leader is not None and not leader.is_cut and not self.is_cut)
        if leader is not None and is_reached and leader.is_up:
            leader.do(leader._answer_lease, request, reply)

    def _answer_lease(self, request: Any, reply: Callable[[Any], None]) -> None:
        if not self.lessor.leads:
            return
        if isinstance(request, LeaseKeepAliveRequest):
            header = ResponseHeader(revision=self._revision)
            reply(LeaseKeepAliveResponse(header, request.id, self.lessor.keep_alive(request.id)))
            return
        answer = self.cluster.state.do(request)
        left = max(0, int(self.lessor.left(request.id)))
        reply(answer if answer.ttl < 0 else answer._replace(ttl=left))

    # Watches ------------------------------------------------------------------------------------------------------

    def _watch(self, connection: Connection, session: Session, create: WatchCreate) -> None:
        if self.leader is None:
            connection.answer(StreamEnded(), is_push=True)
            return
        watcher = Watcher(create)
        told = watcher.begin(self._state, self.loses_deletes)
        if not told[-1].canceled:
            session.watchers[create.watch_id] = watcher
        for response in told:
            connection.answer(response, is_push=True)

    def _end_streams(self) -> None:
        for connection, session in list(self._connections.items()):
            if session.watchers:
                session.watchers.clear()
                connection.answer(StreamEnded(), is_push=True)

    # What can be done to it ---------------------------------------------------------------------------------------

    def pause(self) -> None:
        self._pauses += 1
        self.cluster.look()

    def go_on(self) -> None:
        """What it has missed comes first, so it may still take itself for the leader."""
        self._pauses -= 1
        while self._missed and not self._pauses and self.is_up:
            call, args = self._missed.pop(0)
            call(*args)
        self.cluster.back()

    def crash(self) -> None:
        """What it had proposed may have been copied to another, or is lost."""
        self.is_up = False
        self._missed.clear()
        self._waiting.clear()
        self.held_reads.clear()
        self.held = [each for each in self.held if each.process and self.cluster.chance.happens(0.5)]
        self.lessor.demote()
        self.leader = None
        for connection in list(self._connections):
            connection.reset()
        self._connections.clear()
        self.cluster.look()

    def restart(self) -> None:
        self.is_up = True
        self.cluster.back()

    def cut_off(self) -> None:
        self.is_cut = True
        self.cluster.lose_touch(self)

    def join(self) -> None:
        self.is_cut = False
        self.cluster.back()

    def stall(self) -> None:
        self.is_stalled = True
        self.cluster.look()

    def end_stall(self) -> None:
        self.is_stalled = False
        self.cluster.back()
