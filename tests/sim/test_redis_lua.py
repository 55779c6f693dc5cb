"""Lua programs on the simulated server do and answer what they do on a real one."""

import pytest

from sim.redis_pair import Pair, hold_alike
from sim.redis_programs import cases, programs_are_alike
from support.sweeping import FULL


@pytest.mark.timeout(400)  # making a failure smaller takes a while
def test_any_program(pair: Pair) -> None:
    hold_alike(pair, cases, programs_are_alike, examples=500 if FULL else 150)


def test_a_subcommand_that_is_unknown_is_an_unknown_command_to_a_script(pair: Pair) -> None:
    for call in ("call", "pcall"):
        pair.do(b"EVAL", b"return redis.%b('PUBSUB', 'nope')" % call.encode(), b"0")
