"""The turns that stores take whose servers are slow, and the order of the tests: nothing is left out for good."""

from collections import Counter

import pytest

from support import stores
from support.colours import COLOURS
from support.stores import STORES, StoreUnderTest, is_in_turn

IN_TURNS = [store for store in STORES if store.mode]
MODES = {"lease", "row", "advisory"}
TESTS = [f"tests/conformance/test_of_{number}.py::test_it" for number in range(200)]


def turns(test: str) -> list[tuple[StoreUnderTest, str]]:
    return [(store, colour) for store in IN_TURNS for colour in COLOURS if is_in_turn(test, store, colour)]


@pytest.fixture(autouse=True)
def strided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "FULL", False)


@pytest.mark.parametrize("test", TESTS[:20])
def test_every_test_sees_two_modes_and_the_nodes_and_the_ensemble(test: str) -> None:
    seen = [store.mode for store, _ in turns(test)]
    assert len(seen) == len(set(seen)) == 4
    assert len(MODES & set(seen)) == 2
    assert {"nodes", "ensemble"} <= set(seen)


def test_every_store_in_every_colour_has_its_share_of_the_tests() -> None:
    share = Counter((store.name, colour) for test in TESTS for store, colour in turns(test))
    assert len(share) == len(IN_TURNS) * len(COLOURS)
    assert min(share.values()) > len(TESTS) / 12


@pytest.mark.parametrize("test", TESTS[:20])
def test_a_test_of_one_colour_sees_two_modes_and_the_nodes_and_the_ensemble(test: str) -> None:
    seen = [store.mode for store in IN_TURNS if is_in_turn(test, store, None)]
    assert len(seen) == len(set(seen)) == 4


def test_other_stores_are_in_every_turn() -> None:
    others = [store for store in STORES if not store.mode]
    assert len(others) >= 3
    assert all(is_in_turn(test, store, colour) for test in TESTS for store in others for colour in COLOURS)


def test_a_full_sweep_takes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "FULL", True)
    assert len(turns(TESTS[0])) == len(IN_TURNS) * len(COLOURS)
