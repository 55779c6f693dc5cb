"""Planted bugs in who gets the lock, with which token, and what is left behind: each is caught, and taken out again."""

import pytest

from gripfast_lab.sim.mutants import Mutant
from sim.mutants_caught import check_that_it_is_caught, mutants_in

each_mutant = pytest.mark.parametrize(
    "mutant", mutants_in("queue", "clean-up", "tokens", "lazy"), ids=lambda mutant: mutant.name
)


@pytest.mark.in_turn(4)
@each_mutant
def test_it_is_caught_by_a_rule_and_only_with_the_bug_of_which_nothing_stays(mutant: Mutant) -> None:
    check_that_it_is_caught(mutant)
