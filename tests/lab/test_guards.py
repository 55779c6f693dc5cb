"""A program that the lab could not judge is refused, instead of being found right."""

from collections.abc import Generator
from typing import Any

import pytest

from gripfast_lab.engines.redis import Alone, Several
from gripfast_lab.model import Lab
from gripfast_lab.moves import DONE, WORK, Move, Outcome, Program, ask, clock, elapsed, enter, leave, rest
from gripfast_lab.sim.explore import explore
from gripfast_lab.world import CRASH, Protocol

Attempt = Generator[Move, Any, Outcome]


def odd_ttl(me: str) -> Attempt:
    yield ask(f"SET lock {me} NX PX 1500")
    return DONE


def no_return(me: str) -> Attempt:  # type: ignore[return]
    yield ask(f"SET lock {me} NX EX 30")


def asks_the_time(me: str) -> Attempt:
    yield clock()
    return DONE


def asks_how_long(me: str) -> Attempt:
    yield elapsed()
    return DONE


def enters_first(me: str) -> Attempt:
    yield enter()
    yield rest(WORK)
    yield leave()
    return DONE


def asks_one_node(me: str) -> Attempt:
    yield ask(f"SET lock {me} NX EX 30", at="n1")
    return DONE


def over_before_it_begins(me: str) -> Attempt:
    yield ask(f"SET lock {me} NX EX 30")
    yield enter(lasts=0)
    return DONE


@pytest.mark.parametrize(
    ("program", "in_step", "why"),
    [
        (odd_ttl, False, "whole seconds"),
        (no_return, False, "returning DONE or REFUSED"),
        (asks_the_time, False, "tells_time"),
        (asks_how_long, False, "takes_time"),
        (enters_first, True, "begin by asking"),
        (asks_one_node, True, "ask all nodes"),
        (over_before_it_begins, False, "over"),
    ],
)
def test_what_could_not_be_judged_is_refused(program: Program, in_step: bool, why: str) -> None:
    engine = Several(3) if in_step else Alone()
    with pytest.raises(ValueError, match=why):
        explore(Lab("odd", Protocol(program, engine, in_step=in_step)))


def test_a_rest_takes_a_second_at_least() -> None:
    with pytest.raises(ValueError, match="second"):
        rest(0)


def test_clients_in_step_have_no_faults() -> None:
    with pytest.raises(ValueError, match="in step"):
        Protocol(odd_ttl, Several(3), faults={CRASH: 1}, in_step=True)
