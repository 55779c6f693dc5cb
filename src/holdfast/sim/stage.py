"""Everything of one run: made from a plan, run to its end, tidied up, and looked over for what was left behind."""

from __future__ import annotations

from typing import Any

from holdfast.core import rules
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


class Stage:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = World()
        self.history: list[Event] = []
        self.fired: dict[str, int] = {}
        self.grants = 0
        self.put_back = 0.0
        """Seconds by which the node's clock was put back in all: its leases live longer by that."""
        self.has_forgotten = False
        """The node has lost its memory before."""
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
        closing = [runtime for runtime in self.runtimes.values() if not runtime.process.is_dead]
        for runtime in closing:
            runtime.process.start(f"{runtime.process.name}/closes", runtime.close())
        self.world.run(self.world.now + CLOSING)
        self._look_over()

    def note(self, who: str, name: str, kind: Kind, **more: Any) -> None:
        self.history.append(Event(self.world.now, who, name, kind, **more))
        if kind == "granted":
            self.grants += 1
            self._ask_rivals(who, name)

    def fault(self, kind: str, target: str = WORLD, note: str = "") -> None:
        """One has happened."""
        self.fired[kind] = self.fired.get(kind, 0) + 1
        self.note(target or WORLD, ANY, "fault", note=f"{kind} {note}".strip())

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
            aside = RedisStore(
                LendingLink(self.network, process, self.node, timeout, idle_most=0, chase=link.chase), PREFIX
            )
        else:
            link = LendingLink(self.network, process, self.node, timeout)
        return Runtime(process, RedisStore(link, PREFIX), aside, timeout, self.plan.connect_patience)

    def _actor(self, name: str, registers: dict[str, Register]) -> Actor:
        errands = [errand for errand in self.plan.errands if errand.actor == name]
        return Actor(name, self.runtimes[name.partition("/")[0]], errands, registers, self.note, self.look_whether_over)

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
            if not runtime.process.is_dead:
                for mark in runtime.env.ledger.marks():
                    self.note(runtime.process.name, ANY, "left", note=f"ledger entry {mark.owner}")

    def _look_over(self) -> None:
        for process in self.processes.values():
            if not process.is_dead:
                left = [
                    *(f"task {task.name}" for task in process.tasks),
                    *("connection" for _ in self.network.of(process)),
                ]
                for each in left:
                    self.note(process.name, ANY, "left", note=each)
        self.world.now += self._forgotten_within()
        for key in self.node.server.database.keys():  # noqa: SIM118 - it is no dict
            if not key.endswith(MARK + b"token"):
                self.note(self.node.name, ANY, "left", note=f"key {key!r}")


def _clock(host: Host) -> Clock:
    return Clock(host.offset, host.rate)
