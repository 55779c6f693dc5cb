"""Permits on a real Redis server: what each rule of `core/permits.py` means there, and any order of requests against
the pure decision (`stores/permits.py`)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from gripfast.core import rules
from gripfast.core.ports import RW_LIMIT, Granted, Taken
from gripfast.stores import permits
from gripfast.stores.granting import Now
from gripfast.stores.permits import Holder, Pool, Settlement, Waiter
from gripfast.stores.redis import permit_protocol, permit_scripts, protocol
from gripfast.stores.redis.permit_scripts import SETTLED_MOST
from gripfast.stores.redis.scripts import MEMORY_MS, WINDOW_MS, Script
from stores.permit_bench import NAME, PermitBench, channel_of
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


def slots_of(answer: Granted | Taken) -> tuple[int, ...]:
    assert isinstance(answer, Granted), answer
    return answer.slots


def token_of(answer: Granted | Taken) -> int:
    assert isinstance(answer, Granted), answer
    return answer.token


def is_taken(answer: Granted | Taken) -> bool:
    return isinstance(answer, Taken)


# Slots ----------------------------------------------------------------------------------------------------------------


def test_a_grant_gets_the_lowest_free_slots(bench: PermitBench) -> None:
    bench.limit = 10
    assert slots_of(bench.claim("a", 2)) == (0, 1)
    assert slots_of(bench.claim("b")) == (2,)
    assert slots_of(bench.claim("c", 3)) == (3, 4, 5)
    bench.give_back("b")
    bench.give_back("a")
    assert slots_of(bench.claim("d")) == (0,)
    assert slots_of(bench.claim("e", 4)) == (1, 2, 6, 7)
    bench.give_back("c")
    assert slots_of(bench.claim("f", 2)) == (3, 4)


def test_when_all_are_free_slots_begin_at_0_and_nothing_is_left_of_the_old_ones(bench: PermitBench) -> None:
    bench.claim("a")
    bench.claim("b")
    bench.give_back("a")
    bench.give_back("b")
    assert not bench.admin.exists(bench.key("free"), bench.key("ends"))
    assert slots_of(bench.claim("c", 3)) == (0, 1, 2)


def test_the_slots_of_a_holder_that_expired_are_free(bench: PermitBench) -> None:
    bench.claim("a")
    bench.claim("b", 2)
    bench.ends("a")
    assert slots_of(bench.claim("c")) == (0,)


def test_after_shrinking_the_slots_are_below_the_new_limit(bench: PermitBench) -> None:
    bench.limit = 6
    for owner in "abcdef":
        bench.claim(owner)
    bench.resize(3)
    for owner in "abcd":
        bench.give_back(owner)
    assert slots_of(bench.claim("g", limit=3)) == (0,)
    assert is_taken(bench.claim("h", limit=3, waits=False))
    assert bench.slots() == {"e": (4,), "f": (5,), "g": (0,)}


def test_many_permits_are_granted_and_released_at_the_price_of_one(bench: PermitBench) -> None:
    bench.limit = 100_000
    assert slots_of(bench.claim("a", 50_000)) == tuple(range(50_000))
    bench.claim("b", 50_000)
    bench.give_back("a")
    assert bench.admin.zcard(bench.key("free")) == 1


# Yours ----------------------------------------------------------------------------------------------------------------


def test_a_claim_that_is_repeated_is_answered_what_is_recorded(bench: PermitBench) -> None:
    first = bench.claim("a", 2)
    again = bench.claim("a", 1)
    assert (token_of(again), slots_of(again)) == (token_of(first), slots_of(first))
    assert bench.pool().used == 2


def test_a_renewal_sets_the_expiry_and_nothing_else(bench: PermitBench) -> None:
    bench.claim("a", 2, ttl=5.0)
    before = bench.admin.hgetall(bench.key("holders"))
    assert bench.renew("a", 60.0) is None
    assert bench.admin.hgetall(bench.key("holders")) == before
    assert left(bench, "a") == pytest.approx(60, abs=2)


def test_a_renewal_never_sets_what_is_absent(bench: PermitBench) -> None:
    bench.claim("a")
    bench.claim("b")
    bench.ends("a")
    assert bench.renew("a") == "expired"
    assert bench.renew("nobody") == "expired"
    assert list(bench.slots()) == ["b"]


def test_only_a_renewal_that_is_told_to_shortens(bench: PermitBench) -> None:
    bench.claim("a", ttl=60.0)
    bench.renew("a", 5.0)
    bench.claim("a", ttl=5.0)
    assert left(bench, "a") == pytest.approx(60, abs=2)
    bench.renew("a", 5.0, shortens=True)
    assert left(bench, "a") == pytest.approx(5, abs=2)


def test_a_release_after_the_end_is_none(bench: PermitBench) -> None:
    bench.limit = 1000
    crowd = [f"o{number}" for number in range(SETTLED_MOST + 1)]
    for owner in crowd:
        bench.claim(owner, waits=False)
    for owner in crowd:
        bench.ends(owner)
    bench.ends(crowd[-1], ago_ms=10)  # the last to end, so that this request does not come to remove it
    assert bench.give_back(crowd[-1]) == "expired"
    assert bench.pool().used == 0


def test_an_owner_whose_time_is_over_is_a_newcomer(bench: PermitBench) -> None:
    first = bench.claim("a", 3)
    bench.ends("a")
    again = bench.claim("a", 1)
    assert token_of(again) > token_of(first)
    assert slots_of(again) == (0,)


def test_it_is_one_too_if_there_are_more_to_remove_than_one_request_does(bench: PermitBench) -> None:
    bench.limit = 1000
    crowd = [f"o{number}" for number in range(SETTLED_MOST + 1)]
    tokens = [token_of(bench.claim(owner, waits=False)) for owner in crowd]
    for owner in crowd:
        bench.ends(owner)
    bench.ends(crowd[-1], ago_ms=10)  # the last to end
    again = bench.claim(crowd[-1], 2, waits=False)
    assert bench.more
    assert token_of(again) > max(tokens)
    assert len(slots_of(again)) == 2
    assert bench.pool().used == 2


def left(bench: PermitBench, owner: str) -> float:
    info = bench.inspect()
    assert info is not None
    return next(holder.expires_in for holder in info.holders if holder.owner == owner)


# Queue ----------------------------------------------------------------------------------------------------------------


def test_nobody_passes_the_head_of_the_queue(bench: PermitBench) -> None:
    bench.claim("a", 2)
    assert is_taken(bench.claim("wide", 2))
    assert is_taken(bench.claim("narrow", 1))  # it would fit
    assert is_taken(bench.claim("try", 1, waits=False))
    assert bench.queue() == ["wide", "narrow"]
    bench.give_back("a")
    assert [push.owner for push in bench.heard()] == ["wide", "narrow"]
    assert bench.slots() == {"wide": (0, 1), "narrow": (2,)}


def test_a_push_tells_token_slots_and_at_most_the_window(bench: PermitBench) -> None:
    bench.claim("a", 3)
    bench.claim("b", 2, ttl=60.0)
    bench.claim("c", 1, ttl=4.0)
    bench.give_back("a")
    info = bench.inspect()
    assert info is not None
    expected = [
        protocol.Push(each.owner, Granted(each.token, ttl, source=channel_of(each.owner), slots=each.slots))
        for each, ttl in zip(info.holders, (10.0, 4.0), strict=True)
    ]
    assert bench.heard() == expected
    assert info.holders[0].expires_in <= 10.0


def test_a_try_that_is_refused_leaves_nothing_behind(bench: PermitBench) -> None:
    bench.claim("a", 3)
    before = dump(bench)
    assert is_taken(bench.claim("b", waits=False))
    assert dump(bench) == before


def test_a_waiter_that_claims_again_keeps_its_position_and_its_n(bench: PermitBench) -> None:
    bench.claim("a", 3)
    bench.claim("b", 2)
    bench.claim("c", 1)
    bench.claim("b", 1)
    assert bench.queue() == ["b", "c"]
    bench.give_back("a")
    assert bench.slots() == {"b": (0, 1), "c": (2,)}


def dump(bench: PermitBench) -> dict[bytes, bytes | None]:
    return {key: bench.admin.dump(key) for key in bench.admin.scan_iter()}


REQUESTS: dict[str, Callable[[PermitBench], object]] = {
    "a claim": lambda bench: bench.claim("stranger", waits=False),
    "a claim of a holder": lambda bench: bench.claim("living"),
    "a claim that is refused because of its limit": lambda bench: bench.claim("stranger", limit=7),
    "a release": lambda bench: bench.give_back("stranger"),
    "a clean-up for a waiter": lambda bench: bench.give_back("last"),
    "a downgrade that is refused": lambda bench: bench.downgrade("stranger"),
    "a resize": lambda bench: bench.resize(3),
    "a force release of nobody": lambda bench: bench.force_release(owner="stranger"),
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_every_request_serves_the_queue(bench: PermitBench, request_: Callable[[PermitBench], object]) -> None:
    bench.claim("dead", 2)
    bench.claim("living")
    bench.claim("waiter")
    bench.claim("last", 3)
    bench.ends("dead")
    request_(bench)
    assert bench.told() == ["waiter"]


GONE: dict[str, Callable[[PermitBench], None]] = {
    "not seen": lambda bench: bench.ages("head", WINDOW_MS + 1000),
    "unheard": lambda bench: bench.listens("head", False),
    "forgotten": lambda bench: cast(None, bench.admin.hdel(bench.key("waiters"), "head")),
}


@pytest.mark.parametrize("goes", GONE.values(), ids=GONE)
def test_a_head_that_left_blocks_nobody_even_if_it_would_not_fit(
    bench: PermitBench, goes: Callable[[PermitBench], None]
) -> None:
    bench.claim("a", 2)
    bench.claim("head", 3)
    bench.claim("b")
    goes(bench)
    bench.give_back("stranger")
    assert bench.told() == ["b"]
    assert slots_of(bench.claim("a")) == (0, 1)
    assert bench.queue() == []


def test_a_waiter_that_nobody_hears_gets_its_old_position_when_it_claims_again(bench: PermitBench) -> None:
    bench.claim("a", 3)
    bench.claim("deaf", 3)
    bench.claim("b", 3)
    bench.listens("deaf", False)
    bench.give_back("stranger")
    assert bench.queue() == ["b"]
    answer = bench.claim("deaf", 3)
    assert isinstance(answer, Taken)
    assert answer.source == channel_of("deaf")
    assert bench.queue() == ["deaf", "b"]
    bench.give_back("a")
    assert bench.told() == ["deaf"]


def test_so_does_one_that_has_no_channel_yet(bench: PermitBench) -> None:
    bench.claim("a", 3)
    bench.claim("deaf", 3)
    bench.listens("deaf", False)
    bench.give_back("a")
    assert bench.slots() == {}
    assert slots_of(bench.claim("deaf", 3, waits=False)) == (0, 1, 2)


def test_waiters_that_never_came_back_are_forgotten_though_others_wait(bench: PermitBench) -> None:
    bench.claim("a", 3)
    for number in range(20):
        bench.claim(f"w{number:02}")
        bench.listens(f"w{number:02}", False)
    bench.give_back("stranger")
    assert bench.admin.hlen(bench.key("waiters")) == 20
    bench.admin.zadd(bench.key("unheard"), {f"w{number:02}": 1.0 for number in range(20)})
    for number in range(20, 30):
        bench.claim(f"w{number}")
        bench.listens(f"w{number}", False)
    bench.give_back("stranger")
    assert set(bench.admin.hkeys(bench.key("waiters"))) == {b"w%d" % number for number in range(20, 30)}


def test_nothing_is_published_to_a_channel_that_nobody_listens_to(bench: PermitBench) -> None:
    """A subscriber to the same channel at a replica would hear it, and believe it."""
    bench.claim("a", 3)
    bench.claim("deaf", 2)
    bench.claim("wide", 3)
    for owner in ("deaf", "wide"):
        bench.listens(owner, False)
    token = bench.pool().token
    bench.published()
    bench.admin.zadd(bench.key("queue"), {"wide": 0})  # though it does not listen: nobody has looked yet
    bench.resize(2)
    bench.give_back("a")
    assert bench.published() == []
    assert bench.pool().token == token  # nor was anything granted


def test_nobody_is_told_of_a_grant_that_could_not_be_written(bench: PermitBench) -> None:
    bench.claim("a", 3)
    bench.claim("b")
    bench.set_pool(limit=4)  # it fits, so that the grant is the first write
    bench.admin.config_set("min-replicas-to-write", 1)
    try:
        packed = permit_protocol.give_back(NAME, "semaphore", "stranger")
        assert "NOREPLICAS" in str(bench.ask(permit_scripts.GIVE_BACK, packed))
    finally:
        bench.admin.config_set("min-replicas-to-write", 0)
    assert bench.heard() == []
    assert list(bench.slots()) == ["a"]


def test_a_grant_that_may_not_be_published_is_taken_back(bench: PermitBench) -> None:
    bench.claim("a")
    bench.claim("b", 2)
    bench.claim("c", 2)
    bench.admin.execute_command("ACL", "SETUSER", "default", "-publish")
    try:
        packed = permit_protocol.give_back(NAME, "semaphore", "b")
        assert "can't run this command" in str(bench.ask(permit_scripts.GIVE_BACK, packed))
    finally:
        bench.admin.execute_command("ACL", "SETUSER", "default", "+publish")
    assert list(bench.slots()) == ["a"]
    assert bench.pool().used == 1
    assert bench.queue() == ["c"]
    bench.give_back("stranger")
    assert bench.told() == ["c"]
    assert bench.slots() == {"a": (0,), "c": (1, 2)}


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
    assert len(seen) >= len(permit_scripts.KEYS) - 1
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


# Any order of requests ------------------------------------------------------------------------------------------------

OWNERS = ["a", "b", "c", "d", "e"]
owners = st.sampled_from(OWNERS)
sizes = st.integers(1, 3)


class Machine(RuleBasedStateMachine):
    """Every rule does the same to the server and to the pure decision, and compares all that can be seen."""

    def __init__(self, bench: PermitBench) -> None:
        super().__init__()
        self.bench = bench
        bench.reset("semaphore", 3)
        for owner in OWNERS:
            bench.listens(owner, True)
        self.pool = Pool()
        self.holders: dict[str, Holder] = {}
        self.queue: list[Waiter] = []
        self.deaf: set[str] = set()
        self.tokens: dict[str, int] = {}
        """The server's, of each holder."""
        self.last_token = 0
        self.tickets = 0

    def now(self) -> Now:
        return Now(time.time(), time.time_ns() // 1000, lambda details: False)

    def begin(self, but: str | None = None) -> None:
        """Nobody hears those who are deaf; who claims just now is served."""
        self.queue = [each._replace(muted=each.owner in self.deaf and each.owner != but) for each in self.queue]

    def end(self, settlement: Settlement) -> None:
        self.pool = settlement.pool
        self.holders = dict(settlement.holders)
        self.queue = list(settlement.queue)
        self.compare([waiter.owner for waiter, _ in settlement.handed], {waiter.owner for waiter in settlement.told})

    @rule(owner=owners, n=sizes, waits=st.booleans(), other_limit=st.sampled_from([False, False, False, True]))
    def claims(self, owner: str, n: int, waits: bool, other_limit: bool) -> None:
        limit = (self.pool.limit or 3) + other_limit
        n = min(n, limit)
        queued = next((each for each in self.queue if each.owner == owner), None)
        if queued is not None or owner in self.holders:
            waits = True
        if waits and owner in self.deaf:
            self.deaf.discard(owner)
            self.bench.listens(owner, True)
        answer = self.bench.claim(owner, n, 60.0, waits, limit)
        now = self.now()
        self.begin(owner)
        if queued is not None:
            self.queue = [each._replace(seen=now.clock) if each.owner == owner else each for each in self.queue]
        claimant = Waiter(0, owner, n, 60.0, now.clock, owner, owner)
        settlement = permits.claim(self.pool, self.holders.values(), self.queue, claimant, limit, now)
        if settlement.granted is not None:
            assert slots_of(answer) == settlement.granted.slots
        else:
            assert isinstance(answer, Taken)
            assert answer.limit_in_force == settlement.limit_in_force
            if queued is None and settlement.limit_in_force is None and waits:
                self.tickets += 1
                settlement.queue.append(claimant._replace(ticket=self.tickets))
        self.end(settlement)

    @rule(owner=owners)
    def goes_away(self, owner: str) -> None:
        gone = self.bench.give_back(owner)
        self.begin()
        settlement = permits.leave(self.pool, self.holders.values(), self.queue, owner, self.now())
        assert (gone is None) == bool(settlement.removed)
        self.end(settlement)

    @rule(owner=owners)
    def renews(self, owner: str) -> None:
        assert (self.bench.renew(owner, 60.0) is None) == (owner in self.living())
        if owner in self.living():
            self.holders[owner] = permits.renewed(self.holders[owner], 60.0, self.now())

    @rule(limit=st.integers(1, 6))
    def resizes(self, limit: int) -> None:
        self.bench.resize(limit)
        self.begin()
        self.end(permits.resize(self.pool, self.holders.values(), self.queue, limit, self.now()))

    @rule(owner=st.none() | owners, slot=st.none() | st.integers(0, 6))
    def is_broken(self, owner: str | None, slot: int | None) -> None:
        slot = None if owner is not None else slot
        removed = self.bench.force_release(owner, slot)
        self.begin()
        settlement = permits.force_release(self.pool, self.holders.values(), self.queue, owner, slot, self.now())
        assert removed == bool(settlement.removed)
        self.end(settlement)

    @precondition(lambda self: self.living())
    @rule(data=st.data())
    def expires(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(sorted(self.living())))
        self.bench.ends(owner)
        self.holders[owner] = self.holders[owner]._replace(expires=0.0)

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def is_cut_off(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(self.queue)).owner
        self.bench.listens(owner, False)
        self.deaf.add(owner)

    @precondition(lambda self: any(each.owner not in self.deaf for each in self.queue))
    @rule(data=st.data())
    def is_not_seen_for_a_while(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from([each.owner for each in self.queue if each.owner not in self.deaf]))
        self.bench.ages(owner, WINDOW_MS + 1000)
        self.queue = [each._replace(seen=0.0) if each.owner == owner else each for each in self.queue]

    # The same on both sides -------------------------------------------------------------------------------------------

    def living(self) -> set[str]:
        return {owner for owner, holder in self.holders.items() if holder.expires > 0.0}

    def compare(self, handed: list[str], told: set[str]) -> None:
        pushes = self.bench.heard()
        assert [push.owner for push in pushes if push.granted is not None] == handed
        assert {push.owner for push in pushes if push.granted is None} == told - self.deaf
        info = self.bench.inspect()
        seen = {} if info is None else {holder.owner: holder for holder in info.holders}
        assert {owner: (each.n, each.slots) for owner, each in seen.items()} == {
            owner: (each.n, each.slots) for owner, each in self.holders.items()
        }
        self.compare_tokens({owner: holder.token for owner, holder in seen.items()})
        queue = self.bench.queue()
        assert [each.owner for each in self.queue if each.owner in queue] == queue
        assert {each.owner for each in self.queue if each.owner not in queue} <= self.deaf
        self.compare_slots()
        assert all(self.bench.admin.pttl(key) > 0 for key in self.bench.admin.scan_iter())

    def compare_tokens(self, tokens: dict[str, int]) -> None:
        """In the order of the grants, and each larger than all before."""
        in_order = sorted(tokens, key=lambda owner: self.holders[owner].token)
        assert in_order == sorted(tokens, key=lambda owner: tokens[owner])
        for owner, token in tokens.items():
            assert self.tokens.get(owner) == token or token > self.last_token
        self.tokens, self.last_token = tokens, max([self.last_token, *tokens.values()])

    def compare_slots(self) -> None:
        if not self.bench.admin.exists(self.bench.key("holders")):
            return
        pool = self.bench.pool()
        assert pool.limit == self.pool.limit
        assert pool.used == sum(holder.n for holder in self.holders.values())
        free = [slot for text in self.bench.admin.zrange(self.bench.key("free"), 0, -1) for slot in read(text)]
        used = [slot for holder in self.holders.values() for slot in holder.slots]
        assert sorted([*free, *used]) == list(range(pool.top))


def read(text: Any) -> tuple[int, ...]:
    return protocol.read_slots(text)


def test_any_order_of_requests(bench: PermitBench) -> None:
    quick = settings(max_examples=60, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(cast(Any, lambda: Machine(bench)), settings=quick)
