"""The list of planted bugs, and how they are planted. That each is caught: `test_mutants_of_leases` and `_of_locks`."""

from collections import Counter

import pytest

from gripfast.core import rules
from gripfast.stores.redis import followers, scripts
from gripfast_lab.sim.mutants import MUTANTS, Mutant
from gripfast_lab.sim.mutants.planting import CACHES, Edit, NotThere, Rewrite
from gripfast_lab.sim.redis.lua import ENGINE
from sim.mutants_caught import told

AT_LEAST = 24
AT_LEAST_IN = {
    "deadlines": 3,
    "queue": 3,
    "renewal": 3,
    "clean-up": 3,
    "tokens": 3,
    "redlock": 15,
    "permits": 15,
    "once": 15,
    "lazy": 3,
    "etcd": 15,
}


def test_there_are_enough_in_each_area() -> None:
    areas = Counter[str](mutant.area for mutant in MUTANTS)
    assert {area: areas[area] for area, least in AT_LEAST_IN.items() if areas[area] < least} == {}
    assert len(MUTANTS) >= AT_LEAST


def test_each_has_a_name_of_its_own_and_says_what_is_wrong() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert [mutant.name for mutant in MUTANTS if not mutant.text.endswith(".")] == []


# Planting -----------------------------------------------------------------------------------------------------------


def mutant_of(*bugs: Edit | Rewrite) -> Mutant:
    return Mutant("example", "truth", "Something is wrong.", bugs)


LONGER = Edit(rules.renew_slack, "ttl / 30", "ttl / 3")


def test_an_edited_function_is_the_same_with_other_code() -> None:
    imported, before = rules.renew_slack, rules.renew_slack(30.0)
    with mutant_of(LONGER).planted():
        assert imported(30.0) == 10 * before
    assert imported(30.0) == before


def test_several_edits_of_one_function_are_made_together() -> None:
    both = mutant_of(LONGER, Edit(rules.renew_slack, "return ttl", "return 2 * ttl"))
    with both.planted():
        assert rules.renew_slack(30.0) == 20.0
    assert rules.renew_slack(30.0) == 1.0


def test_it_is_taken_out_although_the_run_fails() -> None:
    rewrite = Rewrite("redis.call('DEL', lock)", "redis.call('GET', lock)")
    with pytest.raises(ZeroDivisionError), mutant_of(LONGER, rewrite).planted():
        raise ZeroDivisionError
    assert rules.renew_slack(30.0) == 1.0
    assert ENGINE.rewrite is None


def test_all_scripts_with_the_text_are_rewritten_and_no_others() -> None:
    with mutant_of(Rewrite("redis.call('DEL', lock)", "redis.call('GET', lock)")).planted():
        assert ENGINE.rewrite is not None
        assert "'DEL'" not in ENGINE.rewrite(scripts.RELEASE.text)
        assert "'DEL'" not in ENGINE.rewrite(scripts.ABANDON.text)
        assert ENGINE.rewrite(scripts.RENEW.text) == scripts.RENEW.text


@pytest.mark.parametrize(
    "bug",
    [
        Edit(rules.renew_slack, "ttl / 31", "ttl"),
        Edit(rules.deadline, "ttl", "ttl"),
        Rewrite("redis.call('NO SUCH', lock)", ""),
    ],
    ids=["no such text in the function", "twice in the function", "in no script"],
)
def test_a_bug_without_its_place_is_refused(bug: Edit | Rewrite) -> None:
    with pytest.raises(NotThere), mutant_of(LONGER, bug).planted():
        pass
    assert rules.renew_slack(30.0) == 1.0
    assert ENGINE.rewrite is None


def test_one_bug_at_a_time() -> None:
    rewrite = mutant_of(Rewrite("redis.call('DEL', lock)", "redis.call('GET', lock)"))
    with rewrite.planted(), pytest.raises(RuntimeError), rewrite.planted():
        pass
    assert ENGINE.rewrite is None


def test_what_was_cached_is_forgotten_before_and_after() -> None:
    told(0)
    followers.wait(1, 1.0)  # of a world with replicas
    assert all(cached.cache_info().currsize for cached in CACHES)
    with mutant_of(LONGER).planted():
        assert [cached.cache_info().currsize for cached in CACHES] == [0] * len(CACHES)
        told(0)
    assert [cached.cache_info().currsize for cached in CACHES] == [0] * len(CACHES)
