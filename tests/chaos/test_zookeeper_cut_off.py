"""A holder that is cut off from ZooKeeper has stopped believing before the next one is granted: every time.

Cut off alone, or together with the server that it is connected to. Such a server goes on answering for longer than the
session lives: whoever believes all of its answers believes too long.
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

import pytest
from kazoo.protocol.serialization import Exists

import gripfast
from chaos.cutting import COLOURS, Blocking, Colour
from chaos.stage import LONG
from chaos.zookeeper_stage import left_behind
from gripfast.stores.zookeeper.node import Node
from gripfast.stores.zookeeper.store import ZooKeeperStore
from gripfast_lab.sim.checks import violations
from gripfast_lab.sim.history import Event
from gripfast_lab.verify.journal import now
from gripfast_lab.verify.notes import Notes
from support.proxy import Proxy
from support.server_process import HOST
from support.waiting import until
from support.zookeeper_servers import Ensemble, ZooKeeperServer

pytestmark = pytest.mark.timeout(600 if LONG else 180)

TRIALS = 200 if LONG else 8
"""At least: that many held the lock when something was done to them."""
AT_ONCE = 10
TTL = 0.6
STOPPED = "had stopped believing"
PATIENT = 5.0
"""Seconds that a request may take."""


class Trial(NamedTuple):
    """One that holds, and one that waits."""

    name: str
    proxy: Proxy
    """Before the holder's server."""
    holder: Colour
    lease: Any
    notes: Notes
    outcome: list[str]
    waiting: threading.Thread


class Trials:
    """Several at once, with one history. Used in `with`: nothing of one that fails lives on beside other tests."""

    def __init__(
        self,
        ensemble: Ensemble,
        holders_at: ZooKeeperServer,
        waiters_at: ZooKeeperServer,
        ttl: float = TTL,
        request_timeout: float = PATIENT,
    ) -> None:
        """`request_timeout`: of the holders."""
        self._url = ensemble.lock_space()
        self._ttl = ttl
        self._request_timeout = request_timeout
        self._history: list[Event] = []
        self._closing = ExitStack()
        try:
            self.all = [self._trial(number, holders_at, waiters_at) for number in range(AT_ONCE)]
            self._start()
        except BaseException:
            self._closing.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._closing.close()

    def _start(self) -> None:
        for trial in self.all:
            trial.waiting.start()
        with gripfast.connect(self._url) as operator:
            until(lambda: all(trial.outcome or _waiters(operator, trial.name) == 1 for trial in self.all), within=20.0)

    def _trial(self, number: int, holders_at: ZooKeeperServer, waiters_at: ZooKeeperServer) -> Trial:
        proxy = self._closing.enter_context(Proxy((HOST, holders_at.port)))
        notes = [Notes(f"{who} {number}", self._history.append) for who in ("holder", "waiter")]
        colour = list(COLOURS.values())[number % len(COLOURS)]
        options = self._url.partition("?")[2]
        patience = f"request_timeout={self._request_timeout}"
        behind = f"zookeeper://{proxy.host}:{proxy.port}?{options}&{patience}"
        holder = colour(behind, notes[0], self._request_timeout)
        waiter = Blocking(f"zookeeper://{waiters_at.address}?{options}", notes[1], PATIENT)
        for each in (holder, waiter):
            self._closing.callback(each.close)
        name, outcome = f"job {number}", list[str]()
        lease = holder.acquire(name, 5.0, ttl=self._ttl)
        waiting = threading.Thread(target=_wait, args=(waiter, name, lease, outcome))
        return Trial(name, proxy, holder, lease, notes[0], outcome, waiting)

    def go_on(self, seconds: float) -> None:
        ends = now() + seconds
        until(lambda: now() >= ends)

    def holders(self) -> int:
        """On a busy machine some may have lost their short leases before anything was done to them."""
        return sum(trial.lease.held for trial in self.all)

    def see_the_next_granted(self) -> None:
        """Meanwhile all holders are asked all the time what they believe."""

        def all_are_granted() -> bool:
            for trial in self.all:
                trial.notes.held(trial.lease)
            return all(trial.outcome for trial in self.all)

        until(all_are_granted, within=30.0)

    def judge(self, ensemble: Ensemble) -> None:
        """Once nobody is cut off any more."""
        for trial in self.all:
            trial.waiting.join()
        outcomes = [outcome for trial in self.all for outcome in trial.outcome if outcome != STOPPED]
        assert [outcome for outcome in outcomes if outcome.startswith("believed")] == []
        for trial in self.all:
            with pytest.raises(gripfast.LeaseLost):
                trial.holder.release(trial.lease)
        self._closing.close()
        assert outcomes == []
        assert violations(self._history) == []
        with ensemble.client() as observer:
            assert left_behind(observer, self._url, within=2.0) == []


def _waiters(operator: gripfast.Client, name: str) -> int:
    info = operator.inspect(name)
    return info.waiters if info else 0


def _wait(waiter: Blocking, name: str, lease: Any, outcome: list[str]) -> None:
    try:
        granted = waiter.acquire(name, 15.0)
        try:
            lease.ensure_held()
            outcome.append(f"believed for {lease.remaining():.3f} s more when the next was granted")
        except gripfast.LeaseLost:
            outcome.append(STOPPED)
        waiter.release(granted)
    except Exception as error:
        outcome.append(repr(error))


@pytest.fixture(scope="module")
def ensemble() -> Iterator[Ensemble]:
    with Ensemble("syncLimit=30") as ensemble:
        yield ensemble


def cut_off_alone(ensemble: Ensemble, chance: random.Random) -> int:
    with Trials(ensemble, ensemble.follower(), ensemble.leader()) as trials:
        trials.go_on(chance.uniform(0.0, TTL))
        holders = trials.holders()
        for trial in trials.all:
            if chance.random() < 0.5:
                trial.proxy.black_hole()
            else:
                trial.proxy.hold("requests")  # of the next connections
                trial.proxy.cut()
        trials.see_the_next_granted()
        for trial in trials.all:
            trial.proxy.let_go()
        trials.judge(ensemble)
    return holders


def cut_off_with_its_server(ensemble: Ensemble, chance: random.Random) -> int:
    """Which still follows its leader, as far as it knows, when the next is granted."""
    follower = ensemble.follower()
    with Trials(ensemble, follower, ensemble.leader()) as trials:
        trials.go_on(chance.uniform(0.0, TTL))
        holders = trials.holders()
        ensemble.cut_off(follower)
        try:
            trials.see_the_next_granted()
        finally:
            ensemble.join(follower)
        ensemble.all_serve()
        trials.judge(ensemble)
    return holders


def stop_its_leader(ensemble: Ensemble, chance: random.Random) -> int:
    """When it goes on it answers what it finds, even a sync, before it learns that there is another leader, which has
    given all sessions their full time-out anew. What such an answer dates would last too long."""
    ttl = 2.0
    leader, *others = sorted(ensemble.servers, key=lambda server: server.mode != "leader")
    with Trials(ensemble, leader, others[0], ttl, request_timeout=0.3) as trials:
        for trial in trials.all:
            with suppress(gripfast.StoreUnavailable):
                trial.holder.extend(trial.lease)
        holders = trials.holders()
        leader.pause()
        try:
            until(lambda: any(server.mode == "leader" for server in others), within=20.0)
            trials.go_on(ttl / 2)
        finally:
            leader.resume()
        trials.go_on(0.1)
        for trial in trials.all:
            trial.proxy.black_hole()
        trials.see_the_next_granted()
        for trial in trials.all:
            trial.proxy.let_go()
        ensemble.all_serve()
        trials.judge(ensemble)
    return holders


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("fault", [cut_off_alone, cut_off_with_its_server])
def test_a_holder_stops_believing_before_the_next_one_is_granted_when(
    ensemble: Ensemble, seed: str, fault: Callable[[Ensemble, random.Random], int]
) -> None:
    chance, seen = random.Random(seed), 0
    while seen < TRIALS:
        seen += fault(ensemble, chance)


def test_a_holder_does_not_believe_a_leader_that_was_stopped_and_is_none_any_more(seed: str) -> None:
    with Ensemble("syncLimit=2") as ensemble:
        for _ in range(10 if LONG else 1):
            stop_its_leader(ensemble, random.Random(seed))


def believe_reads(store: ZooKeeperStore, node: Node) -> Exists:
    return Exists(node.path, None)


def test_it_is_noticed_if_reads_are_believed(ensemble: Ensemble, seed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine few of them hold their locks, and answer in time, when they are cut off."""
    monkeypatch.setattr(ZooKeeperStore, "_proof", believe_reads)
    chance, ends = random.Random(seed), now() + 120.0
    with pytest.raises(AssertionError, match="believed"):
        while now() < ends:
            print(cut_off_with_its_server(ensemble, chance), "held their locks, and nobody believed too long")
