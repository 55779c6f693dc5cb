"""What goes wrong with the members of a cluster: faults, for `faults.KINDS`. None but a restored backup is declared.

Most happen to the leader: what happens to another member is hardly noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from gripfast_lab.sim.chance import Chance
from gripfast_lab.sim.etcd.cluster import ELECTION
from gripfast_lab.sim.history import ANY, OF_FOLLOWER, TOKENS, WORLD
from gripfast_lab.sim.plan import Fault

if TYPE_CHECKING:
    from gripfast_lab.sim.etcd.member import Member
    from gripfast_lab.sim.etcd.stage import EtcdStage
    from gripfast_lab.sim.stage import Stage

AFTER = 2.0 * ELECTION + 0.1
"""Seconds for which a fault is still felt: there may be an election."""


class Failing:
    """One such fault."""

    def __init__(self, stage: Stage, fault: Fault) -> None:
        self.stage = cast("EtcdStage", stage)
        self.fault = fault
        self.cluster = self.stage.cluster
        self.chance = Chance(int(fault.size * 2**50))

    def fires(self, note: str = "") -> None:
        self.stage.fault(self.fault.kind, lasts=self.fault.lasts + AFTER, note=note)

    def after(self, call: Callable[..., object], *args: object) -> None:
        """When it is over."""
        self.stage.world.at(self.fault.at + self.fault.lasts, call, *args)

    def member(self) -> Member:
        leader = self.cluster.leader
        return leader if leader is not None and self.chance.happens(0.6) else self.chance.pick(self.cluster.members)


def _to_member(
    may: Callable[[Member], bool], do: Callable[[Member], None], undo: Callable[[Member], None]
) -> Callable[[Stage, Fault], None]:
    """Once at a time."""

    def happen(stage: Stage, fault: Fault) -> None:
        failing = Failing(stage, fault)
        member = failing.member()
        if may(member):
            is_leader = member is failing.cluster.leader or not failing.cluster.has_leader
            failing.fires(member.name if is_leader else f"{member.name} {OF_FOLLOWER}")
            do(member)
            failing.after(undo, member)

    return happen


def _set(name: str, share: float) -> Callable[[Stage, Fault], None]:
    """A property of a member, to some of the seconds that this lasts, or to True."""

    def happen(stage: Stage, fault: Fault) -> None:
        failing = Failing(stage, fault)
        member = failing.member()
        before = getattr(member, name)
        if not before:
            failing.fires(member.name)
            setattr(member, name, fault.lasts * share * failing.chance.random() if share else True)
            failing.after(setattr, member, name, before)

    return happen


paused = _to_member(lambda member: member.is_up, lambda member: member.pause(), lambda member: member.go_on())
crashed = _to_member(lambda member: member.is_up, lambda member: member.crash(), lambda member: member.restart())
cut_off = _to_member(lambda member: not member.is_cut, lambda member: member.cut_off(), lambda member: member.join())
applies_late = _set("applies_late_by", 1.0)
proposes_late = _set("late_by", 2.0)
reads_stale = _set("reads_stale", 0.0)


def stalled(stage: Stage, fault: Fault) -> None:
    """The leader's disk. It goes on to answer keep-alives, and finds leases expired."""
    failing = Failing(stage, fault)
    leader = failing.cluster.leader
    if leader is not None and leader.is_in_touch:
        failing.fires(leader.name)
        leader.stall()
        failing.after(leader.end_stall)


def moved(stage: Stage, fault: Fault) -> None:
    """Another member leads, as after a restart or by an operator's wish."""
    failing = Failing(stage, fault)
    others = [each for each in failing.cluster.members if each.is_in_touch and each is not failing.cluster.leader]
    if failing.cluster.has_leader and others:
        failing.fires()
        failing.cluster.move_leader(failing.chance.pick(others))


def compacted(stage: Stage, fault: Fault) -> None:
    failing = Failing(stage, fault)
    failing.fires()
    failing.cluster.compact()


def restored(stage: Stage, fault: Fault) -> None:
    """From a backup that was made when this began."""
    failing = Failing(stage, fault)
    backup = failing.cluster.state.copy()

    def restore() -> None:
        if backup.revision < failing.cluster.state.revision:
            failing.fires()
            failing.stage.note(WORLD, ANY, "forgot", until=stage.world.now, note=TOKENS)
            failing.stage.restore(backup, is_new=failing.chance.happens(0.5))

    failing.after(restore)
