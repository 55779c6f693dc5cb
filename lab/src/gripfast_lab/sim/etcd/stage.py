"""One run with a cluster of etcd: what is different from one with Redis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gripfast.core import rules
from gripfast.core.ports import Store
from gripfast.stores.etcd.keys import Keys
from gripfast.stores.etcd.meeting import Cluster as Met
from gripfast.stores.etcd.record import LATE
from gripfast.stores.etcd.requests import TRY_LEAST, TRY_MOST, Requests
from gripfast.stores.etcd.store import EtcdStore
from gripfast_lab.sim.chance import Chance
from gripfast_lab.sim.etcd.cluster import HOP, Cluster
from gripfast_lab.sim.etcd.link import LendingLink, SimLink, virtual_time
from gripfast_lab.sim.etcd.member import Member
from gripfast_lab.sim.etcd.observer import ROOT, SEPARATOR, Book, Observer, process_of
from gripfast_lab.sim.etcd.state import State
from gripfast_lab.sim.history import ANY, Kind
from gripfast_lab.sim.plan import Host, Plan
from gripfast_lab.sim.processes import Process
from gripfast_lab.sim.runtime import Runtime
from gripfast_lab.sim.stage import CLOSING, NO_END, Stage, clock_of

_EARLY = 0.97
"""Of a time that clocks may be off."""
_ROUNDING = 1e-6
NOTE_KEPT = 620.0
"""Seconds after which no note of a force release is left."""


class EtcdRuntime(Runtime):
    def _new_owner(self) -> str:
        return super()._new_owner().replace("/", SEPARATOR)


class EtcdStage(Stage):
    nodes: Sequence[Member]  # type: ignore[assignment] # it has what faults and links of the network need

    def __init__(self, plan: Plan) -> None:
        assert plan.cluster is not None
        self.setup = plan.cluster
        self._off: dict[str, float] = {}
        """Processes whose clocks are, or were: until when that is felt."""
        self._gave_up: set[str] = set()
        """Actors that were cancelled: nobody waited any more for what they had requested."""
        self._first: dict[tuple[str, int], float] = {}
        """By owner and token: by when its grant was dated."""
        self._told: dict[str, float] = {}
        """By owner: the last moment that it was told to hold until."""
        super().__init__(plan)
        self.cluster.leader = None
        self.cluster.move_leader(self.nodes[self.setup.leader])

    def _node(self, host: Host) -> Member:  # type: ignore[override]
        if not hasattr(self, "cluster"):
            chance = Chance(self.plan.seed).fork("cluster")
            self.cluster = Cluster(self.world, chance, self.setup.least_ttl)
            self.observer = Observer(self.cluster, self.note, self._look_for_late)
        member = Member(self.cluster, host.name, clock_of(host))
        member.loses_deletes = self.setup.loses_deletes
        return member

    def _client(self, host: Host) -> Runtime:
        process, plan = self.processes[host.name], self.plan
        store, aside = self._store_of_one(host)
        return EtcdRuntime(process, store, aside, plan.request_timeout, plan.connect_patience, self._ledger(process))

    def _store_of_one(self, host: Host) -> tuple[Store, Store | None]:
        process, timeout, members = self.processes[host.name], self.plan.request_timeout, self._endpoints(host)
        met, keys = Met(host.name), Keys(ROOT)
        lends = LendingLink(self.network, process, members, timeout, idle_most=0 if host.shares else 8)
        if not host.shares:
            return EtcdStore(Requests(lends, met, keys)), None
        store = EtcdStore(Requests(SimLink(self.network, process, members, timeout), met, keys))
        return store, EtcdStore(Requests(lends, met, keys), store.records)

    def _endpoints(self, host: Host) -> Mapping[str, Member]:
        places = dict(self.setup.endpoints).get(host.name) or range(len(self.nodes))
        return {f"{self.nodes[place].name}:2379": self.nodes[place] for place in places}

    @property
    def with_others(self) -> frozenset[str]:
        """Processes that know more than one member."""
        return frozenset(host.name for host in self.plan.hosts if len(self._endpoints(host)) > 1)

    def restore(self, backup: State, is_new: bool) -> None:
        for member in self.nodes:
            if member.is_up:
                member.crash()
                self.world.at(self.world.now + HOP, member.restart)
        self.cluster.restore(backup, is_new)
        self.observer.lose()

    def run(self) -> None:
        with virtual_time(self.processes, Chance(self.plan.seed).fork("dice")):
            self._run()

    def _run(self) -> None:
        for actor in self.actors.values():
            actor.start()
        self.world.at(self.plan.heals_at, self.look_whether_over)
        self.world.run(NO_END)
        if not self.plan.closes_at_once:
            self.world.run(self.world.now + self._forgotten_within())
            self._look_over_ledgers()
        closed_at = self.world.now
        for runtime in self.runtimes.values():
            runtime.process.do(self.close, runtime)
        self.world.run(self.world.now + 10.0 * self.plan.request_timeout + 0.5)
        self._look_for_held(closed_at)
        self.world.run(self.world.now + CLOSING)
        self._look_over()

    # What must be there, and what must not ------------------------------------------------------------------------

    def _compare(self, who: str, name: str, until: float) -> None:
        """Whether the cluster keeps the lock for as long as its holder is told."""
        key = self.observer.key_of(name, self.actors[who].owner())
        is_first = key is not None and self.observer.queue(name)[0] == key
        kept_until = self.observer.keeps_at_least(key) if key is not None and is_first else -1.0
        self._look_for_renewals(who, name, until)
        if until > kept_until + _ROUNDING:
            self.note(who, name, "outlived", until=kept_until)

    def _look_for_renewals(self, who: str, name: str, until: float) -> None:
        """No renewal is believed that was sent when the key was gone, or when the client knew that the cluster is
        another one than that which has granted. A claim may find its own key there, and is granted anew."""
        process, owner, told = who.partition("/")[0], self.actors[who].owner(), self.history[-1]
        dated = until - told.ttl * (1.0 + rules.CLOCK_RATES)
        first = self._first.setdefault((owner, told.token), dated)
        is_longer = until > self._told.get(owner, -math.inf) + _ROUNDING  # a shorter ttl counts before it is sent
        self._told[owner] = max(until, self._told.get(owner, -math.inf))
        if self.world.now <= self._off.get(process, -math.inf) or not is_longer:
            return
        if dated > self.observer.gone.get(owner, math.inf):
            self.note(owner, name, "confirmed", note="nobody")
        restored_at, seen_at = self.cluster.restored_at, self.cluster.seen_by.get(process, math.inf)
        if dated > seen_at >= first and self.observer.handed.get((owner, told.token), math.inf) < restored_at:
            self.note(who, name, "misled", note="renewed at a cluster that has not granted it")

    def note(self, who: str, name: str, kind: Kind, **more: Any) -> None:
        if kind == "jumped":
            # What its client knows of its current lease is wrong as long as others are put under that.
            more["until"] += max(self.setup.least_ttl, math.ceil(self.plan.longest_ttl)) * (1.0 + rules.CLOCK_RATES)
            process = who.partition("/")[0]
            self._off[process] = max(more["until"], self._off.get(process, -math.inf))
        elif kind == "cancelled":
            self._gave_up.add(who)
        super().note(who, name, kind, **more)

    def _struck_off(self, process: Process, name: str, owner: str) -> None:
        self.world.at(self.world.now + self.plan.reaction, self._look_for_left, process, name, owner, self.world.now)

    def _look_for_left(self, process: Process, name: str, owner: str, since: float) -> None:
        """A ledger has lost sight of this owner: nothing of it may be there, unless its claim came when its lease was
        over by what its client knows, or later than a clean-up is repeated for a caller that has gone away."""
        key = self.observer.key_of(name, owner)
        if key is None or process.is_dead or self.has_declared or owner in self.board.owners:
            return
        book, ends = self.observer.books[key], self.observer.lasts_until(key)
        if ends <= self.world.now or (
            book.made_at > since and (ends - _ROUNDING <= book.made_at or self._is_unwanted(book))
        ):
            return  # the leader may have counted it anew
        self.note(process.name, name, "left", note=f"a key of {owner}, which no client knows")

    def _look_for_late(self, name: str, owner: str) -> None:
        """A key was created. If no ledger knows its owner any more, nobody will clean up after it."""
        runtime = self.runtimes.get(process_of(owner))
        if runtime is not None and all(mark.owner != owner for mark in runtime.env.ledger.marks()):
            self.world.at(
                self.world.now + self.plan.reaction, self._look_for_left, runtime.process, name, owner, -math.inf
            )

    def _is_unwanted(self, book: Book) -> bool:
        """Its caller has gone away, or its client is closed, so nobody waits for so late a claim."""
        process, _, number = book.owner.partition(SEPARATOR)
        actor = f"{process}/{number.partition('#')[0]}"
        return (actor in self._gave_up or self.runtimes[process].is_closed) and book.delay >= LATE * _EARLY

    def _look_for_held(self, closed_at: float) -> None:
        for key, book in self.observer.books.items():
            process = self.processes.get(book.owner.partition(SEPARATOR)[0])
            if process is None or process.is_dead or self.has_declared or book.owner in self.board.owners:
                continue
            came_late = self.observer.lasts_until(key) <= book.made_at or self._is_unwanted(book)
            if book.made_at < closed_at and self.observer.lasts_until(key) > self.world.now and not came_late:
                self.note(process.name, book.name, "left", note=f"key {key!r} after the client was closed")

    def _look_whether_it_may(self, owner: str, name: str, kind: Kind) -> None:
        """A claim that was not answered may come back, but nobody can adopt it. Its try had its full time."""
        share = TRY_MOST if process_of(owner) in self.with_others else 1.0
        key, least = self.observer.key_of(name, owner), min(TRY_LEAST, share * self.plan.request_timeout)
        book = None if key is None else self.observer.books[key]
        if book is None or book.made_at < self.board.owners[owner] or book.delay < least * _EARLY:
            self.note(owner, name, "returned", note=kind)

    def _look_over(self) -> None:
        for process in self.processes.values():
            if not process.is_dead:
                self._look_over_process(process)
        self.world.run(self.world.now + self._forgotten_within() + self.plan.longest_kept * 2.0 + NOTE_KEPT)
        for key in self.cluster.state.keys:
            if not key.endswith(b"%layout"):
                self.note("cluster", ANY, "left", note=f"key {key!r}")
        for number in self.cluster.state.leases:
            self.note("cluster", ANY, "left", note=f"lease {number}")

    def _look_over_process(self, process: Process) -> None:
        for task in process.tasks:
            self.note(process.name, ANY, "left", note=f"task {task.name}")
        for _ in self.network.of(process):
            self.note(process.name, ANY, "left", note="connection")
