"""The lab's cluster of etcd answers, and makes wait, as etcd does: the same questions to both.

What a leader does whose disk stalls is seen on real members in `tests/chaos/test_etcd_stalled_disk.py`.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from gripfast.stores.etcd.keys import after
from gripfast.stores.etcd.messages import (
    ASCEND,
    BY_CREATE,
    CREATE,
    EQUAL,
    MOD,
    Compare,
    DeleteRangeRequest,
    LeaseGrantRequest,
    LeaseKeepAliveRequest,
    LeaseRevokeRequest,
    PutRequest,
    RangeRequest,
    TxnRequest,
)
from gripfast_lab.engines.members import (
    DELETE,
    GONE,
    JOIN,
    KEEP_ALIVE,
    KEYS,
    MOVE,
    NO,
    READ,
    RELEASE,
    TAKE,
    YES,
    Has,
    Members,
)
from gripfast_lab.engines.port import Answer
from gripfast_lab.moves import TTL, ask
from stores.etcd_stage import Stage, new_key, stage
from support.etcd_servers import etcd_server

WAITS = "waits"
CLIENTS = ("A", "B", "C")


class Real:
    """A member with the keys of one lock."""

    def __init__(self, member: Stage) -> None:
        self._call = member.call
        self._root = new_key() + b"/"
        self._leases: dict[str, int] = {}
        self._mod: dict[str, int] = {}
        self._created: list[int] = []
        """Revisions; the lab counts keys from one on."""

    def ask(self, who: str, command: str) -> Any:
        key = self._root + who.encode()
        if command in (TAKE, JOIN):
            return self._put(who, key, command)
        if command == KEEP_ALIVE:
            return self._said(self._call(LeaseKeepAliveRequest(self._leases.get(who, 1))).ttl > 0)
        if command == READ:
            return self._said(self._call(RangeRequest(key)).kvs)
        if command == MOVE:
            return self._move(who, key)
        if command == KEYS:
            return tuple(self._numbers())
        if command == RELEASE:
            self._call(DeleteRangeRequest(key))
            return "done"
        return self._about_a_key(int(command.split("key ")[1].split()[0]), command)

    def expire(self, who: str) -> None:
        self._call(LeaseRevokeRequest(self._leases[who]))

    def _said(self, what: object) -> str:
        return YES if what else NO

    def _granted(self) -> int:
        lease = secrets.randbits(62) + 1
        self._call(LeaseGrantRequest(TTL * 10, lease))
        return lease

    def _put(self, who: str, key: bytes, command: str) -> Any:
        is_empty = (Compare(CREATE, self._root, EQUAL, 0, after(self._root)),) if command == TAKE else ()
        lease = self._granted()
        answer = self._call(TxnRequest(is_empty, (PutRequest(key, b"", lease),)))
        if not answer.succeeded:
            return NO
        self._leases[who], self._mod[who] = lease, answer.header.revision
        self._created.append(answer.header.revision)
        return YES if command == TAKE else len(self._created)

    def _move(self, who: str, key: bytes) -> str:
        lease = self._granted()
        is_as_it_was = Compare(MOD, key, EQUAL, self._mod.get(who, -1))
        answer = self._call(TxnRequest((is_as_it_was,), (PutRequest(key, b"", lease),)))
        if answer.succeeded:
            self._leases[who], self._mod[who] = lease, answer.header.revision
        return self._said(answer.succeeded)

    def _numbers(self) -> Iterator[int]:
        found = self._call(RangeRequest(self._root, after(self._root), sort_order=ASCEND, sort_target=BY_CREATE))
        return (self._created.index(kv.create_revision) + 1 for kv in found.kvs)

    def _about_a_key(self, number: int, command: str) -> str:
        found = self._call(RangeRequest(self._root, after(self._root)))
        there = [kv.key for kv in found.kvs if kv.create_revision == self._created[number - 1]]
        if command == GONE.format(number):
            return WAITS if there else "it is"
        for key in there:
            self._call(DeleteRangeRequest(key))
        return "done"


class Both:
    def __init__(self, real: Real) -> None:
        self._real = real
        self._lab = Members(kept=True)
        self.has = self._lab.start()

    def ask(self, who: str, command: str) -> Any:
        answer = self._lab.ask(self.has, who, ask(command))
        told = self._real.ask(who, command)
        assert told == (WAITS if answer is None else answer.reply), f"{who}: {command}"
        if answer is not None:
            self.has = answer.state
        return told

    def expire(self, who: str) -> None:
        self.has = self._lab.passes(self.has, TTL, frozenset({who}))
        self._real.expire(who)


@pytest.fixture(scope="module")
def member() -> Iterator[Stage]:
    with stage("sync", etcd_server().address) as actor:
        yield actor


@pytest.fixture
def both(member: Stage) -> Both:
    return Both(Real(member))


def test_only_one_takes_the_lock_and_the_next_when_it_is_released(both: Both) -> None:
    assert [both.ask("A", TAKE), both.ask("B", TAKE), both.ask("A", READ), both.ask("B", READ)] == [YES, NO, YES, NO]
    both.ask("A", RELEASE)
    assert [both.ask("A", READ), both.ask("B", TAKE)] == [NO, YES]


def test_a_key_ends_with_its_lease_and_what_was_moved_does_not(both: Both) -> None:
    both.ask("A", TAKE)
    both.expire("A")
    assert [both.ask("A", KEEP_ALIVE), both.ask("A", READ), both.ask("A", MOVE), both.ask("B", TAKE)] == [NO] * 3 + [
        YES
    ]
    assert [both.ask("B", MOVE), both.ask("B", KEEP_ALIVE), both.ask("B", READ)] == [YES] * 3


def test_who_waits_for_a_key_is_told_when_it_is_gone(both: Both) -> None:
    assert [both.ask(who, JOIN) for who in CLIENTS] == [1, 2, 3]
    assert both.ask("C", GONE.format(2)) == WAITS
    both.expire("B")
    assert [both.ask("C", GONE.format(2)), both.ask("C", KEYS)] == ["it is", (1, 3)]
    assert both.ask("B", KEYS) == (1, 3)  # it is not among them
    both.ask("A", DELETE.format(1))
    assert [both.ask("B", JOIN), both.ask("C", KEYS)] == [4, (3, 4)]


@pytest.mark.parametrize("seed", range(4))
def test_any_questions_are_answered_alike(both: Both, seed: int) -> None:
    """Nobody keeps a lease alive that has no key any more: the lab's programs don't, and for the lab it is gone."""
    chance, told = random.Random(seed), set()
    for _ in range(60):
        who = chance.choice(CLIENTS)
        mine = [key for key in both.has.keys if key.owner == who]
        commands = [KEYS, READ, MOVE, *([KEEP_ALIVE] if mine else [TAKE, JOIN, JOIN])]
        commands += [GONE.format(each + 1) for each in range(both.has.revision)]
        commands += [RELEASE, *(DELETE.format(key.number) for key in mine)]
        if mine and chance.random() < 0.1:
            both.expire(who)
        else:
            told.add(both.ask(who, chance.choice(commands)))
    assert {YES, NO, WAITS, "it is", "done"} <= told


# A leader whose disk stalls -------------------------------------------------------------------------------------------


def answered(engine: Members, has: Has, who: str, command: str) -> Answer:
    answer = engine.ask(has, who, ask(command))
    assert answer is not None
    return answer


def stalled(engine: Members, has: Has) -> Has:
    (happening,) = engine.happenings(has)
    assert happening.fault == "stalled disk"
    after: Has = happening.state
    return after


def gone_on(engine: Members, has: Has) -> Has:
    (happening,) = engine.happenings(has)
    assert not happening.fault
    after: Has = happening.state
    return after


def held_by_a(at: str) -> tuple[Members, Has]:
    engine = Members({"A": at})
    has: Has = answered(engine, engine.start(), "A", TAKE).state
    return engine, stalled(engine, engine.passes(has, 10, frozenset()))


def test_a_leader_that_was_replaced_answers_keep_alives_which_keep_nothing() -> None:
    engine, has = held_by_a("m1")
    for _ in range(2):
        has = engine.passes(has, 10, frozenset())
        answer = answered(engine, has, "A", KEEP_ALIVE)
        assert answer.reply == YES
        has = answer.state
    assert [key.left for key in has.keys] == [TTL - 20]  # counted anew when m2 was elected
    has = engine.passes(has, 10, frozenset())
    assert has.keys == ()
    assert answered(engine, has, "A", KEEP_ALIVE).reply == YES


def test_it_agrees_upon_nothing_else() -> None:
    engine, has = held_by_a("m1")
    for command in (TAKE, READ, MOVE, RELEASE):
        assert answered(engine, has, "A", command) == Answer(has, None, unreached=("m1",))
    assert answered(engine, gone_on(engine, has), "A", READ).reply == YES


def test_it_revokes_what_it_takes_for_expired_when_its_disk_goes_on() -> None:
    engine, has = held_by_a("m2")
    has = answered(engine, engine.passes(has, 15, frozenset()), "A", KEEP_ALIVE).state
    early = gone_on(engine, has)
    assert answered(engine, early, "A", READ).reply == YES
    assert engine.next(has, frozenset()) == 5
    has = engine.passes(has, 5, frozenset())
    assert answered(engine, has, "A", READ).reply == YES
    assert answered(engine, gone_on(engine, has), "A", READ).reply == NO


def test_a_key_that_was_moved_is_not_under_the_lease_that_it_revokes() -> None:
    engine, has = held_by_a("m2")
    has = answered(engine, engine.passes(has, 15, frozenset()), "A", MOVE).state
    has = gone_on(engine, engine.passes(has, 5, frozenset()))
    assert answered(engine, has, "A", READ).reply == YES
    assert list(engine.happenings(has)) == []  # one stall will do
