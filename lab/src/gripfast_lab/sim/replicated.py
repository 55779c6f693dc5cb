"""A run with a primary and its replicas: who is connected to whom, and what a failover excuses."""

from __future__ import annotations

from collections.abc import Sequence

from gripfast.core import rules
from gripfast.stores.redis.failover import Failover
from gripfast.stores.redis.store import RedisStore
from gripfast_lab.sim.chance import Chance
from gripfast_lab.sim.history import ANY, ONLY_LOSSES, ONLY_TOKENS, TOKENS, WORLD
from gripfast_lab.sim.plan import Copies, Host, Plan
from gripfast_lab.sim.redis.group import Group, Member
from gripfast_lab.sim.redis.guarded import GroupObserver
from gripfast_lab.sim.redis.link import SimLink
from gripfast_lab.sim.redis.node import Node
from gripfast_lab.sim.stage import Stage, clock_of

GRACE_LEVEL, ACKNOWLEDGED_LEVEL = 1, 2


class ReplicatedStage(Stage):
    nodes: Sequence[Member]

    def __init__(self, plan: Plan) -> None:
        assert plan.copies is not None
        self.copies: Copies = plan.copies
        super().__init__(plan)
        self.needed = 1
        self.group = Group(self.world, Chance(plan.seed).fork("group"), list(self.nodes))

    @property
    def grace(self) -> float:
        """Seconds."""
        return self.copies.max_ttl + self.copies.goes_on if self.copies.level >= GRACE_LEVEL else 0.0

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
        return (self.group.primary,)

    def _redis(self, link: SimLink) -> RedisStore:
        copies = self.copies
        if copies.level < GRACE_LEVEL:
            return RedisStore(link)
        replicas = len(self.nodes) - 1
        needed = replicas if copies.level >= ACKNOWLEDGED_LEVEL else 0
        return RedisStore(link, Failover(copies.max_ttl, copies.goes_on, needed, lambda: replicas))

    # -- what a failover excuses ---------------------------------------------------------------------------------

    def failed_over(self, to: int, ends: float) -> None:
        """The server there was promoted just now; the old primary stops at `ends`."""
        goes_on_for_too_long = ends - self.world.now > self.copies.goes_on * (1.0 - rules.CLOCK_RATES)
        if self.copies.level < GRACE_LEVEL or (self.copies.level < ACKNOWLEDGED_LEVEL and goes_on_for_too_long):
            note = TOKENS
        elif self.copies.level < ACKNOWLEDGED_LEVEL:
            note = ONLY_TOKENS
        else:
            note = ONLY_LOSSES
        self.note(WORLD, ANY, "forgot", until=max(ends, self.world.now), note=note)
