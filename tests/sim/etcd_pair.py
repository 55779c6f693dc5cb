"""A real etcd and the simulated one side by side: the same is done to both, and the answers are compared.

The simulated one begins at the revision that the real one has reached, so no revision has to be translated.
"""

from __future__ import annotations

import random
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from gripfast.machine import boottime
from gripfast.stores.etcd.blocking import BlockingLink
from gripfast.stores.etcd.dial import Dialer
from gripfast.stores.etcd.link import Notice, Refusal
from gripfast.stores.etcd.messages import (
    CREATE,
    LEASE,
    MOD,
    NOPUT,
    VALUE,
    VERSION,
    CompactionRequest,
    Compare,
    DeleteRangeRequest,
    LeaseGrantRequest,
    LeaseRevokeRequest,
    LeaseTimeToLiveRequest,
    LeaseTimeToLiveResponse,
    PutRequest,
    RangeRequest,
    ResponseHeader,
    TxnRequest,
    WatchCreate,
)
from gripfast.stores.etcd.watches import Watch, Watches
from gripfast_lab.sim.etcd.state import Refused, State
from gripfast_lab.sim.etcd.watcher import Watcher
from support.etcd_servers import EtcdServer

KEYS = [b"a", b"b", b"b0", b"c"]
LEASES = 4
LONG = 600
"""Seconds: no lease expires while it is compared."""
SLOW = 20.0
SLOW_WATCH = 20.0
"""Seconds for a watch to tell something."""


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """On the blocking driver, nothing suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it has suspended")


class Pair:
    def __init__(self, server: EtcdServer) -> None:
        self._link = BlockingLink(Dialer([server.address], SLOW))
        self._examples = 0
        self._compacted = 0

    def begin(self) -> None:
        """With empty keys and leases that nobody has used before."""
        self._examples += 1
        self._prefix = b"%d/" % self._examples
        self._lease = self._examples * 100
        self.state = State()
        self.state.revision = self._real(RangeRequest(b"x")).header.revision
        self.state.compacted = self._compacted

    def end(self) -> None:
        self._compacted = self.state.compacted

    def check(self, request: Any) -> None:
        real, simulated = self._real(request), self._simulated(request)
        assert simulated == real, f"{request}:\nthe real one: {real}\nthe simulated one: {simulated}"

    def check_watch(self, create: WatchCreate) -> None:
        """By the first notice that it brings, at once or by one more put."""
        real, simulated, watches = list[Notice](), list[Notice](), Watches()
        puts = NOPUT not in create.filters
        watch = Watch(simulated.append)
        watcher = Watcher(watches.add(watch, create.key, create.range_end, create.start_revision, puts))
        for response in watcher.begin(self.state, loses_deletes=True):
            watches.got(response)
        arguments = create.key, create.start_revision, real.append, time.monotonic() + SLOW, create.range_end, puts
        kept = run(self._link.watch(*arguments))
        if not simulated:
            self._change_it(create, watcher, watches)
        inbox, ends = self._link.inbox(), time.monotonic() + SLOW_WATCH
        while not real and time.monotonic() < ends:
            run(inbox.hear(_soon()))
        kept.cancel()
        assert [each._replace(why="") for each in simulated] == [each._replace(why="") for each in real], (
            f"{create} at {self.state.revision}, compacted {self.state.compacted}: real {real}, simulated {simulated}"
        )

    def _change_it(self, create: WatchCreate, watcher: Watcher, watches: Watches) -> None:
        revision = self.state.revision
        for request in (PutRequest(create.key, b"more"), DeleteRangeRequest(create.key)) * 3:
            self.check(request)
            response = watcher.take(self.state.events_from(revision + 1), self.state.revision)
            if response is not None:
                watches.got(response)
                return

    def _real(self, request: Any) -> Any:
        answer = run(self._link.call(request, _soon() + SLOW))
        return answer if isinstance(answer, Refusal) else _plain(answer)

    def _simulated(self, request: Any) -> Any:
        try:
            return _plain(self.state.do(request))
        except Refused as refused:
            return Refusal(refused.status, refused.message, self._link.where)

    # What is done ---------------------------------------------------------------------------------------------------

    def key(self, chance: random.Random) -> bytes:
        return self._prefix + chance.choice(KEYS)

    def span(self, chance: random.Random) -> tuple[bytes, bytes]:
        """A key, or some of them."""
        first, last = sorted((self.key(chance), self.key(chance)))
        return chance.choice([(first, b""), (first, last + b"0"), (self._prefix, self._prefix[:-1] + b"0")])

    def lease(self, chance: random.Random) -> int:
        return self._lease + chance.randrange(LEASES)

    def put(self, chance: random.Random, key: bytes) -> PutRequest:
        lease = chance.choice([0, self.lease(chance), *self.state.leases])
        return PutRequest(key, chance.choice([b"", b"x", b"y"]), lease, chance.random() < 0.3)

    def range(self, chance: random.Random) -> RangeRequest:
        revision = self.state.revision - chance.randrange(-2, 6)
        near = self.state.revision - chance.randrange(6)
        return RangeRequest(
            *self.span(chance),
            limit=chance.choice([0, 0, 1, 2]),
            revision=revision if chance.random() < 0.2 else 0,
            sort_order=chance.randrange(3),
            sort_target=chance.randrange(5),
            keys_only=chance.random() < 0.2,
            count_only=chance.random() < 0.1,
            max_create_revision=near if chance.random() < 0.3 else 0,
            min_mod_revision=near if chance.random() < 0.2 else 0,
        )

    def compare(self, chance: random.Random) -> Compare:
        key, end = self.span(chance)
        target = chance.choice([VERSION, CREATE, MOD, VALUE, LEASE])
        if target == VALUE:
            return Compare(target, key, chance.randrange(4), chance.choice([b"", b"x"]), end)
        found = self.state.within(key, end)
        known = [0, 1]
        for kv in found:
            known += {
                VERSION: [kv.version],
                CREATE: [kv.create_revision, kv.create_revision - 1],
                MOD: [kv.mod_revision],
                LEASE: [kv.lease],
            }[target]
        return Compare(target, key, chance.randrange(4), chance.choice(known), end)

    def txn(self, chance: random.Random, writable: list[bytes], depth: int = 0) -> TxnRequest:
        """No key is written twice: etcd would refuse that."""
        compares = tuple(self.compare(chance) for _ in range(chance.randrange(3)))
        success = tuple(self.op(chance, writable, depth) for _ in range(chance.randrange(3)))
        return TxnRequest(
            compares, success, tuple(self.op(chance, writable, depth) for _ in range(chance.randrange(3)))
        )

    def op(self, chance: random.Random, writable: list[bytes], depth: int) -> Any:
        kind = chance.random()
        if kind < 0.25 and depth < 2:
            return self.txn(chance, writable, depth + 1)
        if kind < 0.7 and writable:
            key = writable.pop()
            return self.put(chance, key) if chance.random() < 0.7 else DeleteRangeRequest(key, prev_kv=True)
        return self.range(chance)

    def request(self, chance: random.Random) -> Any:
        kind = chance.random()
        if kind < 0.35:
            writable = [self._prefix + key for key in KEYS]
            chance.shuffle(writable)
            return self.txn(chance, writable)
        if kind < 0.5:
            return self.put(chance, self.key(chance))
        if kind < 0.6:
            return DeleteRangeRequest(*self.span(chance), prev_kv=chance.random() < 0.5)
        if kind < 0.75:
            return self.range(chance)
        if kind < 0.87:
            return LeaseGrantRequest(LONG + chance.randrange(9), self.lease(chance))
        if kind < 0.92:
            return LeaseRevokeRequest(self.lease(chance))
        if kind < 0.97:
            return LeaseTimeToLiveRequest(self.lease(chance), keys=True)
        return CompactionRequest(self.state.revision - chance.randrange(-1, 4), physical=True)

    def watch(self, chance: random.Random) -> WatchCreate:
        start = max(1, self.state.revision - chance.randrange(-2, 6))
        if chance.random() < 0.3:
            start = max(1, self.state.compacted)
        return WatchCreate(*self.span(chance), start, filters=(NOPUT,) if chance.random() < 0.7 else ())


def _soon() -> float:
    return boottime() + 0.05


def _plain(answer: Any) -> Any:
    """Without who has answered, and what is no number of the log's."""
    header = ResponseHeader(revision=answer.header.revision)
    if isinstance(answer, LeaseTimeToLiveResponse) and answer.ttl >= 0:
        assert answer.granted_ttl - answer.ttl <= SLOW
        return answer._replace(header=header, ttl=0, keys=tuple(sorted(answer.keys)))
    if hasattr(answer, "responses"):
        return answer._replace(header=header, responses=tuple(map(_inner, answer.responses)))
    return answer._replace(header=header)


def _inner(answer: Any) -> Any:
    """What an operation of a transaction says of the revision is not the same for all of them, and nobody reads it."""
    if hasattr(answer, "responses"):
        answer = answer._replace(responses=tuple(map(_inner, answer.responses)))
    return answer._replace(header=ResponseHeader())


@contextmanager
def pair_with_etcd() -> Iterator[Pair]:
    with EtcdServer() as server:
        yield Pair(server)


def compare(pair: Pair, seed: int, steps: int = 40) -> None:
    chance = random.Random(seed)
    pair.begin()
    for _ in range(steps):
        pair.check(pair.request(chance))
        if chance.random() < 0.1:
            pair.check_watch(pair.watch(chance))
    pair.end()
