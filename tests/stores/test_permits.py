"""Who gets permits now: the pure decision, by example and by search."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from gripfast.core import rules
from gripfast.core.ports import RW_LIMIT
from gripfast.stores import permits
from gripfast.stores.granting import Now
from gripfast.stores.permits import GRANTS_MOST, Holder, Pool, Settlement, Waiter

WALL = 1_800_000_000_000_000


def now(clock: float = 100.0, gone: frozenset[str] = frozenset(), wall_us: int = WALL) -> Now:
    return Now(clock, wall_us, lambda details: details in gone)


def waiter(owner: str, n: int = 1, ticket: int = 0, seen: float = 99.0, muted: bool = False) -> Waiter:
    return Waiter(ticket, owner, n, 10.0, seen, f"details of {owner}", f"address of {owner}", muted)


def holder(owner: str, *slots: int, n: int = 0, expires: float = 105.0, token: int = 5) -> Holder:
    return Holder(owner, n or len(slots), slots, token, 10.0, expires, WALL, f"details of {owner}")


def pool(limit: int = 3, token: int = 5) -> Pool:
    return Pool(token, limit, WALL)


def handed(settlement: Settlement) -> list[str]:
    return [waiter.owner for waiter, _ in settlement.handed]


# -- grants and slots -------------------------------------------------------------------------------------------------


def test_the_first_claim_sets_the_limit_and_gets_the_lowest_slots() -> None:
    settlement = permits.claim(Pool(), [], [], waiter("a", 2), 3, now())
    assert settlement.granted is not None
    assert settlement.granted.slots == (0, 1)
    assert settlement.pool == Pool(WALL, 3, WALL)


def test_slots_that_were_freed_are_given_again_lowest_first() -> None:
    held = [holder("a", 0), holder("c", 2)]
    settlement = permits.claim(pool(5), held, [], waiter("b", 2), 5, now())
    assert settlement.granted is not None
    assert settlement.granted.slots == (1, 3)


def test_the_slots_of_an_expired_holder_are_free() -> None:
    held = [holder("a", 0, expires=100.0), holder("b", 1)]
    settlement = permits.claim(pool(), held, [], waiter("c", 2), 3, now())
    assert settlement.granted is not None
    assert settlement.granted.slots == (0, 2)
    assert settlement.gone == ["a"]


def test_every_grant_has_a_larger_token_and_it_is_that_of_its_slots() -> None:
    line = [waiter("b", 1, 1), waiter("c", 1, 2)]
    settlement = permits.leave(pool(2, WALL + 7), [holder("a", 0, 1)], line, "a", now())
    assert [(each.slots, each.token) for _, each in settlement.handed] == [((0,), WALL + 8), ((1,), WALL + 9)]


def test_a_reader_or_writer_has_no_slots() -> None:
    settlement = permits.claim(Pool(), [], [], waiter("a", RW_LIMIT), RW_LIMIT, now())
    assert settlement.granted is not None
    assert settlement.granted.slots == ()


# -- the queue is settled by every request (rule 1) -------------------------------------------------------------------


def test_nobody_passes_the_head_that_waits_for_more() -> None:
    settlement = permits.claim(pool(), [holder("a", 0, 1)], [waiter("b", 2, 1)], waiter("c"), 3, now())
    assert settlement.granted is None
    settlement = permits.leave(
        pool(), [holder("a", 0), holder("d", 1)], [waiter("b", 3, 1), waiter("c", 1, 2)], "a", now()
    )
    assert handed(settlement) == []


def test_a_refused_claim_serves_the_queue() -> None:
    """Nobody else may come for a long time."""
    line = [waiter("b", 2, 1)]
    settlement = permits.claim(pool(), [holder("a", 0, 1, expires=99.0)], line, waiter("c", 1), 4, now())
    assert settlement.limit_in_force == 3
    assert handed(settlement) == ["b"]


def test_a_refused_downgrade_serves_the_queue() -> None:
    line = [waiter("b", 2, 1)]
    settlement = permits.downgrade(pool(), [holder("a", 0, 1, expires=99.0)], line, "unknown", 1, now())
    assert settlement.granted is None
    assert handed(settlement) == ["b"]


def test_a_waiter_that_leaves_serves_those_behind_it() -> None:
    line = [waiter("b", 3, 1), waiter("c", 1, 2)]
    settlement = permits.leave(pool(), [holder("a", 0)], line, "b", now())
    assert handed(settlement) == ["c"]


def test_a_dead_head_that_does_not_fit_is_dropped() -> None:
    line = [waiter("b", 3, 1), waiter("c", 1, 2)]
    settlement = permits.claim(pool(), [holder("a", 0)], line, waiter("d"), 3, now(gone=frozenset({"details of b"})))
    assert [each.owner for each in settlement.dropped] == ["b", "c"]
    assert handed(settlement) == ["c"]
    assert settlement.granted is not None


def test_a_head_that_was_not_seen_for_long_is_dropped() -> None:
    line = [waiter("b", 3, 1, seen=100.0 - rules.WAITER_WINDOW - 0.1), waiter("c", 1, 2)]
    assert handed(permits.settle(pool(), [holder("a", 0)], line, now())) == ["c"]


def test_a_dead_holder_is_free_at_once() -> None:
    held = [holder("a", 0, 1, 2)]
    settlement = permits.claim(pool(), held, [], waiter("b"), 3, now(gone=frozenset({"details of a"})))
    assert settlement.granted is not None
    assert settlement.granted.slots == (0,)


def test_readers_that_stand_together_enter_together() -> None:
    line = [*(waiter(f"r{i}", 1, i) for i in range(1, 6)), waiter("w", RW_LIMIT, 6), waiter("late", 1, 7)]
    settlement = permits.leave(pool(RW_LIMIT), [holder("writer", n=RW_LIMIT)], line, "writer", now())
    assert handed(settlement) == ["r1", "r2", "r3", "r4", "r5"]


def test_one_step_serves_a_bounded_number_and_says_that_there_is_more() -> None:
    line = [waiter(f"r{i}", 1, i) for i in range(1, GRANTS_MOST + 11)]
    first = permits.settle(pool(RW_LIMIT), [], line, now())
    assert (len(first.handed), first.more) == (GRANTS_MOST, True)
    second = permits.settle(first.pool, first.holders.values(), first.queue, now())
    assert (len(second.handed), second.more) == (10, False)


def test_a_muted_waiter_is_skipped_until_it_asks() -> None:
    line = [waiter("b", 1, 1, muted=True), waiter("c", 1, 2)]
    assert handed(permits.settle(pool(1), [], line, now())) == ["c"]
    settlement = permits.claim(pool(1), [], line, line[0], 1, now())
    assert settlement.granted is not None
    assert settlement.granted.owner == "b"


def test_a_grant_that_reached_nobody_goes_to_the_next_one() -> None:
    unreached = waiter("b", 1, 1)
    held = [holder("b", 0)._replace(unconfirmed="address of b")]
    settlement = permits.take_back(pool(1), held, [waiter("c", 1, 2)], unreached, now())
    assert settlement is not None
    assert handed(settlement) == ["c"]
    assert [(each.owner, each.muted) for each in settlement.queue] == [("b", True)]
    assert permits.take_back(pool(1), [holder("b", 0)], [], unreached, now()) is None


# -- "yours" (rule 2) -------------------------------------------------------------------------------------------------


def test_the_same_owner_is_told_what_is_recorded_whatever_it_asks_for() -> None:
    settlement = permits.claim(pool(), [holder("a", 2, expires=101.0)], [], waiter("a", 3), 3, now())
    assert settlement.granted == holder("a", 2, expires=110.0)


def test_an_expired_entry_is_not_yours() -> None:
    line = [waiter("b", 3, 1)]
    settlement = permits.claim(pool(), [holder("a", 0, expires=100.0)], line, waiter("a"), 3, now())
    assert settlement.granted is None
    assert handed(settlement) == ["b"]


def test_a_renewal_sets_the_expiry_alone() -> None:
    assert permits.renewed(holder("a", 0, 2), 20.0, now()) == holder("a", 0, 2)._replace(ttl=20.0, expires=120.0)


def test_a_waiter_keeps_the_number_of_permits_that_it_came_for() -> None:
    settlement = permits.claim(pool(), [holder("a", 0, 1)], [waiter("b", 2, 1)], waiter("b", 1), 3, now())
    assert settlement.granted is None


def test_a_downgrade_keeps_the_token_and_lets_readers_in() -> None:
    line = [waiter("r", 1, 1), waiter("w", RW_LIMIT, 2)]
    settlement = permits.downgrade(pool(RW_LIMIT), [holder("a", n=RW_LIMIT)], line, "a", 1, now())
    assert settlement.granted == holder("a", n=1)
    assert handed(settlement) == ["r"]
    again = permits.downgrade(settlement.pool, settlement.holders.values(), settlement.queue, "a", 1, now())
    assert again.granted == settlement.granted
    assert handed(again) == []


# -- the limit (rule 6) -----------------------------------------------------------------------------------------------


def test_a_newcomer_with_another_limit_is_refused_although_nobody_has_a_permit() -> None:
    for limit in (4, 2):
        settlement = permits.claim(pool(3), [], [], waiter("a"), limit, now())
        assert (settlement.limit_in_force, settlement.granted, settlement.written) == (3, None, {})


def test_growth_serves_waiters_in_the_same_step() -> None:
    settlement = permits.resize(pool(1), [holder("a", 0)], [waiter("b", 2, 1)], 3, now())
    assert [(each.owner, each.slots) for _, each in settlement.handed] == [("b", (1, 2))]


def test_shrinking_takes_nothing_away_and_grants_nothing_until_it_fits() -> None:
    held = [holder("a", 0), holder("b", 1), holder("c", 4)]
    settlement = permits.resize(pool(5), held, [waiter("d", 1, 1)], 2, now())
    assert (settlement.gone, handed(settlement)) == ([], [])
    settlement = permits.leave(pool(2), held, [waiter("d", 1, 1)], "a", now())
    assert handed(settlement) == []
    settlement = permits.leave(pool(2), held[1:], [waiter("d", 1, 1)], "b", now())
    assert [each.slots for _, each in settlement.handed] == [(0,)]


def test_waiters_that_can_no_longer_fit_are_told_and_do_not_block_the_others() -> None:
    line = [waiter("b", 4, 1), waiter("c", 1, 2)]
    settlement = permits.resize(pool(5), [holder("a", 0, 1)], line, 3, now())
    assert settlement.told == [line[0]]
    assert handed(settlement) == ["c"]
    late = permits.claim(pool(3), [], line, line[0], 5, now())
    assert late.limit_in_force == 3
    assert late.dropped[0] == line[0]


# -- force release ----------------------------------------------------------------------------------------------------


def test_a_force_release_removes_the_owner_or_the_slots_holder_or_everybody() -> None:
    held = [holder("a", 0, 2), holder("b", 1)]

    def removed(owner: str | None, slot: int | None) -> list[str]:
        return [each.owner for each in permits.force_release(pool(), held, [], owner, slot, now()).removed]

    assert removed("b", None) == ["b"]
    assert removed(None, 2) == ["a"]
    assert removed(None, None) == ["a", "b"]
    assert removed("nobody", None) == removed(None, 7) == []


# -- by search --------------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    what: str
    owner: str
    n: int
    seconds: float


class World:
    """An engine in a few lines, and what must hold after each of its steps."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.pool = Pool()
        self.holders: dict[str, Holder] = {}
        self.queue: list[Waiter] = []
        self.clock = 0.0
        self.tickets = 0
        self.has_shrunk = False

    def step(self, step: Step) -> None:
        self.clock += step.seconds
        getattr(self, step.what)(step)

    def claim(self, step: Step) -> None:
        self.tickets += 1
        n = min(step.n, self.limit)
        mine = next((each for each in self.queue if each.owner == step.owner), None)
        claimant = mine or Waiter(self.tickets, step.owner, n, 10.0, self.clock, step.owner, step.owner)
        settlement = self.decide(
            lambda pool, held, line, now: permits.claim(pool, held, line, claimant, self.limit, now)
        )
        if settlement.granted is None and settlement.limit_in_force is None:
            others = [each for each in self.queue if each.owner != step.owner]
            self.queue = sorted([*others, claimant._replace(seen=self.clock, muted=False)])

    def leave(self, step: Step) -> None:
        self.decide(lambda pool, held, line, now: permits.leave(pool, held, line, step.owner, now))

    def lower(self, step: Step) -> None:
        if self.limit == RW_LIMIT:
            self.decide(lambda pool, held, line, now: permits.downgrade(pool, held, line, step.owner, 1, now))

    def resize(self, step: Step) -> None:
        if self.limit != RW_LIMIT:
            self.has_shrunk = self.has_shrunk or step.n < self.limit
            self.limit = step.n
            self.decide(lambda pool, held, line, now: permits.resize(pool, held, line, step.n, now))

    def take_back(self, step: Step) -> None:
        holder = self.holders.get(step.owner)
        if holder is not None and holder.unconfirmed:
            waiter = Waiter(0, holder.owner, holder.n, 10.0, self.clock, holder.owner, holder.owner)
            self.decide(lambda pool, held, line, now: permits.take_back(pool, held, line, waiter, now))

    def decide(self, how: Callable[..., Settlement | None]) -> Settlement:
        now = Now(self.clock, WALL, lambda details: False)
        before = last = self.pool.token
        settlement = how(self.pool, list(self.holders.values()), list(self.queue), now)
        assert settlement is not None
        for _, holder in settlement.handed:
            assert holder.token > last
            last = holder.token
        # Nobody was passed: who was handed something stood before all that are left, but for the muted.
        left = [each.ticket for each in settlement.queue if not each.muted]
        assert all(each.ticket < min(left, default=1 << 60) for each, _ in settlement.handed)
        self.pool, self.holders, self.queue = settlement.pool, dict(settlement.holders), list(settlement.queue)
        self.check(settlement, before, now)
        return settlement

    def check(self, settlement: Settlement, before: int, now: Now) -> None:
        used = sum(each.n for each in self.holders.values())
        is_granted = any(each.token > before for each in settlement.written.values())
        assert used <= self.pool.limit or (self.has_shrunk and not is_granted)
        slots = [slot for each in self.holders.values() for slot in each.slots]
        assert len(slots) == len(set(slots))
        assert all(len(each.slots) == (0 if self.pool.limit == RW_LIMIT else each.n) for each in self.holders.values())
        # Nothing is left undone: the head, if it is there, does not fit.
        heads = [each for each in self.queue if not each.muted and not permits.has_left(each, now)]
        if heads and not settlement.more:
            assert used + heads[0].n > self.pool.limit


OWNERS = st.sampled_from("abcdefgh")
STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["claim", "claim", "claim", "leave", "leave", "lower", "resize", "take_back"]),
        OWNERS,
        st.integers(1, 5),
        st.sampled_from([0.0, 0.1, 4.0, 11.0]),
    ),
    max_size=40,
)


@given(STEPS)
def test_permits_never_exceed_the_limit_and_nobody_is_passed(steps: list[Step]) -> None:
    world = World(3)
    for step in steps:
        world.step(step)


@given(STEPS, st.sets(OWNERS))
@settings(max_examples=200)
def test_readers_and_writers_exclude_each_other(steps: list[Step], writers: set[str]) -> None:
    world = World(RW_LIMIT)
    for step in steps:
        world.step(step._replace(n=RW_LIMIT if step.owner in writers else 1))
        if any(each.n == RW_LIMIT for each in world.holders.values()):
            assert len(world.holders) == 1
