"""Connections: what is kept in order, what overtakes, and what becomes of what is lost, cut and reset."""

from __future__ import annotations

from typing import Any

import pytest

from gripfast_lab.sim.chance import Chance
from gripfast_lab.sim.clocks import Clock
from gripfast_lab.sim.network import Connection, Duplicate, Network, Trouble
from gripfast_lab.sim.processes import Process
from gripfast_lab.sim.world import World


class Echo:
    """A node that sends everything back."""

    name = "echo"

    def __init__(self, world: World) -> None:
        self.is_up = True
        self.heard: list[Any] = []
        self.left: list[Connection] = []
        self._world = world

    def accepts(self, connection: Connection) -> bool:
        return self.is_up

    def receive(self, connection: Connection, message: Any) -> None:
        self.heard.append(message)
        if not isinstance(message, Duplicate):
            connection.answer(message)

    def hung_up(self, connection: Connection) -> None:
        self.left.append(connection)


class Bench:
    def __init__(self, seed: int = 1) -> None:
        self.world = World()
        self.network = Network(self.world, Chance(seed))
        self.process = Process(self.world, "p", Clock(0.0))
        self.echo = Echo(self.world)
        self.heard: list[Any] = []
        self.ends = 0

    def connect(self) -> Connection:
        connection, accepted = self.network.connect(self.process, self.echo)
        self.world.run(self.world.now + 1.0)
        assert accepted.value
        connection.receive = self.heard.append
        connection.ended = self._ended
        return connection

    def _ended(self) -> None:
        self.ends += 1

    def arm(self, on: str, trouble: str) -> None:
        self.network.arm(self.process, self.echo, on, Trouble(trouble, 5.0, lambda: None))

    def pass_time(self, seconds: float = 1.0) -> None:
        self.world.run(self.world.now + seconds)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_connection_keeps_the_order_of_what_it_carries(bench: Bench) -> None:
    connection = bench.connect()
    for number in range(50):
        connection.send(number)
    bench.pass_time()
    assert bench.heard == bench.echo.heard == list(range(50))


def test_connections_overtake_each_other() -> None:
    def order(seed: int) -> list[str]:
        bench = Bench(seed)
        for name, connection in [(name, bench.connect()) for name in "ab"]:
            connection.send(name)
        bench.pass_time()
        return bench.echo.heard

    assert {"".join(order(seed)) for seed in range(20)} == {"ab", "ba"}


def test_a_node_that_is_down_refuses(bench: Bench) -> None:
    bench.echo.is_up = False
    _, accepted = bench.network.connect(bench.process, bench.echo)
    bench.pass_time()
    assert accepted.value is False


@pytest.mark.parametrize("direction", [0, 1])
def test_what_is_sent_into_a_cut_arrives_after_it(bench: Bench, direction: int) -> None:
    connection = bench.connect()
    bench.network.paths(bench.process, bench.echo)[direction].cut_until = bench.world.now + 5.0
    connection.send("x")
    bench.pass_time(4.9)
    assert bench.heard == []
    bench.pass_time(1.0)
    assert bench.heard == ["x"]


def test_a_lost_request_takes_what_comes_behind_it(bench: Bench) -> None:
    connection = bench.connect()
    bench.arm("request", "lost request")
    connection.send("lost")
    connection.send("behind")
    bench.pass_time(60.0)
    assert bench.echo.heard == []
    assert bench.ends == 0, "nobody is told"


def test_a_lost_reply_was_done_all_the_same(bench: Bench) -> None:
    connection = bench.connect()
    bench.arm("reply", "lost reply")
    connection.send("x")
    bench.pass_time()
    assert (bench.echo.heard, bench.heard) == (["x"], [])


@pytest.mark.parametrize("on", ["request", "reply"])
def test_what_is_late_holds_up_what_is_behind_it(bench: Bench, on: str) -> None:
    connection = bench.connect()
    bench.arm(on, f"late {on}")
    connection.send("late")
    connection.send("behind")
    bench.pass_time(4.9)
    assert bench.heard == []
    bench.pass_time(0.2)
    assert bench.heard == ["late", "behind"]


def test_a_reset_at_one_end_loses_nothing_that_was_sent(bench: Bench) -> None:
    connection = bench.connect()
    connection.send("x")
    connection.reset_here()
    bench.pass_time()
    assert (bench.echo.heard, bench.heard, bench.ends) == (["x"], [], 1)
    assert bench.echo.left == [connection]


def test_a_reset_in_a_reply_is_told_to_both_ends(bench: Bench) -> None:
    connection = bench.connect()
    bench.arm("reply", "reset in a reply")
    connection.send("x")
    bench.pass_time()
    assert (bench.echo.heard, bench.heard, bench.ends) == (["x"], [], 1)
    assert bench.echo.left == [connection]
    assert not bench.network.connections


def test_a_duplicated_request_arrives_right_behind_itself_and_is_answered_once(bench: Bench) -> None:
    connection = bench.connect()
    bench.arm("request", "duplicated request")
    connection.send("x")
    connection.send("y")
    bench.pass_time()
    assert [type(each) for each in bench.echo.heard] == [str, Duplicate, str]
    assert bench.heard == ["x", "y"]


def test_a_reset_takes_what_is_on_its_way(bench: Bench) -> None:
    connection = bench.connect()
    connection.send("x")
    connection.reset()
    bench.pass_time()
    assert (bench.echo.heard, bench.ends) == ([], 1)


def test_a_machine_that_vanishes_says_nothing(bench: Bench) -> None:
    connection = bench.connect()
    connection.vanish()
    bench.pass_time(60.0)
    assert bench.echo.left == []


def test_hanging_up_is_heard_behind_what_was_said(bench: Bench) -> None:
    connection = bench.connect()
    connection.send("x")
    connection.hang_up()
    bench.pass_time()
    assert (bench.echo.heard, bench.echo.left) == (["x"], [connection])
    assert bench.heard == [], "and nobody listens any more"
