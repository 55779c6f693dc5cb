"""Which worlds there are, and how a seed becomes one of their plans."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from gripfast.core import rules
from gripfast.core.ports import RW_LIMIT, Share
from gripfast.stores.etcd.watching import SLOW_PACE
from gripfast_lab.sim import faults
from gripfast_lab.sim.chance import Chance
from gripfast_lab.sim.checks import Violation, overlaps, violations
from gripfast_lab.sim.clocks import RATE_PROMISED
from gripfast_lab.sim.etcd.cluster import ELECTION
from gripfast_lab.sim.etcd.faults import AFTER
from gripfast_lab.sim.etcd.lessor import LOOKS_EVERY, RETRY
from gripfast_lab.sim.etcd.stage import EtcdStage
from gripfast_lab.sim.history import ANY, WORLD, Event
from gripfast_lab.sim.plan import WITNESS, Copies, Errand, Fault, Host, Item, Members, Plan, Quorum
from gripfast_lab.sim.quiet import quietly
from gripfast_lab.sim.replicated import FAILOVERS, ReplicatedStage
from gripfast_lab.sim.stage import Stage

NOW = 1_700_000_000.0
"""What the wall clocks of nodes show, more or less."""
WITH_DECLARED = 0.25
"""How many runs have declared faults, too. In the others nothing is excused."""
LAZY = 0.4
"""How many runs have leases whose releases nobody waits for."""
FORGETFUL = 0.07
"""How many faults of several nodes are losses of memory, in any run: most of them excuse no more than tokens."""

TTLS = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 12.0)
SHORTER_TTLS = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0)
"""For Redlock: who waits there comes again and again, and asks every node."""
TIMEOUTS = (0.05, 0.1, 0.3, 1.0)
NODE_TIMEOUTS = (0.02, 0.05, 0.05, 0.2)
"""Each for one of several nodes."""
WALLS = (2.0, 2.0, 2.0, 6 * 3600.0, 2 * 24 * 3600.0)
"""Seconds by which the wall clocks of processes may be off, either way."""
MEMBER_CLOCKS = (0.001, 0.05, 1.0)
"""Seconds by which those of a primary and its replicas may differ."""
NODE_CLOCKS = (1.0, 1.0, 3600.0, 12 * 3600.0)
"""Seconds by which those of nodes may differ."""
ETCD_MEMBERS = 3
OUT_OF_REACH_MOST = 3.0
"""Seconds that a server is not reached at a time: while it is not, everyone just asks again and again."""


class Outcome(NamedTuple):
    plan: Plan
    history: list[Event]
    violations: list[Violation]
    faults: dict[str, int]
    grants: int
    two_holders: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    text: str
    faults: tuple[str, ...]
    nodes: int = 1
    has_permits: bool = False
    has_family: bool = False
    level: int | None = None
    """What is done against failovers, where there are replicas."""
    is_etcd: bool = False

    def plan(self, seed: int) -> Plan:
        return _Drawing(self, seed).plan()

    def run(self, plan: Plan) -> Outcome:
        stage = _stage(plan)
        for fault in plan.faults:
            faults.happen(stage, fault)
        stage.world.at(plan.heals_at, _heal, stage)
        with quietly(), _without_collector():
            stage.run()
        found = violations(
            stage.history,
            may_be_unreachable=True,
            recover_within=_recovery(stage),
            reacts_within=plan.reaction,
            reach=None if plan.quorum is None else stage.reach,
            notifies=self.is_etcd,
            with_others=stage.with_others if isinstance(stage, EtcdStage) else frozenset(),
        )
        excused = (
            0 if plan.copies is None else len(overlaps(stage.history)) - sum(each.rule == "overlap" for each in found)
        )
        return Outcome(plan, stage.history, found, stage.fired, stage.grants, excused)


def _stage(plan: Plan) -> Stage:
    if plan.cluster is not None:
        return EtcdStage(plan)
    return Stage(plan) if plan.copies is None else ReplicatedStage(plan)


_OTHERS = (*faults.OF_PERMITS, *faults.OF_GROUPS, *faults.OF_CLUSTERS)
_OF_LOCKS = tuple(kind for kind in faults.KINDS if kind not in _OTHERS)
_OF_ONE = tuple(kind for kind in _OF_LOCKS if kind not in faults.OF_SEVERAL)
_OF_PERMITS = (*(kind for kind in _OF_ONE if faults.KINDS[kind].target != "lock"), *faults.OF_PERMITS)
_OF_GROUPS = (
    *(k for k in _OF_ONE if faults.KINDS[k].target in ("process", "actor") and not faults.KINDS[k].is_declared),
    *faults.OF_GROUPS,
)  # and no clock that jumps: what two holders are due to shall be the failovers alone
_OF_ETCD = (
    *(k for k in _OF_ONE if faults.KINDS[k].target != "node" and k != "duplicated request"),
    *faults.OF_CLUSTERS,
)  # what HTTP/2 carries does not arrive twice; members have faults of their own
_LEVELS = ("nothing is done against failovers", "grace", "grace and acknowledgements")
SCENARIOS = {
    each.name: each
    for each in [
        Scenario("redis", "one Redis server, a few processes that want the same locks", _OF_ONE),
        Scenario("permits", "semaphores and read/write locks on one Redis server", _OF_PERMITS, has_permits=True),
        Scenario("once", "things done once, min_hold and hand-over on one Redis server", _OF_ONE, has_family=True),
        *(
            Scenario(f"failover-{level}", f"a Redis server with replicas: {text}", _OF_GROUPS, nodes=3, level=level)
            for level, text in enumerate(_LEVELS)
        ),
        Scenario("etcd", "a cluster of etcd, three members: locks, min_hold and hand-over", _OF_ETCD, is_etcd=True),
        Scenario("redlock3", "Redlock on three Redis servers", _OF_LOCKS, nodes=3),
        Scenario("redlock5", "Redlock on five Redis servers", _OF_LOCKS, nodes=5),
    ]
}


class _Drawing:
    """A plan being drawn. What only Redlock needs is drawn from a stream of its own."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._seed = seed
        self._level = scenario.level
        self._is_etcd = scenario.is_etcd
        self._nodes = scenario.nodes if scenario.level is None else 1
        """Those of Redlock; or one, whose replicas are drawn apart."""
        self._more = Chance(seed).fork("redlock")
        self._chance = chance = Chance(seed).fork("plan")
        self._ttls = [
            (ttl := chance.pick(TTLS[scenario.is_etcd :] if self._nodes == 1 else SHORTER_TTLS)),
            ttl * chance.pick((0.4, 1.0, 2.5)),
        ]
        self._spans = chance.between(2.0, 8.0) * max(self._ttls)
        """Seconds in which everything happens."""
        self._timeout = chance.pick(TIMEOUTS if self._nodes == 1 else NODE_TIMEOUTS)
        self._copies = Chance(seed).fork("copies")
        self._goes_on = max(self._ttls) * self._copies.pick((0.1, 0.5, 1.5))
        self._grace = max(self._ttls) + self._goes_on
        if self._level is not None:
            self._spans += 2.0 * self._grace
        self._with_declared = chance.happens(WITH_DECLARED)
        self._declared = [each for each in scenario.faults if faults.KINDS[each].is_declared]
        self._others = [each for each in scenario.faults if not faults.KINDS[each].is_declared]
        self._hosts = [self._host(f"p{number}", chance.between(1e3, 1e6)) for number in range(2 + chance.below(2))]
        self._names = ("job", "other")[: 1 + chance.happens(0.3)]
        self._permits = Chance(seed).fork("permits")
        self._shares = {name: self._share() for name in self._names} if scenario.has_permits else {}
        self._lazy = Chance(seed).fork("lazy")
        self._family = Chance(seed).fork("once")
        self._etcd = Chance(seed).fork("etcd")
        has_family = scenario.has_family or (scenario.is_etcd and self._etcd.happens(0.35))
        has_lazy = not scenario.has_permits and not has_family and not scenario.is_etcd
        self._is_lazy = has_lazy and self._lazy.happens(LAZY)
        self._keeps = {name: self._keep() for name in self._names} if has_family else {}
        self._actors = [f"{host.name}/{letter}" for host in self._hosts for letter in "ab"[: 1 + chance.happens(0.5)]]

    def plan(self) -> Plan:
        items: list[Item] = [errand for actor in self._actors for errand in self._errands(actor)]
        items += [self._fault() for _ in range(3 + self._chance.below(5))]
        items += self._failovers() if self._level is not None else ()
        items += self._of_cluster() if self._is_etcd else ()
        items += [self._last_errand(name) for name in self._names]
        return Plan(
            seed=self._seed,
            items=tuple(items),
            hosts=(*self._hosts, self._host(WITNESS, 0.0)),
            nodes=self._members() if self._is_etcd else self._servers() if self._level is None else self._group(),
            names=self._names,
            request_timeout=self._timeout,
            connect_patience=self._chance.between(1.0, 6.0),
            heals_at=self._spans * 1.5,
            closes_at_once=self._chance.happens(0.5),
            is_warm=self._chance.happens(0.7),
            quorum=self._quorum(items),
            copies=self._copied(),
            cluster=self._cluster() if self._is_etcd else None,
            shares=tuple(self._shares.items()),
            has_family=bool(self._keeps),
        )

    def _keep(self) -> float | None:
        """For how long it is kept that something is done; None: it is a lock."""
        ttl = self._ttls[0]
        seconds = self._family.pick((0.3 * ttl, 2.0 * ttl, 2.0 * self._spans))
        return max(seconds, rules.TTL_MIN) if self._family.happens(0.5) else None

    def _with_family(self, errand: Errand) -> Errand:
        chance, keep = self._family, self._keeps.get(errand.name)
        if not self._keeps:
            return errand
        if keep is not None:
            ending = "fail" if errand.ending == "release" and chance.happens(0.2) else errand.ending
            return errand._replace(keep=keep, writes=False, ending=ending)
        if chance.happens(0.5) and errand.max_hold is None:
            seconds = errand.ttl * chance.pick((0.3, 1.5, 4.0)) * chance.random() + rules.TTL_MIN
            errand = errand._replace(min_hold=seconds)
        if chance.happens(0.35):
            return errand._replace(adopts=errand.ttl * chance.pick((0.0, 0.0, 0.01, 0.5, 1.5)) * chance.random())
        if errand.ending == "release" and chance.happens(0.5):
            detaches = chance.pick(self._ttls)
            return errand._replace(ending="detach", detaches=detaches, dies=chance.happens(0.2))
        return errand

    def _perhaps_lazy(self, errand: Errand) -> Errand:
        """Who is lazy often comes again at once, and does not wait: it must not overtake its own release."""
        chance = self._lazy
        if not self._is_lazy:
            return errand
        if self._nodes == 1 and chance.happens(0.5):
            errand = errand._replace(after=0.0, wait=chance.pick((0.0, 0.0, errand.wait)))
        return errand._replace(is_lazy=chance.happens(0.7))

    def _share(self) -> Share:
        """All of it: a small semaphore, or a read/write lock."""
        if self._permits.happens(0.4):
            return Share("rwlock", RW_LIMIT, RW_LIMIT)
        limit = 1 + self._permits.below(4)
        return Share("semaphore", limit, limit)

    def _with_permits(self, errand: Errand) -> Errand:
        """Some of them. What the register guards is only for who is alone."""
        share, chance = self._shares.get(errand.name), self._permits
        if share is None:
            return errand
        if share.kind == "rwlock":
            writes = chance.happens(0.4)
            share = share._replace(n=RW_LIMIT if writes else 1)
            return errand._replace(share=share, writes=False, downgrades=writes and chance.happens(0.4))
        return errand._replace(share=share._replace(n=1 + chance.below(share.limit)), writes=False)

    def _host(self, name: str, offset: float) -> Host:
        chance = self._chance
        rate = chance.between(1.0 - RATE_PROMISED, 1.0 + RATE_PROMISED)
        wall = NOW + self._more.pick(WALLS) * self._more.between(-1.0, 1.0)
        return Host(name, offset, rate, shares=chance.happens(0.5), wall=wall)

    def _servers(self) -> tuple[Host, ...]:
        if self._nodes == 1:
            return (self._host("node", NOW),)
        off = self._more.pick(NODE_CLOCKS)
        return tuple(self._host(f"n{number}", NOW + off * self._more.random()) for number in range(self._nodes))

    def _copied(self) -> Copies | None:
        if self._level is None:
            return None
        return Copies(self._level, max(self._ttls), self._goes_on, self._copies.happens(0.8))

    def _group(self) -> tuple[Host, ...]:
        """A primary and one or two replicas."""
        off = self._copies.pick(MEMBER_CLOCKS)
        names = ("primary", "replica1", "replica2")[: 2 + self._copies.below(2)]
        return tuple(self._host(name, NOW + off * self._copies.random()) for name in names)

    def _members(self) -> tuple[Host, ...]:
        return tuple(self._host(f"m{number}", 1e3 * self._etcd.random()) for number in range(ETCD_MEMBERS))

    def _cluster(self) -> Members:
        chance = self._etcd
        endpoints = tuple((host.name, self._known_members()) for host in self._hosts)
        return Members(chance.below(ETCD_MEMBERS), 1 + chance.happens(0.3), chance.happens(0.5), endpoints)

    def _known_members(self) -> tuple[int, ...]:
        """All, from any of them on; or one."""
        first = self._etcd.below(ETCD_MEMBERS)
        places = [(first + number) % ETCD_MEMBERS for number in range(ETCD_MEMBERS)]
        return tuple(places[:1] if self._etcd.happens(0.1) else places)

    def _of_cluster(self) -> list[Fault]:
        """Some more, and for longer than a lease lasts."""
        chance = self._etcd
        kinds = [*(kind for kind in faults.OF_CLUSTERS if kind in self._others), "leader's disk stalled"]
        found = list[Fault]()
        for _ in range(1 + chance.below(3)):
            at = self._spans * 0.6 * chance.random()
            lasts = (
                (max(self._ttls) + LOOKS_EVERY + 2.0 * ELECTION) * chance.pick((0.1, 0.5, 1.5, 3.0)) * chance.random()
            )
            found.append(Fault(chance.pick(kinds), at, min(lasts, self._spans * 1.5 - at), "", chance.random()))
        return found

    def _failovers(self) -> list[Fault]:
        """One or two, and something that is in the way of the stream, so that they lose something."""
        chance, found = self._copies, list[Fault]()
        for _ in range(1 + chance.happens(0.5)):
            at = self._spans * 0.4 * chance.random()
            lasts = chance.pick((self._goes_on, self._grace, 3.0 * self._grace)) * chance.between(0.3, 1.0)
            if chance.happens(0.8):
                early = min(at, max(self._ttls) * chance.random())
                found.append(self._of_group("replication held", at - early, early + lasts * chance.random()))
            found.append(self._of_group(chance.pick(FAILOVERS), at, lasts))
        return found

    def _of_group(self, kind: str, at: float, lasts: float) -> Fault:
        return Fault(kind, at, min(lasts, self._spans * 1.5 - at), "", self._copies.random())

    def _quorum(self, items: Sequence[Item]) -> Quorum | None:
        if self._nodes == 1:
            return None
        has_grace = self._more.happens(0.8)
        longest = max(max(each.ttl, each.extends or 0.0) for each in items if isinstance(each, Errand))
        return Quorum(longest if has_grace else 0.0, self._more.happens(0.6))

    def _some_nodes(self) -> tuple[int, ...]:
        """One of them, sometimes two, sometimes all."""
        if self._nodes == 1:
            return ()
        places = list(range(self._nodes))
        how_many = self._more.pick((1, 1, 1, 1, 2, 2, 3, self._nodes))
        return tuple(sorted(places.pop(self._more.below(len(places))) for _ in range(min(how_many, self._nodes))))

    def _errands(self, actor: str) -> Iterator[Errand]:
        """Fewer where each costs more."""
        least = 1 if self._nodes == 5 else 3 if self._level is None else 5
        for _ in range(least + self._chance.below(3)):
            yield self._with_family(self._with_permits(self._perhaps_lazy(self._errand(actor))))

    def _errand(self, actor: str) -> Errand:
        chance = self._chance
        ttl = chance.pick(self._ttls)
        return Errand(
            actor=actor,
            name=chance.pick(self._names),
            after=self._spans * 0.25 * chance.random() * chance.random(),
            ttl=ttl,
            wait=chance.pick((None, None, 0.0, ttl * chance.random(), 4.0 * ttl * chance.random())),
            renews=chance.happens(0.7),
            max_hold=ttl * 4.0 * chance.random() + rules.TTL_MIN if chance.happens(0.1) else None,
            works=ttl * chance.pick((0.01, 0.2, 0.8, 4.0)) * chance.random(),
            heeds=chance.happens(0.7),
            looks=1 + chance.below(3),
            writes=chance.happens(0.5),
            extends=chance.pick(self._ttls) if chance.happens(0.25) else None,
            ending="drop" if chance.happens(0.08) else "release",
        )

    def _last_errand(self, name: str) -> Errand:
        last = self._errand(f"{WITNESS}/{name}")
        return last._replace(
            name=name,
            after=(self._spans * 1.5 + (AFTER if self._is_etcd else 0.0)) * (1.0 + rules.CLOCK_RATES),  # all is healed
            wait=None,
            renews=True,
            max_hold=None,
            ending="release",
            share=self._shares.get(name),
            keep=self._keeps.get(name),
            writes=not self._shares and last.writes,
        )

    def _fault(self) -> Fault:
        chance = self._chance
        is_declared = self._with_declared and chance.happens(0.4) and bool(self._declared)
        kind = chance.pick(self._declared if is_declared else self._others)
        if self._nodes > 1 and self._more.happens(FORGETFUL):
            kind = "memory lost"
        at = self._spans * 0.6 * chance.random()
        lasts = chance.pick((self._timeout, *self._ttls)) * 2.0 * chance.random()
        target = {
            "process": chance.pick(self._hosts).name,
            "actor": chance.pick(self._actors),
            "lock": chance.pick(self._names),
            "node": "",
            "group": "",
            "cluster": "",
        }[faults.KINDS[kind].target]
        if faults.KINDS[kind].is_out_of_reach:
            lasts = min(lasts, OUT_OF_REACH_MOST)
        nodes = self._some_nodes() if faults.KINDS[kind].at_nodes else ()
        if self._is_etcd and faults.KINDS[kind].at_nodes:
            nodes = self._etcd.pick(((), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2)))
        return Fault(kind, at, min(lasts, self._spans * 1.5 - at), target, chance.random(), nodes)


def _heal(stage: Stage) -> None:
    stage.network.disarm()
    if not stage.fired:
        return
    if isinstance(stage, EtcdStage):  # there may be an election
        stage.world.at(stage.world.now + AFTER, stage.note, WORLD, ANY, "healed")
    else:
        stage.note(WORLD, ANY, "healed")


def _recovery(stage: Stage) -> float:
    """A lease runs out, then the places of those who are gone; each of these may be handed the lock once more."""
    plan = stage.plan
    if plan.quorum is not None:
        # A node that came back empty does not vote for a while; who waits comes again after a second at most.
        lost = plan.longest_ttl * (1 + rules.CLOCK_RATES) + plan.quorum.grace * (1 + rules.CLOCK_RATES)
        return lost + stage.longest_put_back + 10.0 * plan.request_timeout + 5.0
    if isinstance(stage, EtcdStage):
        return _recovery_of_etcd(plan)
    grace = stage.grace * (1 + rules.CLOCK_RATES) if isinstance(stage, ReplicatedStage) else 0.0
    lost = grace + rules.WAITER_WINDOW + plan.longest_ttl * (1 + rules.CLOCK_RATES)
    gone = len(stage.actors) * min(plan.longest_ttl, rules.WAITER_WINDOW)
    return (
        lost
        + gone
        + plan.longest_kept * (1 + rules.CLOCK_RATES)
        + stage.longest_put_back
        + 10.0 * plan.request_timeout
        + 2.0
    )


def _recovery_of_etcd(plan: Plan) -> float:
    """A lease may have been counted anew by a leader that was elected last, and its revocation may be lost once. Then
    those who wait read again, at their own pace (`watching.again_in`)."""
    longest = max(plan.longest_ttl, plan.longest_kept) + 1.0 + ELECTION
    lost = 2.0 * (longest * (1 + rules.CLOCK_RATES) + LOOKS_EVERY + RETRY)
    pace = min(SLOW_PACE, plan.longest_ttl / 3.0) * (1 + rules.CLOCK_RATES)
    return lost + ELECTION + pace + 10.0 * plan.request_timeout + 2.0


@contextmanager
def _without_collector() -> Iterator[None]:
    """What is in a cycle dies when the collector finds it, and that is no moment that the seed decides."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
