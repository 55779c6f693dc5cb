"""Permits on a real Redis server: readers and writers, the limit, tokens, force releases, time and memory."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from gripfast.core import rules
from gripfast.core.ports import RW_LIMIT, Taken
from gripfast.stores.redis import permit_scripts, protocol
from gripfast.stores.redis.permit_parts import KEYS, SETTLED_MOST
from gripfast.stores.redis.scripts import MEMORY_MS, WINDOW_MS, Script
from stores.permit_bench import PermitBench, is_taken, slots_of, token_of
from support.redis_server import RedisServer

DAY_US = rules.TOKEN_MEMORY_US


@pytest.fixture(scope="module")
def bench_of_module() -> Iterator[PermitBench]:
    with RedisServer() as server:
        bench = PermitBench(server)
        yield bench
        bench.close()


@pytest.fixture
def bench(bench_of_module: PermitBench) -> PermitBench:
    bench_of_module.reset()
    return bench_of_module


# Read and write -------------------------------------------------------------------------------------------------------


@pytest.fixture
def rw(bench: PermitBench) -> PermitBench:
    bench.reset("rwlock", RW_LIMIT)
    return bench


def test_readers_share_and_a_writer_is_alone(rw: PermitBench) -> None:
    assert slots_of(rw.read("a")) == ()
    assert slots_of(rw.read("b")) == ()
    assert is_taken(rw.write("w"))
    assert is_taken(rw.read("late"))
    rw.give_back("a")
    assert rw.told() == []
    rw.give_back("b")
    assert rw.told() == ["w"]


def test_readers_that_stand_together_enter_together(rw: PermitBench) -> None:
    rw.write("w")
    readers = [f"r{number:02}" for number in range(SETTLED_MOST - 1)]
    for reader in readers:
        rw.read(reader)
    rw.write("next")
    rw.read("behind")
    rw.give_back("w")
    assert not rw.more
    assert rw.told() == readers
    assert rw.queue() == ["next", "behind"]


def test_a_downgrade_keeps_the_token_and_lets_readers_in_but_no_writer(rw: PermitBench) -> None:
    token = token_of(rw.write("w"))
    rw.read("a")
    rw.write("next")
    assert rw.downgrade("w") is None
    assert rw.told() == ["a"]
    info = rw.inspect()
    assert info is not None
    assert [(each.owner, each.n, each.token > token) for each in info.holders] == [("w", 1, False), ("a", 1, True)]
    before = rw.pool()
    assert rw.downgrade("w") is None  # a retry
    assert rw.pool() == before
    assert rw.downgrade("stranger") == "expired"


# Limit ----------------------------------------------------------------------------------------------------------------


def test_the_first_claim_sets_the_limit_which_outlives_the_holders(bench: PermitBench) -> None:
    bench.claim("a", limit=3)
    bench.give_back("a")
    answer = bench.claim("b", limit=5)
    assert isinstance(answer, Taken)
    assert (answer.limit_in_force, answer.holder) == (3, None)
    assert bench.queue() == []
    assert bench.admin.pttl(bench.key("holders")) > MEMORY_MS


def test_a_holder_and_a_waiter_may_come_with_any_limit(bench: PermitBench) -> None:
    bench.claim("a", 3)
    bench.claim("b")
    bench.resize(4)
    assert bench.told() == ["b"]
    assert slots_of(bench.claim("a", 3, limit=3)) == (0, 1, 2)
    assert slots_of(bench.claim("b", limit=3)) == (3,)


def test_growth_serves_waiters_at_once(bench: PermitBench) -> None:
    bench.claim("a", 3)
    bench.claim("b", 2)
    bench.claim("c", 2)
    bench.resize(5)
    assert bench.told() == ["b"]
    assert bench.slots() == {"a": (0, 1, 2), "b": (3, 4)}


def test_waiters_that_want_more_than_the_new_limit_are_told_to_retry_and_refused_then(bench: PermitBench) -> None:
    bench.claim("a", 3)
    bench.claim("wide", 3)
    bench.claim("b")
    bench.resize(2)
    assert bench.heard() == [protocol.Push("wide", None)]
    answer = bench.claim("wide", 3)
    assert isinstance(answer, Taken)
    assert answer.limit_in_force == 2
    assert bench.queue() == ["b"]
    bench.give_back("a")
    assert bench.told() == ["b"]


def test_so_is_one_that_was_not_heard_when_the_limit_shrank(bench: PermitBench) -> None:
    bench.claim("a")
    bench.claim("wide", 3)
    bench.listens("wide", False)
    bench.give_back("stranger")
    bench.resize(2)
    assert not bench.admin.exists(bench.key("waiters"), bench.key("unheard"))
    answer = bench.claim("wide", 3)
    assert isinstance(answer, Taken)
    assert answer.limit_in_force == 2


def test_so_is_one_that_waits_though_the_server_had_forgotten_the_limit(bench: PermitBench) -> None:
    bench.claim("a", 2)
    bench.claim("wide", 3)
    bench.claim("b")
    bench.set_pool(limit=2)
    bench.ends("a")
    answer = bench.claim("wide", 3)
    assert isinstance(answer, Taken)
    assert answer.limit_in_force == 2
    assert bench.told() == ["b"]  # by the same request
    assert bench.queue() == []


def test_a_limit_can_be_set_before_anybody_has_used_the_name(bench: PermitBench) -> None:
    bench.resize(5)
    assert is_taken(bench.claim("a", limit=3))
    assert slots_of(bench.claim("a", limit=5)) == (0,)
    assert bench.admin.pttl(bench.key("holders")) > 0


# Tokens ---------------------------------------------------------------------------------------------------------------


def test_a_token_is_the_time_or_the_last_one_and_one(bench: PermitBench) -> None:
    first = token_of(bench.claim("a"))
    assert abs(first - time.time_ns() // 1000) < 5_000_000
    future = first + 100 * DAY_US
    bench.set_pool(token=future)
    assert token_of(bench.claim("b")) == future + 1
    bench.claim("c")
    bench.claim("d", 2)
    bench.give_back("b")
    bench.give_back("c")
    assert [push.granted.token for push in bench.heard() if push.granted] == [future + 3]
    assert bench.admin.pttl(bench.key("holders")) > 100 * DAY_US / 1000
    info = bench.inspect()
    assert info is not None
    assert all(abs(cast(Any, each.since).timestamp() - time.time()) < 5 for each in info.holders)


def test_what_is_no_token_is_not_counted_on(bench: PermitBench) -> None:
    bench.claim("a")
    bench.set_pool(token=2**53)
    assert token_of(bench.claim("b")) < 2**52


def test_who_is_refused_is_told_the_last_token_and_who_ends_first(bench: PermitBench) -> None:
    bench.claim("long", ttl=60.0)
    bench.claim("short", ttl=20.0)
    last = token_of(bench.claim("middle", ttl=40.0))
    answer = bench.claim("waiter")
    assert isinstance(answer, Taken)
    assert answer.token == last
    assert answer.holder is not None
    assert (answer.holder.owner, answer.holder.label, answer.holder.waiters) == ("short", "label of short", 1)
    assert answer.holder.expires_in == pytest.approx(20, abs=2)
    assert answer.holder.token < last


# Force release --------------------------------------------------------------------------------------------------------


def test_a_force_release_names_an_owner_or_a_slot_or_takes_all(bench: PermitBench) -> None:
    bench.limit = 10
    for owner in "abcd":
        bench.claim(owner, 2)
    assert not bench.force_release(owner="stranger")
    assert not bench.force_release(slot=9)
    assert bench.force_release(owner="a", note="deploy of v2\nsecond line")
    assert bench.force_release(slot=5)
    assert bench.slots() == {"b": (2, 3), "d": (6, 7)}
    assert bench.renew("a") == "broken\ndeploy of v2\nsecond line"
    assert bench.give_back("c") == "broken"
    assert bench.force_release(note="all")
    assert (bench.inspect(), bench.pool().used) == (None, 0)
    assert [bench.give_back(owner) for owner in "bd"] == ["broken\nall"] * 2
    assert not bench.force_release()
    assert slots_of(bench.claim("e", 10)) == tuple(range(10))


def test_waiters_are_served_by_the_same_step(bench: PermitBench) -> None:
    bench.claim("a", 3)
    bench.claim("b", 3)
    assert bench.force_release()
    assert bench.told() == ["b"]


def test_one_whose_time_was_over_was_not_removed_by_force(bench: PermitBench) -> None:
    for owner in "ab":
        bench.claim(owner)
        bench.ends(owner)
    assert not bench.force_release(owner="a")
    assert not bench.force_release()
    assert bench.renew("a") == "expired"


def test_that_it_was_broken_is_remembered_as_long_as_it_would_have_been_held_and_not_much_longer(
    bench: PermitBench,
) -> None:
    bench.claim("a", ttl=60.0)
    bench.claim("b", ttl=20.0)
    bench.force_release(owner="a", note="x")
    bench.force_release(owner="b", note="x")
    for part in ("broken", "notes"):
        assert 50_000 < bench.admin.pttl(bench.key(part)) <= 60_001
    bench.admin.zadd(bench.key("broken"), {"b": 1.0})
    bench.force_release(owner="stranger")
    assert bench.admin.zrange(bench.key("broken"), 0, -1) == bench.admin.hkeys(bench.key("notes")) == [b"a"]


# Time and memory ------------------------------------------------------------------------------------------------------


def test_each_holder_expires_alone_and_the_keys_live_as_long_as_the_longest(bench: PermitBench) -> None:
    bench.claim("long", ttl=7200.0)
    bench.claim("short", ttl=0.05)
    for part in ("holders", "ends"):
        assert bench.admin.pttl(bench.key(part)) > 7_100_000 + MEMORY_MS
    bench.give_back("long")
    bench.claim("again", ttl=0.05)
    assert bench.admin.pttl(bench.key("ends")) > 7_100_000 + MEMORY_MS
    bench.renew("again", 80_000.0)
    assert bench.admin.pttl(bench.key("ends")) > 79_000_000 + MEMORY_MS


def test_every_key_expires(bench: PermitBench) -> None:
    bench.claim("a", 2)
    bench.claim("b")
    bench.claim("unheard", 3)
    bench.listens("unheard", False)
    bench.claim("c", 3)
    bench.give_back("b")
    bench.claim("d", 3)
    bench.force_release(owner="a", note="x")
    bench.claim("e")
    bench.claim("unheard", 3)
    bench.listens("unheard", False)
    bench.give_back("stranger")
    seen = {key: bench.admin.pttl(key) for key in bench.admin.scan_iter()}
    assert all(left > 0 for left in seen.values()), seen
    assert len(seen) >= len(KEYS) - 1
    assert max(left for key, left in seen.items() if b"queue" in key or b"wait" in key) <= WINDOW_MS


def test_free_slots_are_remembered_as_long_as_the_others(bench: PermitBench) -> None:
    bench.claim("a")
    bench.claim("b")
    bench.give_back("a")
    bench.renew("b", 80_000.0)
    free, ends = (bench.admin.pttl(bench.key(part)) for part in ("free", "ends"))
    assert abs(free - ends) < 1000


@pytest.mark.parametrize("evicted", ["ends", "holders"])
def test_a_name_of_which_the_server_has_evicted_a_part_can_still_be_used(bench: PermitBench, evicted: str) -> None:
    bench.claim("a")
    bench.claim("b", 2)
    bench.give_back("a")
    assert bench.admin.delete(bench.key(evicted))
    if evicted == "holders":
        assert slots_of(bench.claim("first")) == (0,)
        assert not bench.admin.exists(bench.key("free"))
        bench.give_back("first")
    assert slots_of(bench.claim("c", 3)) == (0, 1, 2)
    assert bench.give_back("b") == "expired"
    assert bench.slots() == {"c": (0, 1, 2)}


def test_one_request_removes_and_serves_a_bounded_number_and_says_that_there_is_more(bench: PermitBench) -> None:
    bench.limit = 1000
    crowd = [f"o{number:04}" for number in range(2 * SETTLED_MOST + 50)]
    for owner in crowd:
        bench.claim(owner, waits=False)
    for owner in crowd:
        bench.ends(owner)
    rounds = 1
    bench.give_back("stranger")
    while bench.more:
        rounds += 1
        bench.give_back("stranger")
    assert rounds == 3
    assert bench.pool().used == 0


def test_a_crowd_of_waiters_that_left_is_removed_in_as_many_requests(bench: PermitBench) -> None:
    bench.claim("a", 3)
    crowd = [f"o{number}" for number in range(2 * SETTLED_MOST + 50)]
    for owner in crowd:
        bench.claim(owner, 3)
    bench.claim("living", 3)
    for owner in crowd:
        bench.listens(owner, False)
    bench.give_back("a")
    rounds = 1
    while bench.more:
        rounds += 1
        bench.give_back("stranger")
    assert rounds == 3
    assert bench.told() == ["living"]


def test_10_000_holders_cost_what_10_do(bench: PermitBench) -> None:
    """By the commands that a claim and a release are on the server: none of them looks at all holders."""
    bench.limit = 100_000
    assert commands_of_a_pair(bench, 10) == commands_of_a_pair(bench, 10_000)


def commands_of_a_pair(bench: PermitBench, holders: int) -> dict[str, int]:
    for number in range(holders):
        bench.claim(f"{holders}-{number}", waits=False)
    for number in range(0, holders, 3):
        bench.give_back(f"{holders}-{number}")
    bench.claim(f"{holders}-a", waits=False)
    bench.admin.config_resetstat()
    bench.claim(f"{holders}-b", waits=False)
    bench.give_back(f"{holders}-a")
    stats = bench.admin.info("commandstats")
    assert not any(re.search("hgetall|hkeys|hvals", name) for name in stats)
    return {name: cast(Any, of)["calls"] for name, of in stats.items() if "config" not in name}


@pytest.mark.parametrize("script", [each for each in vars(permit_scripts).values() if isinstance(each, Script)])
def test_the_server_knows_a_script_by_the_hash_that_is_sent(bench: PermitBench, script: Script) -> None:
    assert bench.admin.script_load(script.text) == script.sha
