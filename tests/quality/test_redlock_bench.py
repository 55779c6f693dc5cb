"""The arithmetic and the nodes of the Redlock benchmarks: a wrong ruler measures nothing."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bench.hand_off import figures as hand_off_figures
from bench.redis.wire import Wire, address
from bench.redlock import rounds, stopped
from bench.redlock.hand_off import work
from bench.redlock.limit import pair_on, ready_nodes
from bench.redlock.nodes import MAJORITY, NODES, counters, five_nodes, node_urls, script_calls, wires
from bench.redlock.nodes import stopped as stop_nodes
from bench.redlock.npm import npm
from bench.redlock.pair import TO_DISK


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with five_nodes(tmp_path) as url:
        yield url


def test_there_are_five_nodes_and_afterwards_none(tmp_path: Path) -> None:
    with five_nodes(tmp_path) as url:
        assert len(set(node_urls(url))) == NODES
        with wires(url) as nodes:
            assert {node.ask(b"PING") for node in nodes} == {b"PONG"}
    for each in node_urls(url):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address(each)).close()


def test_settings_reach_every_node(tmp_path: Path) -> None:
    with five_nodes(tmp_path, TO_DISK) as url, wires(url) as nodes:
        for node in nodes:
            assert node.ask(b"CONFIG", b"GET", b"appendonly") == [b"appendonly", b"yes"]
            assert node.ask(b"CONFIG", b"GET", b"appendfsync") == [b"appendfsync", b"always"]


def test_stopped_nodes_are_silent_and_answer_afterwards(url: str) -> None:
    def answers(wire: Wire) -> bool:
        wire.socket.settimeout(0.2)
        try:
            return bool(wire.ask(b"PING") == b"PONG")
        except TimeoutError:
            return False

    with stop_nodes(url, 2), wires(url) as nodes:
        assert [answers(node) for node in nodes] == [False] * 2 + [True] * 3
    with wires(url) as nodes:
        assert all(answers(node) for node in nodes)


def test_nodes_go_on_when_something_fails(url: str) -> None:
    with pytest.raises(LookupError), stop_nodes(url, 2):
        raise LookupError
    with closing(Wire(node_urls(url)[0])) as wire:
        assert wire.ask(b"PING") == b"PONG"


def test_the_bare_lock_excludes_on_all_nodes_and_leaves_it_free(url: str) -> None:
    ready_nodes(url)
    key = b"lock:bare:5"
    with wires(url) as nodes:
        pair = pair_on(nodes)
        pair()
        assert [node.ask(b"EXISTS", key) for node in nodes] == [0] * NODES
        nodes[-1].ask(b"SET", key, b"someone")
        with pytest.raises(RuntimeError, match="not free"):
            pair()
        assert nodes[-1].ask(b"GET", key) == b"someone"


def test_the_bare_lock_that_wants_a_majority_needs_no_other_answers(url: str) -> None:
    ready_nodes(url)
    with wires(url) as nodes:
        pair = pair_on(nodes, MAJORITY)
        pair()
        with stop_nodes(url, NODES - MAJORITY):
            pair()
            pair()
        # What was missed meanwhile is told late, and is not taken for an answer to what is asked now.
        pair()


def test_scripts_and_commands_are_counted_over_all_nodes(url: str) -> None:
    with wires(url) as nodes, script_calls(url) as scripts, counters(url) as counted:
        before, before_all = scripts(), counted()["commands"]
        for node in nodes:
            digest = node.ask(b"SCRIPT", b"LOAD", b"return 1")
            node.ask(b"EVALSHA", digest, b"0")
            node.ask(b"EVAL", b"return 1", b"0")
        assert scripts() - before == 2 * NODES
        assert counted()["commands"] - before_all >= 3 * NODES


@pytest.mark.parametrize(
    ("scripts", "share"),
    [
        (1000, 100),  # two on each node for each of 100
        (1003, 99),  # one second round at the three nodes that it needs at least
        (1005, pytest.approx(98 + 1 / 3)),
        (996, 100),  # the last release is still on its way to two nodes
        (9000, 0),
    ],
)
def test_more_than_two_scripts_are_second_rounds(scripts: int, share: float) -> None:
    assert rounds.figures(100, scripts)["one round %"] == share


def test_the_first_pair_counts_among_the_worst_but_not_in_the_median() -> None:
    told = stopped.figures(healthy=[0.001, 0.002, 0.009], first=0.05, later=[0.003, 0.003, 0.01])
    assert told["stopped × healthy"] == pytest.approx(1.5)
    assert (told["first ms"], told["worst ms"]) == (50, 50)
    assert stopped.figures([0.001], 0.002, [0.02])["worst ms"] == 20


def test_node_measures_itself(url: str) -> None:
    with npm(url) as one, npm(url) as other:
        assert 0 < one.ask("pairs", key="npm", times=2) < 5
        assert len(one.ask("attempts", key="npm", times=3)) == 3
        shift, turns = work([one, other], "npm", 0.3)
        assert all(turn.asked >= shift.begin for own in turns for turn in own)  # its pauses may leave one without any
        assert hand_off_figures(shift, turns)["acquired/s"] > 0
        with pytest.raises(RuntimeError, match="TypeError"):
            one.ask("no such order")


def test_node_ends_when_it_is_no_longer_needed(url: str) -> None:
    with npm(url) as node:
        node.ask("pairs", key="npm", times=1)
    with pytest.raises(ValueError, match="closed file"):
        node.ask("pairs", key="npm", times=1)
