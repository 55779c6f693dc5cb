"""Gripfast's own locks: the production code in the simulation, and how much was searched without finding anything.

Not all of them are simulated: `NOT_HERE` tells readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from gripfast_lab.engines.members import Members
from gripfast_lab.engines.redis import Alone
from gripfast_lab.model import Lab
from gripfast_lab.protocols import etcd, permits, rules
from gripfast_lab.sim.explore import EXPLORATIONS, explore
from gripfast_lab.sim.runner import collector_off, ran_seed, rules_of, scenarios
from gripfast_lab.world import CRASH, JOB, LOST_REPLY, PAUSE, PERMIT, SLOW, Protocol


class Searched(NamedTuple):
    where: str
    number: int
    unit: str
    """States, of all there are in a small world; or seeds, of a large one."""
    wrong: str = ""


Search = Callable[[], Searched]


@dataclass(frozen=True)
class Own:
    name: str
    title: str
    text: str
    searches: tuple[Search, ...]

    def searched(self) -> Iterator[Searched]:
        for search in self.searches:
            yield search()


def _states(name: str) -> Searched:
    report = EXPLORATIONS[name]()
    return Searched(name, report.states, "states", "; ".join(str(found) for found in report.violations))


def _seeds(scenario: str, count: int) -> Searched:
    staged = scenarios()[scenario]
    with collector_off():
        for seed in range(count):
            if rules := rules_of(ran_seed(staged, seed)):
                return Searched(scenario, seed + 1, "seeds", f"seed {seed} breaks: {', '.join(rules)}")
    return Searched(scenario, count, "seeds")


def _protocol(name: str) -> Searched:
    report = explore(Lab(name, (RELATIVES | ETCD)[name]()))
    return Searched(name, report.states, "states", "; ".join(found.what for found in report.violations))


def _explored(*names: str) -> tuple[Search, ...]:
    return tuple(partial(_states, name) for name in names)


_FAULTS = {CRASH: 1, SLOW: 1, LOST_REPLY: 1}
RELATIVES: dict[str, Callable[[], Protocol]] = {
    "semaphore": lambda: Protocol(
        rules.leased_permit, Alone(), ("A", "B", "C"), _FAULTS, words=PERMIT, limit=permits.LIMIT
    ),
    "once": lambda: Protocol(rules.recorded, Alone(), faults=_FAULTS, words=JOB, is_once=True),
    "hand-over": lambda: Protocol(rules.adopted, Alone(), ("web", "worker1", "worker2"), _FAULTS, has_roles=True),
}
"""The rules of some of Gripfast's relatives of locks, in worlds like those in which others break."""

_STALLS = {"stalled disk": 1, CRASH: 1, PAUSE: 1}
ETCD: dict[str, Callable[[], Protocol]] = {
    "at-the-leader": lambda: Protocol(etcd.moves_to_a_new_lease, Members({"A": "m1"}), faults=_STALLS),
    "at-a-follower": lambda: Protocol(etcd.moves_to_a_new_lease, Members(), faults=_STALLS),
    "queue": lambda: Protocol(
        etcd.looks_at_its_own_key, Members(kept=True), ("A", "B", "C"), faults={PAUSE: 1, CRASH: 1}
    ),
}
"""The rules of Gripfast's lock on etcd, in the worlds in which others break."""

NOT_HERE = (
    "Gripfast's stores for SQL, ZooKeeper and one machine are not simulated. Their tests pause, kill and cut off"
    " real servers and processes (`make chaos`), and check the histories by the same rules."
)

OWN = (
    Own(
        "gripfast-redis",
        "Gripfast on one Redis server",
        "This is the production code. The search tries every order of the messages of two clients (three in `queue`),"
        " within bounds. `claims` and `expiry` have only slow messages. In the other worlds one fault happens: any"
        " kind in `faults`, a lost message in `hand-off`, a cancelled caller in `cancelled`, a pause in `paused`, and"
        " a process that dies in `queue`. Seeds are large random worlds with many faults. Gripfast does not claim to"
        " survive a clock that jumps or a server that forgets. After such a fault, a lease that it affects may"
        " overlap another one or be lost early. This is not counted as a violation; everything else is.",
        (
            *_explored("claims", "faults", "hand-off", "cancelled", "expiry", "paused", "queue"),
            partial(_seeds, "redis", 400),
        ),
    ),
    Own(
        "gripfast-replicas",
        "Gripfast on a Redis server with replicas",
        "This is the production code. `failover` searches every history of two and three servers with up to two"
        " failovers, for each level: with a grace, no two clients hold the lock if the primary crashes; with a grace"
        " and acknowledgements, not even if the old primary goes on. It counts as a violation if the search says"
        " anything else. Seeds are large random worlds, where primaries crash, are cut off, paused and failed back, and"
        " replicas lag. In `failover-1`, two holders are a violation unless an old primary goes on for longer than"
        " `failover_grace`; in `failover-2` they always are.",
        (*_explored("failover"), partial(_seeds, "failover-1", 60), partial(_seeds, "failover-2", 60)),
    ),
    Own(
        "gripfast-redlock",
        "Gripfast's Redlock",
        "This is the production code, on three and five nodes. Some nodes are down, silent, restarted empty or cut"
        " off, and clients pause and die. An overlap after a clock has jumped is not counted as a violation. An"
        " overlap after a node has come back empty is counted.",
        (partial(_seeds, "redlock3", 100), partial(_seeds, "redlock5", 100)),
    ),
    Own(
        "gripfast-rules",
        "The rules of Gripfast's Redlock",
        "Here the search visits every state of two small models of the rules. It does not run the code itself. The"
        " token model (`fence`, `fence-order`) has three nodes, and at most two attempts at the same time. It trusts"
        " no clock: any lock may expire at any moment, and messages come late, twice or never. In the exclusion model"
        " (`fence-time`), clocks are as accurate as Gripfast assumes, and a node loses all its data.",
        _explored("fence", "fence-order", "fence-time"),
    ),
    Own(
        "gripfast-etcd",
        "Gripfast on etcd",
        "`etcd` searches every order in which the transactions of the production code can take effect, for two clients:"
        " each request may arrive late or never, and each lease may be revoked at any time after it is over. Seeds run"
        " the production code in large random worlds with three members. Their disks stall, leaders change, members are"
        " paused, killed and cut off, and they answer keep-alives and reads that are not true any more. The other"
        " worlds are those of the three locks on etcd above, with Gripfast's rules: a renewal moves the key to a new"
        " lease (`at-the-leader`, `at-a-follower`), and a waiter looks at its own key (`queue`).",
        (*_explored("etcd"), *(partial(_protocol, name) for name in ETCD), partial(_seeds, "etcd", 100)),
    ),
    Own(
        "gripfast-permits",
        "Gripfast's semaphores and read/write locks",
        "This is the production code, on one Redis server, in large random worlds with many faults. After each run a"
        " checker looks at what every client believed: never more permits than the limit, no slot twice, and nobody"
        " overtaken in the queue.",
        (partial(_seeds, "permits", 100),),
    ),
    Own(
        "gripfast-relatives",
        "The rules of Gripfast's semaphore, run-once and hand-over",
        "Here the search visits every state of three short protocols, in worlds like those above. They are the rules,"
        " and not the code: a permit is a lease with an expiry of its own (`semaphore`); what is done is recorded where"
        " the lock was, in one step (`once`); an adopter replaces the owner of the lock (`hand-over`). A client"
        " crashes, a client is slow, and an answer is lost. Work counts as done when it is recorded: if a client"
        " crashes between the work and its record, the work is done again, and no protocol can prevent that.",
        tuple(partial(_protocol, name) for name in RELATIVES),
    ),
)
