"""A simulated replica has what a real one has, refuses what that refuses, and is who that is after each failover."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gripfast.stores.redis.protocol import command
from gripfast_lab.sim.redis import replication
from gripfast_lab.sim.redis.database import Database
from gripfast_lab.sim.redis.replication import Follower, ReplicatedServer
from sim.redis_copies import FIRST, SECOND, Copies, copies
from sim.redis_programs import programs
from sim.redis_words import plain

Case = list[tuple[int, tuple[bytes, ...]]]

scripts = programs.map(lambda text: (b"EVAL", text.encode(), b"2", b"a", b"b", b"7", b"x"))
requests = st.tuples(st.sampled_from([FIRST, FIRST, FIRST, SECOND]), st.one_of(plain, plain, scripts))


@pytest.fixture(scope="module")
def both() -> Iterator[Copies]:
    with copies() as both:
        yield both


def alike(both: Copies, case: Case) -> None:
    both.do(FIRST, b"FLUSHALL")
    both.catch_up()
    for place, words in case:
        both.do(place, *words)
        both.catch_up()
    both.compare()


def hold_alike(both: Copies, examples: int) -> None:
    @settings(
        max_examples=examples, phases=(Phase.generate,), report_multiple_bugs=False, database=None, derandomize=True
    )
    @given(st.lists(requests, min_size=3, max_size=12))
    def run(case: Case) -> None:
        alike(both, case)

    run()


def test_a_replica_has_what_its_primary_has_written_and_takes_no_writes(both: Copies) -> None:
    both.listens(FIRST, b"news")
    both.listens(SECOND, b"news")
    hold_alike(both, examples=60)


def changes_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replication.ReplicatedDatabase, "expire_at", Database.expire_at)


def says_nothing(patch: pytest.MonkeyPatch) -> None:
    receive = ReplicatedServer.receive
    patch.setattr(ReplicatedServer, "receive", lambda server, what: receive(server, without_messages(what)))


def without_messages(what: Any) -> Any:
    return what._replace(published=()) if isinstance(what, replication.Effect) else what


def takes_writes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replication.ReplicatedDatabase, "is_read_only", False)


@pytest.mark.parametrize("plant", [changes_nothing, says_nothing, takes_writes])
def test_a_planted_difference_is_caught(both: Copies, monkeypatch: pytest.MonkeyPatch, plant: Any) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        with pytest.raises(AssertionError, match="the simulated one"):
            hold_alike(both, examples=200)


def test_who_a_server_is_after_promotions_and_demotions() -> None:
    """Ids by the order in which they come: a server that is demoted keeps its run id; a promotion changes the replid,
    and a sync takes over the primary's."""
    with copies() as both:
        seen: list[list[tuple[str, int, int, str]]] = [[], []]
        ids: list[dict[str, int]] = [{}, {}]

        def look() -> None:
            told = both.identity()
            for side, servers in enumerate((told[:2], told[2:])):
                for role, run_id, replid, followers in servers:
                    numbers = ids[side]
                    run, history = (numbers.setdefault(each, len(numbers)) for each in (run_id, replid))
                    seen[side].append((role, run, history, followers))

        look()
        both.do(FIRST, b"SET", b"a", b"1")
        both.catch_up()
        both.promote(SECOND)
        look()
        both.do(FIRST, b"SET", b"a", b"old")
        both.demote(FIRST, syncs=False)
        look()
        assert both.do(FIRST, b"GET", b"a") == b"old"
        both.promote(FIRST)
        look()
        both.promote(FIRST)  # which it is already
        look()
        both.demote(FIRST)
        look()
        both.compare(SECOND)
        both.promote(FIRST)
        both.demote(SECOND)
        look()
        both.compare()
        assert seen[1] == seen[0]


# WAIT -----------------------------------------------------------------------------------------------------------------


def test_wait_is_answered_when_a_follower_has_acknowledged(both: Copies) -> None:
    packed = command(b"SET", b"a", b"1") + command(b"WAIT", b"1", b"5000") + command(b"GET", b"a")
    assert both.real[FIRST].packed(packed, 3) == [b"OK", 1, b"1"]
    server, late = ReplicatedServer(lambda: 0, "s"), list[Any]()
    follower = Follower(lambda what: None)
    server.add(follower)
    assert server.connect(None, late.extend).receive(packed) == [b"OK"]
    server.acknowledge(follower, 0)
    assert late == []
    server.acknowledge(follower, 1)
    assert late == [1, b"1"]


def test_wait_after_nothing_was_written_is_answered_at_once() -> None:
    server = ReplicatedServer(lambda: 0, "s")
    follower = Follower(lambda what: None)
    server.add(follower)
    server.acknowledge(follower, 0)
    server.connect().receive(command(b"SET", b"a", b"1"))
    assert server.connect().receive(command(b"DEL", b"b") + command(b"WAIT", b"1", b"0")) == [0, 1]


def test_wait_ends_with_its_time_and_with_the_primary() -> None:
    timers, late = list[Any](), list[Any]()
    server = ReplicatedServer(lambda: 0, "s", lambda seconds, call: timers.append((seconds, call)))
    server.connect(None, late.append).receive(command(b"WAIT", b"1", b"110"))
    ((seconds, call),) = timers
    call()
    assert (seconds, late) == (0.2, [[0]])
    server.connect(None, late.append).receive(command(b"WAIT", b"1", b"0") + command(b"PING"))
    server.demote()
    assert [str(each) for each in late[1]] == [
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
    ]
    assert late[2] == []


def test_a_replica_and_wait(both: Copies) -> None:
    both.do(SECOND, b"WAIT", b"0", b"0")
    both.do(FIRST, b"WAIT", b"0")
    both.do(FIRST, b"WAIT", b"0", b"-1")
    both.do(FIRST, b"WAIT", b"x", b"0")


# Expiry ---------------------------------------------------------------------------------------------------------------


def test_a_replica_hides_what_is_over_and_keeps_it_until_its_primary_says_so() -> None:
    now, sent = [10_000_000], list[Any]()
    primary, replica = (ReplicatedServer(lambda: now[0], name) for name in ("p", "r"))
    replica.demote()
    primary.add(Follower(sent.append))
    primary.connect().receive(command(b"SET", b"a", b"1", b"PX", b"5"))
    for each in sent:
        replica.receive(each)
    now[0] += 6_000
    looked = command(b"GET", b"a") + command(b"EXISTS", b"a") + command(b"PTTL", b"a") + command(b"DBSIZE")
    assert replica.connect().receive(looked) == [None, 0, -2, 1]
    primary.connect().receive(command(b"GET", b"a"))
    replica.receive(sent[-1])
    assert replica.connect().receive(command(b"DBSIZE")) == [0]
