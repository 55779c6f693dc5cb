"""Everything of one run: made from a plan, run to its end, tidied up, and looked over for what was left behind."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gripfast.core import rules
from gripfast.core.lease import LeaseState
from gripfast.core.ledger import Entry, Ledger, Mark
from gripfast.core.ports import Store
from gripfast.core.redlock.ballot import majority
from gripfast.core.redlock.records import Records
from gripfast.core.redlock.store import RedlockStore
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis import protocol
from gripfast.stores.redis.grace import Grace
from gripfast.stores.redis.keys import MARK, MARKER
from gripfast.stores.redis.permit_parts import SLACK_MS
from gripfast.stores.redis.scripts import LINE_MS
from gripfast.stores.redis.store import RedisStore
from gripfast.stores.redlock.protocol import Wording
from gripfast_lab.sim.actors import Actor
from gripfast_lab.sim.chance import Chance
from gripfast_lab.sim.clocks import Clock
from gripfast_lab.sim.handing import Board, FamilyActor
from gripfast_lab.sim.history import ANY, WORLD, Event, Kind
from gripfast_lab.sim.network import Network
from gripfast_lab.sim.plan import Host, Plan
from gripfast_lab.sim.processes import Process
from gripfast_lab.sim.reach import Reach
from gripfast_lab.sim.redis.kept import KeptNode, KeptObserver
from gripfast_lab.sim.redis.link import LendingLink, Place, SimLink, SimServer
from gripfast_lab.sim.redis.node import Node
from gripfast_lab.sim.redis.nodes import Around, LendingNodes, SimNodes
from gripfast_lab.sim.redis.observer import Observer
from gripfast_lab.sim.redis.permits import LIVES_ON, PermitNode, PermitObserver
from gripfast_lab.sim.redis.voter import BIRTH, VoteObserver, Voter
from gripfast_lab.sim.register import Register
from gripfast_lab.sim.runtime import Runtime
from gripfast_lab.sim.sharing import PermitActor
from gripfast_lab.sim.world import World

KEEPALIVE = 30.0
"""Seconds after which a node hears that a machine is gone."""
NO_END = 3600.0
"""Seconds after which a run that has not ended by itself is over."""
CLOSING = 60.0
STAY = (BIRTH, MARKER)
"""Keys that are left on purpose."""
CLEANS_WITHIN = 0.02
"""Seconds in which a clean-up that nobody waits for has arrived at each of several nodes, if nothing is in its way."""
_DECLARED = ("forgot", "jumped")
_ROUNDING = 1e-6


class Stage:
    has_forgotten = False
    """A node has lost its memory before."""
    has_declared = False
    """A declared fault has happened."""
    nodes: Sequence[Node]

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._doubled: set[str] = set()
        """Processes of which a request came twice."""
        self._chased: dict[str, None] = {}
        """Owners whose claims a clean-up had to follow."""
        self.world = World()
        self.history: list[Event] = []
        self.fired: dict[str, int] = {}
        self.grants = 0
        self.put_back = [0.0] * len(plan.nodes)
        """Seconds by which each node's clock was put back in all: its leases live longer by that."""
        self.has_gone_far: dict[int, bool] = {}
        self.needed = majority(len(plan.nodes))
        self.reach = Reach(len(plan.nodes), self.needed)
        self._entered: dict[str, float] = {}
        self.board = Board()
        chance = Chance(plan.seed)
        self.network = Network(self.world, chance.fork("network"))
        self.nodes = [self._node(host) for host in plan.nodes]
        if plan.quorum is not None and plan.quorum.grace and not plan.quorum.is_established:
            for place in range(len(plan.nodes)):
                self.reach.abstains(0.0, math.inf, place)
        self.walls = {host.name: Clock(host.wall, host.rate) for host in plan.hosts}
        self.processes = {host.name: Process(self.world, host.name, clock_of(host)) for host in plan.hosts}
        self.runtimes = {host.name: self._client(host) for host in plan.hosts}
        registers = {name: Register(self.world, name, chance.fork(name), self.note) for name in plan.names}
        self.actors = {
            name: self._actor(name, registers) for name in dict.fromkeys(each.actor for each in plan.errands)
        }

    def run(self) -> None:
        """Until everyone is done, and then until every client is closed."""
        for actor in self.actors.values():
            actor.start()
        self.world.at(self.plan.heals_at, self.look_whether_over)
        self.world.run(NO_END)
        if not self.plan.closes_at_once:
            self.world.run(self.world.now + self._forgotten_within())
            self._look_over_ledgers()
        for runtime in self.runtimes.values():
            runtime.process.do(self.close, runtime)
        self.world.run(self.world.now + CLOSING)
        self._look_over()

    def note(self, who: str, name: str, kind: Kind, **more: Any) -> None:
        self.history.append(Event(self.world.now, who, name, kind, **more))
        if kind in _DECLARED:
            self.has_declared = True
        if kind in ("handed", "freed") and who in self.board.owners:
            self._look_whether_it_may(who, name, kind)
        if kind == "granted":
            self.grants += 1
            self._compare(who, name, more["until"])
            self._ask_rivals(who, name)
        elif kind == "held":
            self._compare(who, name, more["until"])

    def fault(
        self, kind: str, target: str = WORLD, note: str = "", lasts: float = 0.0, nodes: Sequence[int] = ()
    ) -> None:
        """One has happened; `nodes`: if not to all of them."""
        self.fired[kind] = self.fired.get(kind, 0) + 1
        if kind == "duplicated request":
            self._doubled.add(target)
        where = [self.nodes[node].name for node in nodes]
        text = " ".join(filter(None, [kind, note, *where]))
        self.note(target or WORLD, ANY, "fault", until=self.world.now + lasts, note=text)

    def close(self, runtime: Runtime) -> None:
        """A client; once."""
        if not runtime.is_closed:
            runtime.is_closed = True
            runtime.process.start(f"{runtime.process.name}/closes", runtime.close())

    def kill(self, process: Process, with_machine: bool) -> None:
        process.die()
        self.note(f"{process.name}/", ANY, "died")
        for connection in self.network.of(process):
            if with_machine:
                connection.vanish()
                self.world.at(self.world.now + KEEPALIVE, connection.peer.hung_up, connection)
            else:
                connection.hang_up()

    @property
    def longest_put_back(self) -> float:
        """For a majority: nobody has to wait for the rest."""
        return sorted(self.put_back)[self.needed - 1]

    def _node(self, host: Host) -> Node:
        quorum = self.plan.quorum
        if self.plan.shares:
            seen = PermitObserver(lambda: self.world.now, self.note)
            seen.kinds = {name: share.kind for name, share in self.plan.shares}
            node: Node = PermitNode(self.world, host.name, clock_of(host), seen, seen.kinds)
        elif self.plan.has_family:
            kept = KeptObserver(lambda: self.world.now, self.note)
            node = KeptNode(self.world, host.name, clock_of(host), kept)
        elif quorum is None:
            node = Node(self.world, host.name, clock_of(host), Observer(lambda: self.world.now, self.note))
        else:
            observer = VoteObserver(lambda: self.world.now, self.note, host.name)
            node = voter = Voter(self.world, host.name, clock_of(host), observer, quorum.grace)
            if quorum.is_established:
                voter.establish()
        if self.plan.is_warm:
            node.warm_up()
        return node

    def _client(self, host: Host) -> Runtime:
        process, timeout = self.processes[host.name], self.plan.request_timeout
        store, aside = self._store_of_one(host) if self.plan.quorum is None else self._store_of_several(host)
        return Runtime(process, store, aside, timeout, self.plan.connect_patience, self._ledger(process))

    def _ledger(self, process: Process) -> Callable[[Callable[[Mark], None]], Ledger]:
        return partial(_Ledger, self._enters, partial(self._struck_off, process))

    def _store_of_one(self, host: Host) -> tuple[Store, Store | None]:
        if not host.shares:
            return RedisStore(LendingLink(self._place(host)), self._grace(host)), None
        link, grace = SimLink(self._place(host)), self._grace(host)
        lends = LendingLink(self._place(host), idle_most=0, clean_up=link.clean_up)
        return RedisStore(link, grace), RedisStore(lends, grace)

    def _grace(self, host: Host) -> Grace | None:
        """What a client knows about the grace of its server, where there is one."""
        return None

    def _place(self, host: Host) -> Place:
        server = SimServer(self.nodes[0].name, self.plan.request_timeout, self._chased)
        return Place(self.network, self.processes[host.name], partial(self._found_by, host), server, Inboxes())

    def _found_by(self, host: Host) -> Node:
        """The node that a process connects to now."""
        return self.nodes[0]

    def _store_of_several(self, host: Host) -> tuple[Store, Store | None]:
        quorum, process, wall = self.plan.quorum, self.processes[host.name], self.walls[host.name]
        assert quorum is not None
        card = protocol.card(None, host.name, 1)
        wording = Wording(quorum.grace, lambda _: card)
        chance = Chance(self.plan.seed).fork(f"pauses {host.name}")
        records = Records()

        def wall_us() -> int:
            return int(wall.read(self.world.now) * 1_000_000)

        def around() -> Around:
            timeout = self.plan.request_timeout
            return Around(self.network, process, self.nodes, timeout, wording, wall_us, chance.random, self._chased)

        if not host.shares:
            return RedlockStore(LendingNodes(around()), records), None
        main = SimNodes(around())
        return RedlockStore(main, records), RedlockStore(LendingNodes(around(), main), records)

    def _actor(self, name: str, registers: dict[str, Register]) -> Actor:
        errands = [errand for errand in self.plan.errands if errand.actor == name]
        runtime, done = self.runtimes[name.partition("/")[0]], self.look_whether_over
        if self.plan.shares:
            sharer = PermitActor(name, runtime, errands, registers, self.note, done)
            sharer.limit_of = self._limit_of
            return sharer
        if not self.plan.has_family:
            return Actor(name, runtime, errands, registers, self.note, done)
        actor = FamilyActor(name, runtime, errands, registers, self.note, done)
        actor.board, actor.kill = self.board, self.kill
        return actor

    def _limit_of(self, name: str) -> int | None:
        """What a program would be told that it is; None: whatever the program was made with."""
        node = self.nodes[0]
        return node.limit_of(name) if isinstance(node, PermitNode) else None

    def _compare(self, who: str, name: str, until: float) -> None:
        """Whether enough nodes keep the lock for as long as its holder is told."""
        owner = self.actors[who].owner()
        kept_until = sorted([node.keeps_until(name, owner) for node in self.nodes])[-self.needed]
        if until > kept_until + _ROUNDING:
            self.note(who, name, "outlived", until=kept_until)

    def _struck_off(self, process: Process, name: str, owner: str) -> None:
        """A ledger has lost sight of this owner: soon nothing of it may be left at any node."""
        within = self.plan.reaction if self.plan.quorum is None else CLEANS_WITHIN
        self.world.at(self.world.now + within, self._look_for, process, name, owner)

    def _look_for(self, process: Process, name: str, owner: str) -> None:
        """Not if a clean-up had to follow a claim that was not answered: nobody waits for its reply, and if it is lost,
        what the claim got is kept until its time is over. Nor if a claim may have come twice, the second time after
        its release."""
        if process.is_dead or self.has_declared or owner in self._chased or process.name in self._doubled:
            return
        if owner in self.board.owners:
            return
        for place in self._asked():
            node = self.nodes[place]
            if node.has(name, owner) and not self._may_have_missed(process, place, owner):
                self.note(node.name, name, "left", note=f"a lock or queue entry of {owner}, which no client knows")

    def _asked(self) -> Sequence[int]:
        """The nodes that requests go to."""
        return range(len(self.nodes))

    def _look_whether_it_may(self, owner: str, name: str, kind: Kind) -> None:
        """Only for as long as it takes the clean-up behind it, or if its claim comes twice."""
        if owner not in self._chased and owner.partition("/")[0] not in self._doubled:
            self.note(owner, name, "returned", note=kind)

    def _enters(self, owner: str) -> None:
        self._entered[owner] = self.world.now

    def _may_have_missed(self, process: Process, node: int, owner: str) -> bool:
        """Whether a clean-up that nobody waits for may have been lost. A single node is always waited for."""
        if self.plan.quorum is None:
            return False
        since = self._entered[owner] - self.plan.reaction
        return not self.reach.is_free(process.name, node, since, self.world.now)

    def _ask_rivals(self, who: str, name: str) -> None:
        """Whether anyone else believes to hold it, at the moment of a grant."""
        for actor in self.actors.values():
            if actor.name != who and not actor.process.is_dead and (state := actor.holds(name)) is not None:
                actor.tell_held(state)

    def look_whether_over(self) -> None:
        """Everyone who lives is done, and the faults are over."""
        if self.world.now >= self.plan.heals_at:
            self.world.is_over = all(actor.is_over or actor.process.is_dead for actor in self.actors.values())

    def _forgotten_within(self) -> float:
        return rules.forgotten_at(0.0, self.plan.longest_ttl) * 1.1 + self.longest_put_back

    def _look_over_ledgers(self) -> None:
        for runtime in self.runtimes.values():
            # One that was closed has tried once, and left the rest to the ttl.
            if not runtime.process.is_dead and not runtime.is_closed:
                for mark in runtime.env.ledger.marks():
                    self.note(runtime.process.name, ANY, "left", note=f"ledger entry {mark.owner}")

    def _look_over(self) -> None:
        for process in self.processes.values():
            if not process.is_dead:
                self._look_over_process(process)
        put_back = max(self.put_back) * (1.0 + rules.CLOCK_RATES)
        kept = self.plan.longest_kept * (1.0 + rules.CLOCK_RATES)
        line = LINE_MS / 1000 * (1.0 + rules.CLOCK_RATES)
        self.world.now += self._forgotten_within() + line + kept + put_back
        self._look_for_keys(but=(MARK + b"token", *LIVES_ON))
        # One of several accepts tokens of up to a day ahead of its clock, which may be a day ahead of others', and all
        # keep them for a day from then on.
        days = 1 if self.plan.quorum is None else 4
        self.world.now += days * rules.TOKEN_MEMORY_US / 1e6 * (1.0 + rules.CLOCK_RATES) + kept + put_back
        if self.plan.shares:
            self.world.now += SLACK_MS / 1000 * (1.0 + rules.CLOCK_RATES)
        self._look_for_keys()

    def _look_over_process(self, process: Process) -> None:
        for task in process.tasks:
            self.note(process.name, ANY, "left", note=f"task {task.name}")
        for _ in self.network.of(process):
            self.note(process.name, ANY, "left", note="connection")
        for name in self.plan.names:
            for place, node in enumerate(self.nodes):
                for owner in node.holders(name):
                    is_its = owner.startswith(f"{process.name}/") and owner not in self._chased
                    is_its = is_its and owner not in self.board.owners
                    if not is_its or self.has_declared or process.name in self._doubled:
                        continue
                    if not self._may_have_missed(process, place, owner):
                        self.note(process.name, name, "left", note=f"lock of {owner}")

    def _look_for_keys(self, but: Sequence[bytes] = ()) -> None:
        for node in self.nodes:
            for key in node.server.database.keys():  # noqa: SIM118 - it is no dict
                if key not in STAY and not any(each in key for each in but):
                    self.note(node.name, ANY, "left", note=f"key {key!r}")


class _Ledger(Ledger):
    """One that tells what it enters, and what it strikes off."""

    def __init__(
        self, enters: Callable[[str], None], struck_off: Callable[[str, str], None], drop: Callable[[Mark], None]
    ) -> None:
        super().__init__(drop)
        self._enters = enters
        self._struck_off = struck_off

    def enter(self, state: LeaseState, entry: Entry = False) -> Mark:
        self._enters(state.owner)
        return super().enter(state, entry)

    def confirm_gone(self, owner: str) -> None:
        mark = self._marks.get(owner)
        super().confirm_gone(owner)
        if mark is not None:
            self._struck_off(mark.name, owner)


def clock_of(host: Host) -> Clock:
    return Clock(host.offset, host.rate)
