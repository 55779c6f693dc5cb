"""What the members agree upon, who leads them, and who has applied how much.

There is one log. A proposal enters it some moments after it was made, if its member is in touch with a leader that is
in touch with a majority. Otherwise it is *held*, and what becomes of it is decided later: when the same leader is back,
it is agreed upon; when there is another one, it was already copied to that, or is lost, or comes when its member comes
back. So an outcome that nobody was told may come about at any time.

A member is out of touch while it is down, paused, cut off from the others, or while its disk stalls. One that is cut
off notices after a while that it has no leader. One whose disk stalls notices nothing: it still takes itself for the
leader, answers keep-alives, and proposes revocations, which it holds.

Members apply what is agreed upon in its order, each at its own pace, and a member answers what was requested there when
it has applied it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gripfast.stores.etcd.messages import CompactionRequest, Event
from gripfast_lab.sim.chance import Chance
from gripfast_lab.sim.etcd.state import Refused, State
from gripfast_lab.sim.world import World

if TYPE_CHECKING:
    from gripfast_lab.sim.etcd.member import Member

ELECTION = 0.5
"""Seconds without a leader after which another is elected; some take up to twice as long."""
HOP = 0.001
"""Seconds that a message between members takes, at most, if nothing is wrong."""
CLUSTER_ID = 7


class Proposal:
    """Something that all members are to agree upon."""

    __slots__ = ("process", "reply", "request", "sent")

    def __init__(
        self, request: Any, process: str = "", reply: Callable[[Any], None] | None = None, sent: float = 0.0
    ) -> None:
        self.request = request
        self.sent = sent
        self.process = process
        """Which one has requested it; empty: a member has."""
        self.reply = reply


class Entry:
    """What was agreed upon, and what came of it."""

    __slots__ = ("answer", "events", "member", "proposal", "revision")

    def __init__(self, proposal: Proposal, member: Member, answer: Any, revision: int, events: list[Event]) -> None:
        self.proposal = proposal
        self.member = member
        self.answer = answer
        self.revision = revision
        self.events = events


class Cluster:
    def __init__(self, world: World, chance: Chance, least_ttl: int = 1) -> None:
        self.world = world
        self.chance = chance
        self.members: list[Member] = []
        self.leader: Member | None = None
        self.term = 1
        self.id = CLUSTER_ID
        self.least_ttl = least_ttl
        self.state = State(least_ttl)
        """After the last entry."""
        self.log: list[Entry] = []
        self.agreed: Callable[[Entry], None] = lambda entry: None
        """Told of each entry when it is."""
        self.is_electing = False
        self.restored_at = -math.inf
        """As another cluster, the last time."""
        self.seen_by: dict[str, float] = {}
        """When a process has got the first answer after that."""

    def add(self, member: Member) -> None:
        self.members.append(member)
        self.leader = self.leader or member
        member.leader = self.leader
        if self.leader is member:
            member.lessor.promote()

    # Agreement ----------------------------------------------------------------------------------------------------

    @property
    def is_quorate(self) -> bool:
        return 2 * sum(member.is_in_touch for member in self.members) > len(self.members)

    @property
    def has_leader(self) -> bool:
        """One that can have something agreed upon."""
        return self.leader is not None and self.leader.is_in_touch and self.is_quorate

    def propose(self, member: Member, proposal: Proposal) -> None:
        late = member.late_by * self.chance.random()
        self.world.at(self.world.now + HOP * self.chance.random() + late, self._arrives, member, proposal)

    def _arrives(self, member: Member, proposal: Proposal) -> None:
        if member.is_in_touch and self.has_leader:
            self._agree(member, proposal)
        elif member.is_up:
            member.held.append(proposal)

    def _agree(self, member: Member, proposal: Proposal) -> None:
        known = len(self.state.events)
        try:
            answer = self.state.do(proposal.request)
        except Refused as refused:
            answer = refused
        entry = Entry(proposal, member, answer, self.state.revision, self.state.events[known:])
        self.log.append(entry)
        self.agreed(entry)
        for each in self.members:
            self._send(each)

    def _send(self, member: Member) -> None:
        delay = HOP * self.chance.random() * (0.2 if member is self.leader else 1.0) + member.applies_late_by
        self.world.at(self.world.now + delay, member.apply, len(self.log))

    def read_index(self, member: Member, read: Callable[[int], None]) -> None:
        """`read` is called with how much the member has to apply before it may answer a read; or never."""

        def confirm() -> None:
            if member.is_in_touch and self.has_leader:
                read(len(self.log))
            else:
                member.held_reads.append(lambda: self.read_index(member, read))

        self.world.at(self.world.now + HOP * self.chance.random(), confirm)

    def compact(self) -> None:
        """As an operator, or the cluster itself, does now and then."""
        if self.leader is not None and self.state.revision > self.state.compacted:
            self.propose(self.leader, Proposal(CompactionRequest(self.state.revision)))

    # Leaders ------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Something has happened to a member."""
        if self.has_leader:
            self._tell_all()
            self._let_go_held()
        elif not self.is_electing:
            self.is_electing = True
            self.world.at(self.world.now + ELECTION * (1.0 + self.chance.random()), self._elect)

    def _tell_all(self) -> None:
        for member in self.members:
            if member.is_in_touch:
                member.learn(self.leader)
                self._send(member)

    def _elect(self) -> None:
        self.is_electing = False
        if self.has_leader:
            self.look()
        elif self.is_quorate:
            self.move_leader(self.chance.pick([each for each in self.members if each.is_in_touch]))
        else:
            self._step_down()

    def _step_down(self) -> None:
        """There is no majority: nobody leads, until there is one and somebody looks."""
        for member in self.members:
            if member.notices:
                member.learn(None)
        self.leader = None

    def move_leader(self, new: Member) -> None:
        old, self.leader = self.leader, new
        self.term += 1
        new.lessor.demote()
        self._tell_all()
        if old is not None and old.is_cut and old.notices:
            old.learn(None)
        self._decide_held()
        self._let_go_held()

    def _decide_held(self) -> None:
        """What the old leader had not agreed upon may have been copied to the new one, or may be lost."""
        for member in self.members:
            held, member.held = member.held, []
            for proposal in held:
                kind = self.chance.random()
                if kind < 0.3:
                    self._soon(member, proposal)
                elif kind < 0.7 or not proposal.process:
                    member.held.append(proposal)

    def _let_go_held(self) -> None:
        for member in self.members:
            if member.is_in_touch:
                held, member.held = member.held, []
                for proposal in held:
                    self._soon(member, proposal)
                reads, member.held_reads = member.held_reads, []
                for read in reads:
                    read()

    def _soon(self, member: Member, proposal: Proposal) -> None:
        """Whether or not its member is in touch by then."""
        self.world.at(self.world.now + 5.0 * HOP * self.chance.random(), self._comes_late, member, proposal)

    def _comes_late(self, member: Member, proposal: Proposal) -> None:
        if self.has_leader:
            self._agree(member, proposal)
        else:
            member.held.append(proposal)

    def back(self) -> None:
        """A member is in touch again: for some moments it does not know what has happened."""
        self.world.at(self.world.now + 5.0 * HOP * self.chance.random(), self.look)

    def lose_touch(self, member: Member) -> None:
        """It is cut off: after a while it knows that it has no leader, and if it was one, that it is none."""
        self.look()
        self.world.at(self.world.now + ELECTION * (1.0 + self.chance.random()), self._notices, member)

    def _notices(self, member: Member) -> None:
        if member.is_cut and member.notices:
            member.learn(None)

    def seen(self, process: str) -> None:
        """It has got an answer."""
        if self.restored_at >= 0.0:
            self.seen_by.setdefault(process, self.world.now)

    # Backups ------------------------------------------------------------------------------------------------------

    def restore(self, backup: State, is_new: bool) -> None:
        """Everything since is gone. `is_new`: it has become another cluster, as etcd's own tools make it."""
        self.state = backup
        self.seen_by.clear()
        if is_new:
            self.id += 1
            self.restored_at = self.world.now
        self.log.clear()
        for member in self.members:
            member.forget()
        if self.leader is not None:
            self.leader.lessor.promote()
