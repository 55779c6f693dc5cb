"""What goes wrong with a primary and its replicas: faults, for `faults.KINDS`.

Of each failover, `ReplicatedStage.failed_over` notes what it excuses. One may come while another is not over yet.
Where an old primary goes on, some clients and replicas stay with it until it is demoted; with the others, whoever
connects finds the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from gripfast_lab.sim.chance import Chance
from gripfast_lab.sim.plan import WITNESS, Fault
from gripfast_lab.sim.redis.replication import Follower

if TYPE_CHECKING:
    from gripfast_lab.sim.replicated import ReplicatedStage
    from gripfast_lab.sim.stage import Stage

BACKUP = "backup"
_TURNS = 5
_DELAY = 0.000_3
"""Seconds in which one that only copies acknowledges."""


class Failing:
    """One such fault."""

    def __init__(self, stage: Stage, fault: Fault) -> None:
        self.stage = cast("ReplicatedStage", stage)
        self.fault = fault
        self.group = self.stage.group
        self.old = self.group.primary
        self.chance = Chance(int(fault.size * 2**50))

    def after(self, share: float, call: Callable[..., object], *args: object) -> None:
        """When that much of it is over."""
        self.stage.world.at(self.fault.at + self.fault.lasts * share, call, *args)

    def fires(self) -> None:
        self.stage.fault(self.fault.kind, lasts=self.fault.lasts)

    def can_fail_over(self) -> bool:
        return self.group.members[self.old].is_primary and bool(self.group.replicas())

    def some_replicas(self) -> list[int]:
        return [place for place in range(len(self.group.members)) if place != self.old and self.chance.happens(0.6)]

    def take_over(self, ends: float, stay: list[int] | None = None) -> int | None:
        """Some replica is promoted, and the others follow it, except those who stay with the old primary."""
        replicas = self.group.replicas()
        if not replicas or self.group.primary != self.old:
            return None
        new = self.chance.pick(replicas)
        self.group.promote(new)
        for place in self.group.replicas():
            if place not in (stay or ()):
                self.group.follow(place)
        self.stage.failed_over(new, ends)
        return new

    def end(self) -> None:
        """Whoever is no primary any more follows the one that is."""
        lets_go = self.chance.happens(0.5)
        for name, place in list(self.group.keeps_to.items()):
            if place == self.old:
                del self.group.keeps_to[name]
        member = self.group.members[self.old]
        if member.is_primary and self.group.primary != self.old:
            self.group.demote(self.old, lets_go=lets_go)
        for place in self.group.replicas():
            if not self._follows_the_primary(place):
                self.group.follow(place)

    def _follows_the_primary(self, place: int) -> bool:
        stream = self.group.members[place].stream
        return stream is not None and stream.comes_from(self.group.members[self.group.primary])


def crashes(stage: Stage, fault: Fault) -> None:
    """It comes back as a replica of the one that took its place, or as what it was if there was none."""
    failing = Failing(stage, fault)
    if not failing.can_fail_over():
        return
    failing.fires()
    failing.group.crash(failing.old)
    failing.after(0.5 * failing.chance.random(), failing.take_over, stage.world.now)

    def comes_back() -> None:
        failing.group.restart(failing.old)
        failing.end()

    failing.after(1.0, comes_back)


def goes_on(stage: Stage, fault: Fault) -> None:
    """A replica is promoted, and the old primary does not know: a planned failover."""
    failing = Failing(stage, fault)
    if failing.can_fail_over():
        failing.fires()
        _keep_some(failing, is_cut=False)
        failing.take_over(stage.world.now + fault.lasts, failing.some_replicas())
        failing.after(1.0, failing.end)


def cut_off(stage: Stage, fault: Fault) -> None:
    """Together with some clients and replicas."""
    failing = Failing(stage, fault)
    if failing.can_fail_over():
        failing.fires()
        stay = failing.some_replicas()
        _keep_some(failing, is_cut=True)
        _cut_servers(failing, stay)
        failing.after(0.3 * failing.chance.random(), failing.take_over, stage.world.now + fault.lasts, stay)
        failing.after(1.0, failing.end)


def pauses(stage: Stage, fault: Fault) -> None:
    """For longer than the failover takes; then it goes on, and is told later."""
    failing = Failing(stage, fault)
    if failing.can_fail_over():
        member = failing.group.members[failing.old]
        failing.fires()
        member.pause()
        _keep_some(failing, is_cut=False)
        begins = 0.3 * failing.chance.random()
        failing.after(begins, failing.take_over, stage.world.now + fault.lasts, failing.some_replicas())
        failing.after(begins + (1.0 - begins) * failing.chance.random(), member.go_on)
        failing.after(1.0, failing.end)


def fails_back(stage: Stage, fault: Fault) -> None:
    """The old primary is demoted, with or without a sync, and promoted again; it keeps its connections."""
    failing = Failing(stage, fault)
    if not failing.can_fail_over():
        return
    group, old = failing.group, failing.old
    failing.fires()
    new = failing.take_over(stage.world.now)
    group.demote(old, syncs=failing.chance.happens(0.5), lets_go=failing.chance.happens(0.3))

    def back() -> None:
        if group.primary == new and old in group.replicas():
            group.promote(old)
            group.demote(new, lets_go=failing.chance.happens(0.5))
            failing.stage.failed_over(old, stage.world.now)
        failing.end()

    failing.after(failing.chance.random(), back)
    failing.after(1.0, failing.end)


def held(stage: Stage, fault: Fault) -> None:
    """What the primary writes does not arrive at some replicas, or their acknowledgements at the primary."""
    failing = Failing(stage, fault)
    failing.fires()
    for place in failing.some_replicas():
        ends = (failing.old, place) if failing.chance.happens(0.8) else (place, failing.old)
        _cut_path(failing, *ends)


def slow(stage: Stage, fault: Fault) -> None:
    failing = Failing(stage, fault)
    failing.fires()
    for place in failing.some_replicas():
        path, by = failing.group.path(failing.old, place), fault.lasts * failing.chance.random()
        path.slow_by += by
        failing.after(1.0, setattr, path, "slow_by", max(0.0, path.slow_by - by))


def replica_crashes(stage: Stage, fault: Fault) -> None:
    failing = Failing(stage, fault)
    replicas = failing.group.replicas()
    if replicas:
        place = failing.chance.pick(replicas)
        failing.fires()
        failing.group.crash(place)
        failing.after(1.0, failing.group.restart, place)


def backup(stage: Stage, fault: Fault) -> None:
    """A tool follows the primary that can't be promoted: it is counted by WAIT."""
    failing = Failing(stage, fault)
    if not failing.group.members[failing.old].server.is_replica:
        failing.fires()
        _attach(failing, 1.0)


def strangers(stage: Stage, fault: Fault) -> None:
    """The old primary goes on, and its replicas get nothing from it any more. Such a tool follows it instead of one of
    them, or comes and goes, also while somebody waits for acknowledgements."""
    failing = Failing(stage, fault)
    if not failing.can_fail_over():
        return
    failing.fires()
    _keep_some(failing, is_cut=False)
    _cut_servers(failing, [])
    server = failing.group.members[failing.old].server
    if server.followers and failing.chance.happens(0.5):
        server.drop(failing.chance.pick(server.followers))
        _attach(failing, 1.0)
    else:
        for turn in range(_TURNS):
            failing.after((turn + failing.chance.random()) / _TURNS, _attach, failing, (turn + 1.0) / _TURNS)
    failing.take_over(stage.world.now + fault.lasts)
    failing.after(1.0, failing.end)


def _attach(failing: Failing, until: float) -> None:
    """One that copies, for that much of the fault."""
    server, world = failing.group.members[failing.old].server, failing.stage.world

    def acknowledge(offset: int) -> None:
        if follower in server.followers:
            server.acknowledge(follower, offset)

    follower = Follower(lambda what: world.at(world.now + _DELAY, acknowledge, what.offset), BACKUP)
    if not server.is_replica:
        server.add(follower)
        failing.after(until, server.drop, follower)


def _keep_some(failing: Failing, is_cut: bool) -> None:
    """Some clients stay with the old primary, and if it is cut off, none reaches those of the other side."""
    stage, group = failing.stage, failing.group
    for name, process in stage.processes.items():
        stays = name != WITNESS and failing.chance.happens(0.5)
        if stays:
            group.keeps_to[name] = failing.old
        for place, member in enumerate(group.members if is_cut else ()):
            if (place == failing.old) != stays:
                for path in stage.network.paths(process, member):
                    path.cut_until = max(path.cut_until, stage.world.now + failing.fault.lasts)


def _cut_servers(failing: Failing, stay: list[int]) -> None:
    here = [failing.old, *stay]
    for place in range(len(failing.group.members)):
        for other in here if place not in here else ():
            _cut_path(failing, place, other)
            _cut_path(failing, other, place)


def _cut_path(failing: Failing, source: int, to: int) -> None:
    path = failing.group.path(source, to)
    path.cut_until = max(path.cut_until, failing.stage.world.now + failing.fault.lasts)
