"""A run with a primary and its replicas: who is connected to whom, and what a failover excuses."""

from __future__ import annotations

from collections.abc import Sequence

from gripfast.core import rules
from gripfast.stores.redis import scripts
from gripfast.stores.redis.failover import Failover
from gripfast.stores.redis.followers import Replicas, address
from gripfast.stores.redis.grace import ANY_SERVER, Grace, mark
from gripfast.stores.redis.keys import MARKER
from gripfast_lab.sim.chance import Chance
from gripfast_lab.sim.history import ANY, ONLY_LOSSES, ONLY_TOKENS, TOKENS, WORLD
from gripfast_lab.sim.plan import Copies, Host, Plan
from gripfast_lab.sim.redis.group import Group, Member
from gripfast_lab.sim.redis.guarded import GroupObserver
from gripfast_lab.sim.redis.node import Node
from gripfast_lab.sim.redis.replication import PORT
from gripfast_lab.sim.stage import Stage, clock_of

GRACE_LEVEL, ACKNOWLEDGED_LEVEL = 1, 2
FAILOVERS = (
    "primary crashed",
    "primary goes on",
    "primary cut off",
    "primary paused",
    "failed back",
    "primary among strangers",
)


class ReplicatedStage(Stage):
    nodes: Sequence[Member]

    def __init__(self, plan: Plan) -> None:
        assert plan.copies is not None
        self.copies: Copies = plan.copies
        self.failover = _failover(plan.copies, len(plan.nodes) - 1)
        super().__init__(plan)
        self.needed = 1
        if self.failover is not None and plan.copies.is_established:
            self._establish()
        self.group = Group(self.world, Chance(plan.seed).fork("group"), list(self.nodes))

    @property
    def grace(self) -> float:
        """Seconds."""
        return 0.0 if self.failover is None else self.failover.grace

    @property
    def longest_put_back(self) -> float:
        """A new primary's clock may be behind that of the one before."""
        readings = [node.clock.read(self.world.now) for node in self.nodes]
        return max(readings) - min(readings)

    def _node(self, host: Host) -> Node:
        clock = clock_of(host)
        observer = GroupObserver(lambda: self.world.now, self.note, self.grace, clock.true_at)
        node = Member(self.world, host.name, clock, observer)
        if self.plan.is_warm:
            node.warm_up()
        return node

    def _found_by(self, host: Host) -> Node:
        return self.group.for_process(host.name)

    def _asked(self) -> Sequence[int]:
        """None where clients may have been at several servers: what is left at one of them ends with its time."""
        return () if any(kind in self.fired for kind in FAILOVERS) else (self.group.primary,)

    def _grace(self, host: Host) -> Grace | None:
        if self.failover is None:
            return None
        failover = self.failover._replace(promotable=lambda: self._promotable(host.name))
        return Grace(failover, "group", now=self.processes[host.name].now)

    def _promotable(self, process: str) -> Replicas:
        """As the Sentinels say that tell this process where the primary is."""
        primary = self.group.for_process(process)
        found = frozenset(address(each.name.encode(), b"%d" % PORT) for each in self.nodes if each is not primary)
        return Replicas(found, found)

    def _establish(self) -> None:
        """As `gripfast init` does, long before: the replicas know of it."""
        assert self.failover is not None
        packed = scripts.MARK.in_full(mark(MARKER, self.failover, opens=ANY_SERVER))
        self.nodes[0].server.connect().receive(packed)
        self.nodes[0].observer.establish()

    # -- what a failover excuses ---------------------------------------------------------------------------------

    def failed_over(self, to: int, ends: float) -> None:
        """The server there was promoted just now; the old primary stops at `ends`."""
        copies, until = self.copies, max(ends, self.world.now)
        goes_on_for_too_long = ends - self.world.now > copies.goes_on * (1.0 - rules.CLOCK_RATES)
        if copies.level < GRACE_LEVEL or (copies.level < ACKNOWLEDGED_LEVEL and goes_on_for_too_long):
            notes = [TOKENS]
        elif copies.level < ACKNOWLEDGED_LEVEL:
            notes = [ONLY_TOKENS, ONLY_LOSSES]
        else:
            notes = [ONLY_LOSSES]
        for note in notes:
            self.note(WORLD, ANY, "forgot", until=until, note=note)


def _failover(copies: Copies, replicas: int) -> Failover | None:
    if copies.level < GRACE_LEVEL:
        return None
    needed = replicas if copies.level >= ACKNOWLEDGED_LEVEL else 0
    return Failover(copies.max_ttl, copies.goes_on, needed)
