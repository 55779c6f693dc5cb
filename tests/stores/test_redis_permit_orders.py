"""The scripts for permits on a real server do what the pure decision does (`stores/permits.py`), in any order of
requests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from gripfast.core.ports import Taken
from gripfast.stores import permits
from gripfast.stores.granting import Now
from gripfast.stores.permits import Holder, Pool, Settlement, Waiter
from gripfast.stores.redis import protocol
from gripfast.stores.redis.scripts import WINDOW_MS
from stores.permit_bench import PermitBench, slots_of
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


def test_any_order_of_requests(bench: PermitBench, is_sampled: bool) -> None:
    quick = settings(max_examples=15 if is_sampled else 60, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(cast(Any, lambda: Machine(bench)), settings=quick)
