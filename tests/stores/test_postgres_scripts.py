"""What each request of leases is answered by a real PostgreSQL, in each state that a name can be in."""

import threading
from collections.abc import Iterator

import pytest

from gripfast.stores.postgres import scripts
from gripfast.stores.postgres.wire import PostgresWire
from gripfast.stores.sql.ports import Refusal
from gripfast.stores.sql.protocol import read_held
from gripfast.stores.sql.statement import Query, Statement
from stores.postgres_requests import (
    CARD,
    TTL,
    alter,
    answer_of,
    answered,
    ask,
    claimed,
    clock_us,
    looked,
    make_tables,
    new_name,
    setting,
    sql,
    told,
    waits_for_lock,
    wire_to,
)
from support.sql_servers import postgres_server
from support.waiting import until

DAY = 24 * 3600 * 1_000_000
NOTE = '"deploy of v2"'


@pytest.fixture
def wire() -> Iterator[PostgresWire]:
    with wire_to() as wire:
        make_tables(wire)
        yield wire


@pytest.fixture
def other() -> Iterator[PostgresWire]:
    with wire_to(is_shared=False) as other:
        yield other


def waited_until(wire: PostgresWire, name: str) -> int:
    ((value,),) = told(
        wire, [Query(Statement("SELECT waited_until_us FROM gripfast_lock WHERE name = :n"), {"n": name})]
    )
    return int(value or 0)


# Claims ---------------------------------------------------------------------------------------------------------------


def test_a_new_name_is_granted_with_the_time_for_a_token(wire: PostgresWire) -> None:
    before = clock_us(wire)
    held = claimed(wire, new_name(), "a")
    after = clock_us(wire)
    assert (held.owner, held.ttl, held.details) == ("a", 30.0, CARD)
    assert before <= held.token <= after
    assert before <= held.since_us <= after
    assert 29.0 < held.expires_in <= 30.0


def test_a_released_name_is_granted_again_with_a_larger_token(wire: PostgresWire) -> None:
    name = new_name()
    first = claimed(wire, name, "a")
    told(wire, scripts.release(name, "a", "c"))
    second = claimed(wire, name, "b", 5_000_000, "{}")
    assert (second.owner, second.ttl, second.details) == ("b", 5.0, "{}")
    assert second.token > first.token


def test_a_claim_for_a_held_name_tells_who_has_it_and_writes_nothing(wire: PostgresWire) -> None:
    name = new_name()
    mine = claimed(wire, name, "a")
    version = [Query(Statement("SELECT ctid, xmin, xmax FROM gripfast_lock WHERE name = :name"), {"name": name})]
    before = told(wire, version)
    held = claimed(wire, name, "b", 99, "{}")
    assert held._replace(expires_in=0.0) == mine._replace(expires_in=0.0)
    assert 29.0 < held.expires_in < mine.expires_in
    assert told(wire, version) == before


def test_a_lease_that_has_run_out_is_taken_over(wire: PostgresWire) -> None:
    name = new_name()
    first = claimed(wire, name, "a", ttl_us=1)
    second = claimed(wire, name, "b")
    assert second.owner == "b"
    assert second.token > first.token


def test_who_has_it_keeps_token_and_since_and_gets_the_full_ttl(wire: PostgresWire) -> None:
    name = new_name()
    first = claimed(wire, name, "a", ttl_us=1_000_000)
    again = claimed(wire, name, "a", ttl_us=60_000_000)
    assert (again.token, again.since_us, again.ttl) == (first.token, first.since_us, 60.0)
    assert 59.0 < again.expires_in <= 60.0


def test_who_has_it_keeps_the_token_even_if_it_has_run_out_meanwhile(wire: PostgresWire) -> None:
    name = new_name()
    first = claimed(wire, name, "a", ttl_us=1)
    again = claimed(wire, name, "a")
    assert again.token == first.token
    assert again.expires_in > 29.0


def test_a_claim_never_shortens_what_its_owner_has(wire: PostgresWire) -> None:
    name = new_name()
    claimed(wire, name, "a", ttl_us=60_000_000)
    assert claimed(wire, name, "a", ttl_us=1_000_000).expires_in > 50.0


def test_tokens_grow_although_the_last_one_is_ahead_of_the_clock(wire: PostgresWire) -> None:
    name = new_name()
    claimed(wire, name, "a")
    ahead = clock_us(wire) + DAY
    alter(wire, name, f"token = {ahead}")
    told(wire, scripts.release(name, "a", "c"))
    assert claimed(wire, name, "b").token == ahead + 1


def test_tokens_follow_the_clock_if_the_last_one_is_behind_it(wire: PostgresWire) -> None:
    name = new_name()
    claimed(wire, name, "a")
    alter(wire, name, "token = 7, owner = NULL")
    before = clock_us(wire)
    assert claimed(wire, name, "b").token >= before


# Claims that meet each other ------------------------------------------------------------------------------------------


def test_a_lease_that_runs_out_while_a_claim_waits_for_the_row_is_taken_over(
    wire: PostgresWire, other: PostgresWire
) -> None:
    """The transaction's start is too early to be the time of a claim."""
    name = new_name()
    claimed(wire, name, "a")
    told(wire, scripts.release(name, "a", "c"))
    ask(other, sql("BEGIN"))
    ends = clock_us(other) + 300_000
    alter(other, name, f"owner = 'a', expires_us = {ends}")
    wire.send(scripts.claim(name, "b", TTL, CARD))
    until(lambda: waits_for_lock(wire.session, other.session))
    until(lambda: clock_us(other) > ends)
    ask(other, sql("COMMIT"))
    answer = answer_of(wire)
    assert not isinstance(answer, Refusal)
    held = read_held(answer[-1].rows[0])
    assert held.owner == "b"
    assert held.token > ends
    assert held.since_us > ends
    assert held.expires_in > 29.0


@pytest.mark.parametrize("is_known", [True, False], ids=["known name", "new name"])
def test_a_claim_that_met_another_on_the_way_tells_nobody_and_the_next_one_tells_who(
    wire: PostgresWire, other: PostgresWire, is_known: bool
) -> None:
    name = new_name()
    if is_known:
        claimed(wire, name, "a")
        told(wire, scripts.release(name, "a", "c"))
    ask(other, sql("BEGIN"))
    assert claimed(other, name, "b").owner == "b"
    wire.send(scripts.claim(name, "c", TTL, CARD))
    until(lambda: waits_for_lock(wire.session, other.session))
    ask(other, sql("COMMIT"))
    answer = answer_of(wire)
    assert not isinstance(answer, Refusal)
    assert read_held(answer[-1].rows[0]).owner is None
    assert claimed(wire, name, "c").owner == "b"


def test_a_claim_that_waited_for_one_that_was_undone_is_granted(wire: PostgresWire, other: PostgresWire) -> None:
    name = new_name()
    ask(other, sql("BEGIN"))
    claimed(other, name, "b")
    wire.send(scripts.claim(name, "c", TTL, CARD))
    until(lambda: waits_for_lock(wire.session, other.session))
    ask(other, sql("ROLLBACK"))
    answer = answer_of(wire)
    assert not isinstance(answer, Refusal)
    assert read_held(answer[-1].rows[0]).owner == "c"


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_where_a_proxy_keeps_a_stricter_isolation_level_a_race_is_to_be_asked_again(
    wire: PostgresWire, other: PostgresWire, level: str
) -> None:
    name = new_name()
    claimed(wire, name, "a")
    told(wire, scripts.release(name, "a", "c"))
    told(wire, sql(f"SET default_transaction_isolation = '{level}'"))
    ask(other, sql("BEGIN"))
    claimed(other, name, "b")
    wire.send(scripts.claim(name, "c", TTL, CARD))
    until(lambda: waits_for_lock(wire.session, other.session))
    ask(other, sql("COMMIT"))
    answer = answer_of(wire)
    assert isinstance(answer, Refusal)
    assert (answer.kind, answer.code) == ("retry", "40001")
    assert claimed(wire, name, "c").owner == "b"


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_whatever_the_database_has_for_defaults_a_session_reads_what_is_committed_and_may_write(level: str) -> None:
    server = postgres_server()
    with server.fresh_database() as url:
        database = url.rpartition("/")[2]
        for default in (f"default_transaction_isolation = '{level}'", "default_transaction_read_only = on"):
            server.execute(f"ALTER DATABASE {database} SET {default}")
        with wire_to(url) as wire, wire_to(url, is_shared=False) as own:
            make_tables(wire)
            for each in (wire, own):
                assert setting(each, "transaction_isolation") == "read committed"
            assert claimed(wire, "job", "a").owner == "a"
            told(wire, scripts.row_make("job"))
            assert told(own, scripts.row_try("job", TTL)) != []


def test_of_eight_who_claim_at_the_same_time_one_has_it_and_tokens_grow(wire: PostgresWire) -> None:
    name, rounds = new_name(), 25
    inside: list[str] = []
    tokens: list[int] = []
    crowds: list[int] = []

    def work(owner: str) -> None:
        with wire_to() as own:
            for turn in range(rounds):
                me = f"{owner}-{turn}"
                while (held := claimed(own, name, me)).owner != me:
                    pass
                inside.append(me)
                crowds.append(len(inside))
                tokens.append(held.token)
                inside.remove(me)
                assert told(own, scripts.release(name, me, "c")) == [(b"1", b"0")]

    threads = [threading.Thread(target=work, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == 8 * rounds
    assert set(crowds) == {1}
    assert tokens == sorted(set(tokens))


# Waiting, releases ----------------------------------------------------------------------------------------------------


def test_who_registers_is_waited_for_and_is_told_who_has_it(wire: PostgresWire) -> None:
    name = new_name()
    mine = claimed(wire, name, "a")
    before = clock_us(wire)
    (row,) = told(wire, scripts.register(name, 10_000_000))
    assert read_held(row)._replace(expires_in=0.0) == mine._replace(expires_in=0.0)
    assert before + 10_000_000 <= waited_until(wire, name) <= clock_us(wire) + 10_000_000


def test_a_window_is_never_lowered(wire: PostgresWire) -> None:
    name = new_name()
    claimed(wire, name, "a")
    told(wire, scripts.register(name, 60_000_000))
    longest = waited_until(wire, name)
    told(wire, scripts.register(name, 1))
    assert waited_until(wire, name) == longest


def test_who_registers_for_a_name_that_is_free_or_has_run_out_is_told_nobody(wire: PostgresWire) -> None:
    free, over = new_name(), new_name()
    claimed(wire, free, "a")
    told(wire, scripts.release(free, "a", "c"))
    claimed(wire, over, "a", ttl_us=1)
    for name in (free, over):
        (row,) = told(wire, scripts.register(name, 1))
        assert read_held(row).owner is None


def test_there_is_nothing_to_register_for_a_name_that_was_swept(wire: PostgresWire) -> None:
    assert told(wire, scripts.register(new_name(), 1)) == []


def test_a_release_frees_and_tells_that_nobody_waits(wire: PostgresWire) -> None:
    name = new_name()
    claimed(wire, name, "a")
    assert told(wire, scripts.release(name, "a", "c")) == [(b"1", b"0")]
    assert looked(wire, name) is None
    assert told(wire, scripts.release(name, "a", "c")) == []


def test_a_release_by_another_changes_nothing(wire: PostgresWire) -> None:
    name = new_name()
    claimed(wire, name, "a")
    assert told(wire, scripts.release(name, "b", "c")) == []
    held = looked(wire, name)
    assert held is not None
    assert held.owner == "a"


def test_a_lease_that_ran_out_is_freed_and_told_as_not_held(wire: PostgresWire) -> None:
    name = new_name()
    claimed(wire, name, "a", ttl_us=1)
    assert told(wire, scripts.release(name, "a", "c")) == [(b"0", b"0")]
    assert told(wire, scripts.release(name, "a", "c")) == []


def test_every_release_within_the_window_is_told_to_those_who_listen(wire: PostgresWire, other: PostgresWire) -> None:
    name, channel = new_name(), f"gripfast_{new_name('')[:32]}"
    answered(other, scripts.listen(channel))
    claimed(wire, name, "a")
    told(wire, scripts.register(name, 60_000_000))
    for owner in ("a", "b"):
        assert claimed(wire, name, owner).owner == owner
        assert told(wire, scripts.release(name, owner, channel)) == [(b"1", b"1")]
        until(lambda: other.receive() is None and other.pushes() == [channel])
    claimed(wire, name, "c")
    assert told(wire, scripts.force_release(name, channel)) == [(b"1", b"1")]
    until(lambda: other.receive() is None and other.pushes() == [channel])


def test_a_release_after_the_window_is_told_to_nobody(wire: PostgresWire, other: PostgresWire) -> None:
    name, channel = new_name(), f"gripfast_{new_name('')[:32]}"
    answered(other, scripts.listen(channel))
    claimed(wire, name, "a")
    told(wire, scripts.register(name, 1))
    assert told(wire, scripts.release(name, "a", channel)) == [(b"1", b"0")]
    told(other, sql("SELECT 1"))
    assert other.pushes() == []


def test_who_does_not_listen_any_more_is_not_told(wire: PostgresWire, other: PostgresWire) -> None:
    channel = f"gripfast_{new_name('')[:32]}"
    answered(other, scripts.listen(channel))
    answered(other, scripts.unlisten(channel))
    told(wire, sql(f"SELECT pg_notify('{channel}', '')"))
    told(other, sql("SELECT 1"))
    assert other.pushes() == []


def test_a_forced_release_is_told_to_the_owner_as_broken_and_to_nobody_else(wire: PostgresWire) -> None:
    name = new_name()
    token = claimed(wire, name, "a").token
    assert told(wire, scripts.force_release(name, "c")) == [(b"1", b"0")]
    assert told(wire, scripts.force_release(name, "c")) == []
    assert claimed(wire, name, "b").token > token
    assert told(wire, scripts.why(name, "a")) == [(b"broken", None)]
    assert told(wire, scripts.why(name, "b")) == [(b"held", None)]
    assert told(wire, scripts.why(name, "c")) == [(b"taken", None)]


def test_an_owner_that_was_forced_out_is_told_the_reason(wire: PostgresWire) -> None:
    name, (a, b) = new_name(), (new_name(), new_name())
    claimed(wire, name, a)
    told(wire, scripts.register(name, 60_000_000))
    assert told(wire, scripts.force_release_noted(name, "c", NOTE)) == [(b"1", b"1")]
    assert told(wire, scripts.force_release_noted(name, "c", NOTE)) == []
    claimed(wire, name, b)
    assert told(wire, scripts.why(name, a)) == [(b"broken", NOTE.encode())]
    assert told(wire, scripts.force_release(name, "c")) == [(b"1", b"1")]
    assert told(wire, scripts.why(name, b)) == [(b"broken", None)]


def test_why_a_lease_was_lost(wire: PostgresWire) -> None:
    name = new_name()
    assert told(wire, scripts.why(name, "a")) == []
    claimed(wire, name, "a", ttl_us=1)
    assert told(wire, scripts.why(name, "a")) == [(b"expired", None)]
    claimed(wire, name, "b")
    assert told(wire, scripts.why(name, "a")) == [(b"taken", None)]
    told(wire, scripts.release(name, "b", "c"))
    assert told(wire, scripts.why(name, "a")) == [(b"expired", None)]


# Renewals -------------------------------------------------------------------------------------------------------------


def test_a_renewal_lengthens_and_shortens_only_if_it_is_told_to(wire: PostgresWire) -> None:
    name = new_name()
    first = claimed(wire, name, "a")
    for ttl_us, shortens, least, most in (
        (60_000_000, False, 55, 60),
        (1_000_000, False, 55, 60),
        (20_000_000, True, 15, 20),
    ):
        assert answered(wire, scripts.renew(name, "a", ttl_us, shortens)).affected == 1
        held = looked(wire, name)
        assert held is not None
        assert held.token == first.token
        assert held.ttl == ttl_us / 1_000_000
        assert least < held.expires_in <= most


def test_only_the_owner_can_renew_and_only_in_time(wire: PostgresWire) -> None:
    name = new_name()
    assert answered(wire, scripts.renew(name, "a", TTL, False)).affected == 0
    claimed(wire, name, "a")
    assert answered(wire, scripts.renew(name, "b", TTL, False)).affected == 0
    answered(wire, scripts.renew(name, "a", 1, True))
    assert answered(wire, scripts.renew(name, "a", TTL, False)).affected == 0
    assert looked(wire, name) is None
