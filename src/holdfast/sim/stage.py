"""Everything of one run: made from a plan, run to its end, tidied up, and looked over for what was left behind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.core import rules
from holdfast.core.ledger import Ledger, Mark
from holdfast.sim.actors import Actor
from holdfast.sim.chance import Chance
from holdfast.sim.clocks import Clock
from holdfast.sim.history import ANY, WORLD, Event, Kind
from holdfast.sim.network import Network
from holdfast.sim.plan import Host, Plan
from holdfast.sim.processes import Process
from holdfast.sim.redis.link import LendingLink, SharedLink
from holdfast.sim.redis.node import Node
from holdfast.sim.redis.observer import Observer
from holdfast.sim.register import Register
from holdfast.sim.runtime import Runtime
from holdfast.sim.world import World
from holdfast.stores.redis.keys import MARK
from holdfast.stores.redis.store import RedisStore

PREFIX = "lock:"
KEEPALIVE = 30.0
"""Seconds after which a node hears that a machine is gone."""
NO_END = 3600.0
"""Seconds after which a run that has not ended by itself is over."""
CLOSING = 60.0
_DECLARED = ("forgot", "jumped")
_ROUNDING = 1e-6


class Stage:
    has_forgotten = False
    """The node has lost its memory before."""
    has_declared = False
    """A declared fault has happened."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._chased: dict[str, None] = {}
        """Owners whose claims a clean-up had to follow."""
        self.world = World()
        self.history: list[Event] = []
        self.fired: dict[str, int] = {}
        self.grants = 0
        self.put_back = 0.0
        """Seconds by which the node's clock was put back in all: its leases live longer by that."""
        chance = Chance(plan.seed)
        self.network = Network(self.world, chance.fork("network"))
        self.node = Node(self.world, "node", _clock(plan.node), Observer(lambda: self.world.now, self.note, PREFIX))
        if plan.is_warm:
            self.node.warm_up()
        self.processes = {host.name: Process(self.world, host.name, _clock(host)) for host in plan.hosts}
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
        if kind == "granted":
            self.grants += 1
            self._compare(who, name, more["until"])
            self._ask_rivals(who, name)
        elif kind == "held":
            self._compare(who, name, more["until"])

    def fault(self, kind: str, target: str = WORLD, note: str = "", lasts: float = 0.0) -> None:
        """One has happened."""
        self.fired[kind] = self.fired.get(kind, 0) + 1
        self.note(target or WORLD, ANY, "fault", until=self.world.now + lasts, note=f"{kind} {note}".strip())

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
                self.world.at(self.world.now + KEEPALIVE, self.node.hung_up, connection)
            else:
                connection.hang_up()

    def _client(self, host: Host) -> Runtime:
        process, timeout = self.processes[host.name], self.plan.request_timeout
        aside = None
        if host.shares:
            link: SharedLink | LendingLink = SharedLink(self.network, process, self.node, timeout)
            lends = LendingLink(self.network, process, self.node, timeout, idle_most=0, chase=link.chase)
            aside = RedisStore(lends, PREFIX)
        else:
            link = LendingLink(self.network, process, self.node, timeout)
        link.chased = self._chased
        ledger = partial(_Ledger, partial(self._struck_off, process))
        return Runtime(process, RedisStore(link, PREFIX), aside, timeout, self.plan.connect_patience, ledger)

    def _actor(self, name: str, registers: dict[str, Register]) -> Actor:
        errands = [errand for errand in self.plan.errands if errand.actor == name]
        return Actor(name, self.runtimes[name.partition("/")[0]], errands, registers, self.note, self.look_whether_over)

    def _compare(self, who: str, name: str, until: float) -> None:
        """Whether the node keeps the lock for as long as its holder is told."""
        kept_until = self.node.keeps_until(PREFIX + name, self.actors[who].owner())
        if until > kept_until + _ROUNDING:
            self.note(who, name, "outlived", until=kept_until)

    def _struck_off(self, process: Process, name: str, owner: str) -> None:
        """A ledger has lost sight of this owner: soon nothing of it may be left at the node."""
        self.world.at(self.world.now + self.plan.reaction, self._look_for, process, name, owner)

    def _look_for(self, process: Process, name: str, owner: str) -> None:
        """Not if a clean-up had to follow a claim that was not answered: nobody waits for its reply, and if it is lost,
        what the claim got is kept until its time is over. Nor if a claim may have come twice, the second time after
        its release."""
        if process.is_dead or self.has_declared or owner in self._chased or "duplicated request" in self.fired:
            return
        if self.node.has(PREFIX + name, owner):
            self.note(self.node.name, name, "left", note=f"something of {owner}, of which nobody knows any more")

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
        return rules.forgotten_at(0.0, self.plan.longest_ttl) * 1.1 + self.put_back

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
        self.world.now += self._forgotten_within()
        self._look_for_keys(but=MARK + b"token")
        self.world.now += rules.TOKEN_MEMORY_US / 1e6 * (1.0 + rules.CLOCK_RATES) + self.put_back
        self._look_for_keys()

    def _look_over_process(self, process: Process) -> None:
        for task in process.tasks:
            self.note(process.name, ANY, "left", note=f"task {task.name}")
        for _ in self.network.of(process):
            self.note(process.name, ANY, "left", note="connection")
        for name in self.plan.names:
            owner = self.node.holder(PREFIX + name)
            is_its = owner.startswith(f"{process.name}/") and owner not in self._chased
            if is_its and not self.has_declared and "duplicated request" not in self.fired:
                self.note(process.name, name, "left", note=f"lock of {owner}")

    def _look_for_keys(self, but: bytes | None = None) -> None:
        for key in self.node.server.database.keys():  # noqa: SIM118 - it is no dict
            if but is None or but not in key:
                self.note(self.node.name, ANY, "left", note=f"key {key!r}")


class _Ledger(Ledger):
    """One that tells what it strikes off."""

    def __init__(self, struck_off: Callable[[str, str], None], drop: Callable[[Mark], None]) -> None:
        super().__init__(drop)
        self._struck_off = struck_off

    def confirm_gone(self, owner: str) -> None:
        mark = self._marks.get(owner)
        super().confirm_gone(owner)
        if mark is not None:
            self._struck_off(mark.name, owner)


def _clock(host: Host) -> Clock:
    return Clock(host.offset, host.rate)
