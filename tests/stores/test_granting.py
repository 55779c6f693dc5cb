"""Who has the lock now: the pure decision, by example and by search."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gripfast.stores import granting
from gripfast.stores.granting import Now, Row, Waiter

WALL = 1_800_000_000_000_000


def now(clock: float = 100.0, gone: frozenset[str] = frozenset(), wall_us: int = WALL) -> Now:
    return Now(clock, wall_us, lambda details: details in gone)


def waiter(owner: str, ticket: int = 0, seen: float = 99.0, muted: bool = False) -> Waiter:
    return Waiter(ticket, owner, 10.0, seen, f"details of {owner}", f"address of {owner}", muted)


def held_by(owner: str, expires: float = 105.0, token: int = 5) -> Row:
    return Row(token, owner, 10.0, expires, WALL, f"details of {owner}")


def test_a_free_lock_without_a_line_goes_to_the_asker() -> None:
    outcome = granting.claim(Row(), [], waiter("a"), now())
    assert outcome.granted
    assert (outcome.row.owner, outcome.row.token, outcome.row.expires) == ("a", WALL, 110.0)


def test_a_taken_lock_stays_as_it_is() -> None:
    row = held_by("a")
    outcome = granting.claim(row, [], waiter("b"), now())
    assert not outcome.granted
    assert outcome.row is row


def test_the_same_owner_asking_again_is_told_yours_with_the_same_token_and_its_full_ttl() -> None:
    outcome = granting.claim(held_by("a", expires=101.0), [waiter("b", 1)], waiter("a"), now())
    assert outcome.granted
    assert (outcome.row.token, outcome.row.expires) == (5, 110.0)


def test_a_newcomer_does_not_pass_the_line_when_the_lock_expires() -> None:
    outcome = granting.claim(held_by("a", expires=99.0), [waiter("b", 1)], waiter("c"), now())
    assert not outcome.granted
    assert outcome.handed == waiter("b", 1)
    assert (outcome.row.owner, outcome.row.unconfirmed) == ("b", "address of b")


def test_the_first_in_line_gets_an_expired_lock_by_asking() -> None:
    line = [waiter("b", 1), waiter("c", 2)]
    outcome = granting.claim(held_by("a", expires=99.0), line, waiter("b"), now())
    assert outcome.granted
    assert outcome.handed is None
    assert outcome.row.unconfirmed == ""


def test_a_dead_holder_is_free_at_once_and_an_unknown_one_is_not() -> None:
    assert granting.is_free(held_by("a"), now(gone=frozenset({"details of a"})))
    assert not granting.is_free(held_by("a"), now())


def test_waiters_that_are_dead_or_were_not_seen_are_dropped() -> None:
    line = [waiter("silent", 1, seen=80.0), waiter("dead", 2), waiter("b", 3)]
    outcome = granting.free(held_by("a"), line, now(gone=frozenset({"details of dead"})))
    assert outcome.handed is not None
    assert outcome.handed.owner == "b"
    assert [each.owner for each in outcome.dropped] == ["silent", "dead", "b"]


def test_a_muted_waiter_is_skipped_but_keeps_its_place() -> None:
    outcome = granting.free(held_by("a"), [waiter("deaf", 1, muted=True), waiter("b", 2)], now())
    assert outcome.row.owner == "b"
    assert [each.owner for each in outcome.dropped] == ["b"]


def test_a_muted_waiter_that_asks_gets_its_turn_first() -> None:
    line = [waiter("deaf", 1, muted=True), waiter("b", 2)]
    assert granting.claim(Row(token=5), line, waiter("deaf"), now()).granted


def test_a_grant_that_nobody_heard_is_taken_back_only_until_it_is_found_by_asking() -> None:
    handed = granting.free(held_by("a"), [waiter("b", 1)], now())
    assert granting.take_back(handed.row, [waiter("c", 2)], waiter("b", 1), now()).row.owner == "c"
    asked = granting.claim(handed.row, [], waiter("b"), now())
    assert granting.take_back(asked.row, [waiter("c", 2)], waiter("b", 1), now()).row is asked.row


def test_whoever_was_force_released_is_told_so_and_others_that_it_is_taken() -> None:
    row = granting.free(granting.broken(held_by("a")), [], now()).row
    assert granting.gone_because(row, "a", now()) == "broken"
    taken = granting.claim(row, [], waiter("b"), now()).row
    assert granting.gone_because(taken, "a", now()) == "broken"
    assert granting.gone_because(taken, "x", now()) == "taken"
    assert granting.gone_because(held_by("a", expires=99.0), "a", now()) == "expired"


def test_an_idle_name_is_kept_for_a_day_past_its_token_even_if_the_clock_went_back() -> None:
    day = 86_400_000_000
    released = granting.free(held_by("a", token=WALL + 5), [], now()).row
    assert not granting.is_forgettable(released, now(wall_us=WALL + day))
    assert granting.is_forgettable(released, now(wall_us=WALL + day + 6))
    assert not granting.is_forgettable(held_by("a"), now(wall_us=WALL + 9 * day))


steps = st.lists(
    st.tuples(st.sampled_from(["claim", "release", "wait", "jump back"]), st.sampled_from("abc")), max_size=40
)


@given(steps)
def test_whatever_happens_tokens_grow_and_only_the_holder_holds(steps: list[tuple[str, str]]) -> None:
    row, line, clock, wall, tokens = Row(), {}, 100.0, WALL, [0]  # type: ignore[var-annotated]
    for step, who in steps:
        clock += 1.0
        moment = now(clock, wall_us=wall)
        if step == "wait":
            clock += 8.0
            continue
        if step == "jump back":
            wall -= 10_000_000
            continue
        before = row
        if step == "claim":
            asker = waiter(who, seen=clock)
            outcome = granting.claim(row, list(line.values()), asker, moment)
            if not outcome.granted:
                line.setdefault(who, asker)
        elif row.owner == who:
            outcome = granting.free(row, list(line.values()), moment)
        else:
            continue
        row = outcome.row
        for gone in outcome.dropped:
            line.pop(gone.owner, None)
        if outcome.granted:
            line.pop(who, None)
        if row.owner is not None and row.owner != before.owner:
            assert before.owner is None or before.expires <= clock or step == "release"
            assert row.token > tokens[-1]
            tokens.append(row.token)
