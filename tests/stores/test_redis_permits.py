"""Who gets permits on a real Redis server: slots, repeated claims, the queue. What each rule of `core/permits.py` means
there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import pytest

from gripfast.core.ports import Granted, Taken
from gripfast.stores.redis import permit_protocol, permit_scripts, protocol
from gripfast.stores.redis.permit_parts import SETTLED_MOST
from gripfast.stores.redis.scripts import WINDOW_MS
from stores.permit_bench import NAME, PermitBench, channel_of, is_taken, slots_of, token_of
from support.redis_server import RedisServer


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
