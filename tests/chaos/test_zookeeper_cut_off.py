"""A holder that is cut off from ZooKeeper has stopped believing before the next one is granted: every time.

Cut off alone, or together with the server that it is connected to. That server goes on answering reads and pings for
longer than the session lives: whoever believes those believes too long.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient

import holdfast
from chaos.cutting import COLOURS, Blocking, Colour
from chaos.journal import now
from chaos.notes import Notes
from chaos.stage import LONG
from chaos.zookeeper_stage import left_behind
from holdfast.sim.checks import violations
from holdfast.sim.history import Event
from support.proxy import Proxy
from support.server_process import HOST
from support.waiting import until
from support.zookeeper_servers import Ensemble, ZooKeeperServer

pytestmark = pytest.mark.timeout(600 if LONG else 60)

ROUNDS = 40 if LONG else 4
AT_ONCE = 5
"""Trials in each round."""
TTL = 0.6
REQUEST_TIMEOUT = 5.0


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
    """Several at once, with one history."""

    def __init__(self, ensemble: Ensemble, holders_at: ZooKeeperServer, waiters_at: ZooKeeperServer) -> None:
        self._url = ensemble.lock_space()
        self._root = self._url.partition("?")[2]
        self._history: list[Event] = []
        self._closing = ExitStack()
        self.all = [self._trial(number, holders_at, waiters_at) for number in range(AT_ONCE)]
        for trial in self.all:
            trial.waiting.start()
        with holdfast.connect(self._url) as operator:
            until(lambda: all(_waiters(operator, trial.name) == 1 for trial in self.all))

    def _trial(self, number: int, holders_at: ZooKeeperServer, waiters_at: ZooKeeperServer) -> Trial:
        proxy = self._closing.enter_context(Proxy((HOST, holders_at.port)))
        notes = [Notes(f"{who} {number}", self._history.append) for who in ("holder", "waiter")]
        colour = list(COLOURS.values())[number % len(COLOURS)]
        holder = colour(f"zookeeper://{proxy.host}:{proxy.port}?{self._root}", notes[0], REQUEST_TIMEOUT)
        waiter = Blocking(f"zookeeper://{waiters_at.address}?{self._root}", notes[1], REQUEST_TIMEOUT)
        for each in (holder, waiter):
            self._closing.callback(each.close)
        name, outcome = f"job {number}", list[str]()
        lease = holder.acquire(name, 5.0, ttl=TTL)
        waiting = threading.Thread(target=_wait, args=(waiter, name, lease, outcome))
        return Trial(name, proxy, holder, lease, notes[0], outcome, waiting)

    def go_on(self, seconds: float) -> None:
        """All hold, and know it."""
        ends = now() + seconds
        until(lambda: now() >= ends)
        for trial in self.all:
            assert trial.lease.held

    def see_the_next_granted(self) -> None:
        """Meanwhile all holders are asked all the time what they believe."""

        def all_are_granted() -> bool:
            for trial in self.all:
                trial.notes.held(trial.lease)
            return all(trial.outcome for trial in self.all)

        until(all_are_granted, within=20.0)

    def judge(self, observer: KazooClient) -> None:
        """Once nobody is cut off any more."""
        for trial in self.all:
            trial.waiting.join()
            with pytest.raises(holdfast.LeaseLost):
                trial.holder.release(trial.lease)
        self._closing.close()
        assert [trial.outcome for trial in self.all] == [["had stopped believing"]] * AT_ONCE
        assert violations(self._history) == []
        assert left_behind(observer, self._url, within=2.0) == []


def _waiters(operator: holdfast.Client, name: str) -> int:
    info = operator.inspect(name)
    return info.waiters if info else 0


def _wait(waiter: Blocking, name: str, lease: Any, outcome: list[str]) -> None:
    try:
        granted = waiter.acquire(name, 15.0, ttl=TTL)
        try:
            lease.ensure_held()
            outcome.append(f"believed for {lease.remaining():.3f} s more when the next was granted")
        except holdfast.LeaseLost:
            outcome.append("had stopped believing")
        waiter.release(granted)
    except Exception as error:
        outcome.append(repr(error))


@pytest.fixture(scope="module")
def ensemble() -> Iterator[Ensemble]:
    with Ensemble("syncLimit=30") as ensemble:
        yield ensemble


@pytest.fixture
def observer(ensemble: Ensemble) -> Iterator[KazooClient]:
    with ensemble.client(timeout=60.0) as client:
        yield client


@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_a_holder_that_is_cut_off_alone(
    ensemble: Ensemble, observer: KazooClient, seed: str, round_number: int
) -> None:
    chance = random.Random(seed)
    trials = Trials(ensemble, ensemble.follower(), ensemble.leader())
    trials.go_on(chance.uniform(0.0, TTL))
    for trial in trials.all:
        if chance.random() < 0.5:
            trial.proxy.black_hole()
        else:
            trial.proxy.hold("requests")  # of those that it accepts
            trial.proxy.cut()
    trials.see_the_next_granted()
    for trial in trials.all:
        trial.proxy.let_go()
    trials.judge(observer)


@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_a_holder_whose_server_is_cut_off_from_its_leader(
    ensemble: Ensemble, observer: KazooClient, seed: str, round_number: int
) -> None:
    follower, leader = ensemble.follower(), ensemble.leader()
    trials = Trials(ensemble, follower, leader)
    trials.go_on(random.Random(seed).uniform(0.0, TTL))
    ensemble.cut_off(follower)
    try:
        trials.see_the_next_granted()
        assert follower.mode == "follower"  # still, as far as it knows
    finally:
        ensemble.join(follower)
    ensemble.all_serve()
    trials.judge(observer)
