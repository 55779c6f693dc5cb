"""The simulated etcd answers as a real one does: random requests, transactions, leases, watches, compactions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sim.etcd_pair import Pair, compare, pair_with_etcd


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with pair_with_etcd() as pair:
        yield pair


@pytest.mark.parametrize("seed", range(0, 30, 10))
def test_the_answers_are_those_of_a_real_etcd(pair: Pair, seed: int) -> None:
    for each in range(seed, seed + 10):
        compare(pair, each)
