"""Gripfast's own scripts on the simulated server do and answer what they do on a real one, in any order."""

import pytest

from sim.redis_owners import owners_are_alike, sequences
from sim.redis_pair import Pair, hold_alike


@pytest.mark.timeout(400)  # making a failure smaller takes a while
def test_any_order_of_requests(pair: Pair) -> None:
    hold_alike(pair, sequences, owners_are_alike, examples=60)
