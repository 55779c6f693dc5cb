"""The lab's ensemble answers, and makes wait, as ZooKeeper does: the same questions to both."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from kazoo.client import KazooClient

from gripfast_lab.engines.ensemble import CHILDREN, CREATE, DELETE, GONE, TIME_OUT, Ensemble
from gripfast_lab.moves import ask
from support.proxy import Proxy
from support.server_process import HOST
from support.waiting import until
from support.zookeeper_servers import connected, new_root, zookeeper_server

WAITS = "waits"
CLIENTS = ("A", "B", "C")
SHORT, LONG = 2.0, 20.0
"""Time-outs of real sessions; those of the lab have TIME_OUT. A short one is for who will be silent."""


class Both:
    """The lab's ensemble beside a real one. Each client has its own way there, which can be closed."""

    def __init__(self, ways: dict[str, Proxy], clients: dict[str, KazooClient]) -> None:
        self.ways = ways
        self.clients = clients
        self._lab = Ensemble()
        self._has = self._lab.start()
        self._root = new_root()
        self.waiting: dict[str, tuple[str, threading.Event]] = {}
        self._names: dict[int, str] = {}
        self._client("B").create(self._root)

    def ask(self, who: str, command: str) -> object:
        told, expected = self._of_real(who, command), self._of_lab(who, command)
        assert told == expected, f"{who}: {command}"
        self._tell_waiters()
        return told

    def pass_by(self, seconds: int, *silent: str) -> None:
        """In the lab alone; who is silent in the real one, and for how long, the test sees to."""
        self._has = self._lab.passes(self._has, seconds, frozenset(silent))

    def children(self, by: str) -> tuple[int, ...]:
        """Those of the real one, which are those of the lab."""
        answer = self._lab.ask(self._has, by, ask(CHILDREN))
        assert answer is not None
        until(lambda: self._of_real(by, CHILDREN) == answer.reply)
        self._tell_waiters()
        reply: tuple[int, ...] = answer.reply
        return reply

    @property
    def nodes(self) -> dict[int, str]:
        return dict(self._has.nodes)

    def next(self, *silent: str) -> int | None:
        return self._lab.next(self._has, frozenset(silent))

    def _client(self, who: str) -> KazooClient:
        return self.clients[who]

    def _of_lab(self, who: str, command: str) -> object:
        answer = self._lab.ask(self._has, who, ask(command))
        if answer is None:
            return WAITS
        self._has = answer.state
        return answer.reply

    def _of_real(self, who: str, command: str) -> object:
        client = self._client(who)
        if command == CREATE:
            path = client.create(f"{self._root}/", ephemeral=True, sequence=True)
            number = int(path.rpartition("/")[2]) + 1  # the lab counts from one
            self._names[number] = path
            return number
        if command == CHILDREN:
            return tuple(sorted(int(name) + 1 for name in client.get_children(self._root)))
        number = int(command.split("node ")[1].split()[0])
        if command == DELETE.format(number):
            client.delete(self._names[number])
            return "done"
        told = threading.Event()
        if client.exists(self._names[number], watch=lambda _: told.set()) is None:
            return "it is"
        self.waiting[who] = command, told
        return WAITS

    def _tell_waiters(self) -> None:
        for who, (command, told) in list(self.waiting.items()):
            if self._of_lab(who, command) == WAITS:
                assert not told.is_set(), f"{who} was told too early"
            else:
                assert told.wait(10), f"{who} was not told"
                del self.waiting[who]


@contextmanager
def opened(time_out_of_a: float) -> Iterator[Both]:
    with ExitStack() as stack:
        ways = {who: stack.enter_context(Proxy((HOST, zookeeper_server().port))) for who in CLIENTS}
        time_outs = {who: time_out_of_a if who == "A" else LONG for who in CLIENTS}
        clients = {who: stack.enter_context(connected(f"{HOST}:{ways[who].port}", time_outs[who])) for who in CLIENTS}
        yield Both(ways, clients)
        for way in ways.values():
            way.let_go()


@pytest.fixture
def both() -> Iterator[Both]:
    with opened(LONG) as pair:
        yield pair


@pytest.fixture
def both_with_a_short_session() -> Iterator[Both]:
    with opened(SHORT) as pair:
        yield pair


def test_nodes_are_numbered_in_the_order_of_their_making_and_no_number_comes_back(both: Both) -> None:
    assert [both.ask("A", CREATE), both.ask("B", CREATE), both.ask("A", CHILDREN)] == [1, 2, (1, 2)]
    both.ask("B", DELETE.format(2))
    assert [both.ask("B", CREATE), both.ask("A", CHILDREN)] == [3, (1, 3)]


def test_who_waits_for_a_node_is_told_when_it_is_gone(both: Both) -> None:
    both.ask("A", CREATE)
    both.ask("B", CREATE)
    assert both.ask("B", GONE.format(1)) == WAITS
    both.ask("C", CREATE)
    assert both.waiting
    both.ask("A", DELETE.format(1))
    assert not both.waiting
    assert both.ask("B", GONE.format(1)) == "it is"


def test_who_has_made_two_waits_for_itself(both: Both) -> None:
    """What breaks the lock whose first answer was lost."""
    assert [both.ask("A", CREATE), both.ask("A", CREATE), both.ask("A", CHILDREN)] == [1, 2, (1, 2)]
    assert both.ask("A", GONE.format(1)) == WAITS
    both.pass_by(TIME_OUT)
    assert both.children("B") == (1, 2)
    assert both.waiting


def test_the_node_of_who_is_silent_goes_when_its_session_is_over_and_no_other(both_with_a_short_session: Both) -> None:
    both = both_with_a_short_session
    for who in CLIENTS:
        both.ask(who, CREATE)
    both.ask("B", GONE.format(1))
    both.ways["A"].black_hole()
    both.pass_by(TIME_OUT - 1, "A")
    assert both.next("A") == 1
    assert both.children("C") == (1, 2, 3)
    both.pass_by(1, "A")
    assert both.children("C") == (2, 3)
    assert not both.waiting
    assert both.next() is None


def test_who_is_heard_of_again_in_time_keeps_its_node(both: Both) -> None:
    both.ask("A", CREATE)
    session = both.clients["A"].client_id
    states: list[str] = []
    both.clients["A"].add_listener(states.append)
    both.ways["A"].cut()
    both.pass_by(TIME_OUT - 1, "A")
    until(lambda: states == ["SUSPENDED", "CONNECTED"], within=10)
    both.pass_by(1)
    both.pass_by(TIME_OUT - 1, "A")
    assert both.clients["A"].client_id == session
    assert both.ask("A", CHILDREN) == (1,)


@pytest.mark.parametrize("seed", range(4))
def test_any_questions_are_answered_alike(both: Both, seed: int) -> None:
    """Each deletes its own, and asks nothing while it is made to wait, as the lab's programs do."""
    chance, waited = random.Random(seed), 0
    for _ in range(40):
        who = chance.choice([who for who in CLIENTS if who not in both.waiting])
        own = [number for number, owner in both.nodes.items() if owner == who]
        others = [number for number, owner in both.nodes.items() if owner != who]
        commands = [CREATE, CHILDREN, *(DELETE.format(each) for each in own * 2)]
        can_wait = len(both.waiting) + 1 < len(CLIENTS)
        commands += [GONE.format(each) for each in others] if can_wait else []
        waited += both.ask(who, chance.choice(commands)) == WAITS
    assert waited
