"""The scripts on a real server do what a small model of the line in plain Python does, in any order of requests."""

import re
import socket
import time
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from gripfast.core.ports import Claim, Granted, Hold
from gripfast.stores.redis import keys, protocol, scripts
from gripfast.stores.redis.scripts import Script
from gripfast.stores.redis.wire import Wire
from stores.redis_line import WINDOW_MS, Interval, Line
from support.redis_server import HOST, RedisServer

KEY = "lock:job"
LOCK = KEY.encode()
FENCE, LINE, PLACES = (keys.side_key(LOCK, kind) for kind in (b"token", b"line", b"places"))
OWNERS = [b"a", b"b 1 2", b"-\xff\n-", b"f" * 120]
FOREIGN = b"someone"
END = b"gripfast:end"
GRAIN_MS = 20
"""How far the server's idea of the moment of a request may be from the truth."""
HOUR_US = 3600 * 1_000_000

owners = st.sampled_from(OWNERS)
ttls = st.sampled_from([8_000, 30_000, 60_000])


def now_ms() -> float:
    return time.time() * 1000


def token_of(fence: bytes | None) -> int | None:
    """None if it has none: then it only says that somebody waits."""
    found = None if fence is None else re.match(rb"!?(\d+)", fence)
    return None if found is None else int(found[1]) or None


def channel_of(owner: bytes) -> bytes:
    return protocol.new_channel(owner.hex())


class Seen(NamedTuple):
    """All that the server has."""

    holder: bytes | None
    lock_left: int
    fence: bytes | None
    fence_left: int
    line: list[bytes]
    places: dict[bytes, bytes]
    at: Interval


class Bench:
    """A connection for requests, and one that hears all pushes."""

    def __init__(self, server: RedisServer) -> None:
        self.admin = server.client()
        self._requests, self._pushes = (Wire(socket.create_connection((HOST, server.port)), 10.0) for _ in range(2))
        self._pushes.ask(protocol.subscribe(END))

    def reset(self) -> None:
        self.admin.flushall()
        for owner in OWNERS:
            self.listens(owner, True)
        self.heard()

    def ask(self, script: Script, packed: bytes) -> Any:
        reply = self._requests.ask(packed)
        return self._requests.ask(script.in_full(packed)) if protocol.forgot_script(reply) else reply

    def claim(self, owner: bytes, ttl_ms: int = 30_000, waits: bool = True) -> Any:
        label = f"label of {owner!r}"
        claim = Claim("job", protocol.to_text(owner), ttl_ms / 1000, label, None)
        channel = channel_of(owner) if waits else b""
        return self.ask(scripts.CLAIM, protocol.claim(KEY, claim, protocol.card(label, "here", 7), channel))

    def release(self, owner: bytes) -> Any:
        return self.ask(scripts.RELEASE, protocol.release(KEY, Hold("job", protocol.to_text(owner), 30.0)))

    def look(self) -> Seen:
        before = now_ms()
        pipeline = self.admin.pipeline(transaction=False)
        pipeline.get(LOCK).pttl(LOCK).get(FENCE).pttl(FENCE).zrange(LINE, 0, -1).hgetall(PLACES)
        found = pipeline.execute()
        return Seen(*found, at=(before, now_ms()))

    def listens(self, owner: bytes, really: bool) -> None:
        command = b"SUBSCRIBE" if really else b"UNSUBSCRIBE"
        self._pushes.ask(protocol.command(command, channel_of(owner)))

    def heard(self) -> list[tuple[bytes, protocol.Push]]:
        """The pushes that have arrived since the last call, with their channels."""
        self.admin.publish(END, "end 0 0")
        found = []
        while (message := self._pushes.hear(10.0))[1] != END:
            push = protocol.read_push(message)
            assert push is not None
            found.append((message[1], push))
        return found

    def close(self) -> None:
        self._requests.close()
        self._pushes.close()
        self.admin.close()


@pytest.fixture(scope="module")
def bench_of_module() -> Iterator[Bench]:
    with RedisServer() as server:
        bench = Bench(server)
        yield bench
        bench.close()


@pytest.fixture
def bench(bench_of_module: Bench) -> Bench:
    bench_of_module.reset()
    return bench_of_module


# Any order of requests ------------------------------------------------------------------------------------------------


class Machine(RuleBasedStateMachine):
    """Every rule does the same to the server and to the model, and compares all that can be seen."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self.bench.reset()
        self.line = Line()
        self.before = 0.0

    def ask(self, script: Script, packed: bytes) -> Any:
        self.before = now_ms()
        reply = self.bench.ask(script, packed)
        self.began()
        return reply

    def began(self) -> None:
        """The server has done something since `before`; the model is about to."""
        self.line.begin((self.before, now_ms()))

    @initialize(crowd=st.permutations(OWNERS), size=st.integers(0, len(OWNERS)))
    def begin(self, crowd: list[bytes], size: int) -> None:
        for owner in crowd[:size]:
            self.claims(owner, 30_000, waits=True)

    # Requests of owners ----------------------------------------------------------------------------------------------

    @rule(owner=owners, ttl_ms=ttls)
    def waits_for_it(self, owner: bytes, ttl_ms: int) -> None:
        self.claims(owner, ttl_ms, waits=True)

    @rule(owner=owners, ttl_ms=ttls)
    def tries_it(self, owner: bytes, ttl_ms: int) -> None:
        self.claims(owner, ttl_ms, waits=False)

    def claims(self, owner: Any, ttl_ms: int, waits: bool) -> None:
        self.before = now_ms()
        reply = self.bench.claim(owner, ttl_ms, waits)
        self.began()
        joins = waits and self.line.find(owner) is None
        if self.line.claim(owner, ttl_ms, waits):
            assert isinstance(reply, int)
            self.compare(granted=reply)
            return
        self.compare()
        value, _, _, waiting, hears = reply
        assert (value, waiting) == (self.line.holder, 1 if joins else len(self.line.waiters))
        assert hears == (waits and owner not in self.line.muted)

    @precondition(lambda self: self.line.holder in OWNERS)
    @rule(ttl_ms=ttls, shortens=st.booleans())
    def the_holder_renews(self, ttl_ms: int, shortens: bool) -> None:
        self.renews(self.line.holder, ttl_ms, shortens)

    @precondition(lambda self: self.line.holder in OWNERS)
    @rule(ttl_ms=ttls, waits=st.booleans())
    def the_holder_claims_again(self, ttl_ms: int, waits: bool) -> None:
        self.claims(self.line.holder, ttl_ms, waits)

    @precondition(lambda self: self.line.holder in OWNERS)
    @rule()
    def the_holder_releases(self) -> None:
        self.releases(self.line.holder)

    @rule(owner=owners, what=st.sampled_from(["renews", "releases", "goes away", "asks why"]))
    def anyone(self, owner: bytes, what: str) -> None:
        if what == "renews":
            self.renews(owner, 30_000, False)
        elif what == "releases":
            self.releases(owner)
        elif what == "goes away":
            self.goes_away(owner)
        else:
            self.asks_why(owner)

    def renews(self, owner: Any, ttl_ms: int, shortens: bool) -> None:
        hold = Hold("job", protocol.to_text(owner), ttl_ms / 1000, shortens)
        assert self.ask(scripts.RENEW, protocol.renew(KEY, hold)) == self.line.renew(owner, ttl_ms, shortens)
        self.compare()

    def releases(self, owner: Any) -> None:
        self.before = now_ms()
        reply = self.bench.release(owner)
        self.began()
        assert reply == self.line.release(owner)
        self.compare()

    def goes_away(self, owner: bytes) -> None:
        assert self.ask(scripts.ABANDON, protocol.abandon(KEY, protocol.to_text(owner))) == 1
        self.line.abandon(owner)
        self.compare()

    def asks_why(self, owner: bytes) -> None:
        reply = self.ask(scripts.WHY, protocol.why(KEY, Hold("job", protocol.to_text(owner), 30.0)))
        assert protocol.read_why(reply) == self.line.why(owner)
        self.compare()

    # What others do ---------------------------------------------------------------------------------------------------

    @rule(note=st.sampled_from([None, None, "deploy of v2", "a second\nline"]))
    def an_operator_breaks_it(self, note: str | None) -> None:
        reply = self.ask(scripts.FORCE_RELEASE, protocol.force_release(KEY, note))
        assert reply == self.line.force_release(note)
        self.compare()
        if self.line.broken is not None:
            self.asks_why(self.line.broken)

    @rule()
    def it_runs_out(self) -> None:
        self.bench.admin.delete(LOCK)
        self.line.holder = None
        self.began()
        self.compare()

    @precondition(lambda self: self.line.holder is None)
    @rule(ends=st.booleans())
    def another_program_takes_it(self, ends: bool) -> None:
        self.before = now_ms()
        self.bench.admin.set(LOCK, FOREIGN, px=60_000 if ends else None)
        self.began()
        self.line.holder = FOREIGN
        self.line.ends = (self.before + 60_000, now_ms() + 60_000) if ends else None
        self.compare()

    # What happens to waiters ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.line.waiters)
    @rule(data=st.data())
    def is_cut_off(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(self.line.waiters)).owner
        self.bench.listens(owner, False)
        self.line.muted.add(owner)

    @precondition(lambda self: self.line.muted)
    @rule(data=st.data())
    def listens_again(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(sorted(self.line.muted)))
        self.bench.listens(owner, True)
        self.line.muted.remove(owner)

    @precondition(lambda self: self.line.waiters)
    @rule(data=st.data(), age_ms=st.sampled_from([WINDOW_MS - 5_000, WINDOW_MS + 1_000]))
    def is_not_seen_for_a_while(self, data: st.DataObject, age_ms: int) -> None:
        waiter = data.draw(st.sampled_from(self.line.waiters))
        place = self.bench.admin.hget(PLACES, waiter.owner)
        rest = cast(bytes, place).partition(b" ")[2]
        self.bench.admin.hset(PLACES, waiter.owner, b"%d %b" % (now_ms() - age_ms, rest))
        waiter.is_stale = age_ms > WINDOW_MS

    # What happens to the token ----------------------------------------------------------------------------------------

    @precondition(lambda self: self.line.last_token is not None)
    @rule(hours=st.integers(1, 100_000))
    def the_clock_goes_back(self, hours: int) -> None:
        """So the last token lies in the future."""
        fence = self.bench.admin.get(FENCE)
        token = time.time_ns() // 1000 + hours * HOUR_US
        self.bench.admin.set(FENCE, re.sub(rb"\d+", b"%d" % token, cast(bytes, fence), count=1), keepttl=True)
        self.line.last_token = token

    @rule()
    def the_token_is_forgotten(self) -> None:
        self.bench.admin.delete(FENCE)
        self.line.last_token = self.line.forgets = None

    # The same on both sides -------------------------------------------------------------------------------------------

    def compare(self, granted: int | None = None) -> None:
        line, seen = self.line, self.bench.look()
        assert seen.holder == line.holder
        assert seen.line == [each.owner for each in line.waiters]
        assert set(seen.places) == set(seen.line)
        self.compare_token(seen, granted)
        self.compare_pushes()
        self.compare_times(seen)
        self.compare_info()

    def compare_token(self, seen: Seen, granted: int | None) -> None:
        line = self.line
        token = token_of(seen.fence)
        if line.writes:
            assert token is not None
            self.assert_grown(token, line.writes)
            line.last_token = token
        assert token == line.last_token
        assert granted in (None, token)

    def assert_grown(self, token: int, writes: int) -> None:
        """The time, unless that would not be larger than the last."""
        earliest, latest = (self.line.now[0] - GRAIN_MS) * 1000, (self.line.now[1] + GRAIN_MS) * 1000
        last = self.line.last_token
        if last is not None and last > latest:
            assert token == last + writes
        else:
            assert token > (last or 0)
            assert earliest <= token <= latest

    def compare_pushes(self) -> None:
        expected = []
        if self.line.pushed is not None:
            assert self.line.last_token is not None
            owner, ttl_ms = self.line.pushed
            granted = Granted(self.line.last_token, ttl_ms / 1000, source=channel_of(owner))
            expected = [(channel_of(owner), protocol.Push(protocol.to_text(owner), granted))]
        assert self.bench.heard() == expected

    def compare_times(self, seen: Seen) -> None:
        line = self.line
        if line.holder is not None:
            assert_left(seen, seen.lock_left, line.ends)
        if line.last_token is not None:
            assert line.forgets is not None
            if line.writes:
                ahead = (max(0.0, line.last_token / 1000 - now) for now in reversed(line.now))
                line.forgets = line.forgets[0] + next(ahead), line.forgets[1] + next(ahead)
            assert_left(seen, seen.fence_left, line.forgets)

    def compare_info(self) -> None:
        line, owner = self.line, self.line.holder
        info = protocol.read_info("job", self.bench.ask(scripts.INSPECT, protocol.inspect(KEY)))
        if owner is None:
            assert info is None
            return
        assert info is not None
        assert info.waiters == len(line.waiters)
        if owner == FOREIGN or line.last_token is None:
            assert (info.token, info.label, info.since) == (0, None, None)
        else:
            assert (info.token, info.label, info.host, info.pid) == (line.last_token, f"label of {owner!r}", "here", 7)


def assert_left(seen: Seen, left_ms: int, ends: Interval | None) -> None:
    if ends is None:
        assert left_ms == -1
    else:
        assert ends[0] - seen.at[1] - GRAIN_MS <= left_ms <= ends[1] - seen.at[0] + GRAIN_MS


def test_any_order_of_requests(bench: Bench, is_sampled: bool) -> None:
    quick = settings(max_examples=12 if is_sampled else 40, stateful_step_count=40)
    run_state_machine_as_test(cast(Any, lambda: Machine(bench)), settings=quick)


# One thing at a time --------------------------------------------------------------------------------------------------


def test_a_waiter_who_does_not_listen_is_passed_over_and_keeps_its_place_in_line(bench: Bench) -> None:
    deaf, other = OWNERS[:2]
    bench.claim(b"holder")
    assert bench.claim(deaf)[4] == 1
    bench.listens(deaf, False)
    bench.release(b"holder")
    assert bench.heard() == []
    assert (bench.look().holder, bench.look().line) == (None, [deaf])
    bench.claim(other, waits=False)
    assert bench.look().holder == other
    assert bench.claim(deaf)[4] == 0  # it is told
    bench.listens(deaf, True)
    bench.release(other)
    assert [push.owner.encode() for _, push in bench.heard()] == [deaf]


def test_nothing_is_published_to_a_channel_that_nobody_listens_to(bench: Bench) -> None:
    """A subscriber to the same channel at a replica would hear it, and believe it."""
    bench.claim(b"holder")
    token = token_of(bench.look().fence)
    bench.claim(OWNERS[0])
    bench.listens(OWNERS[0], False)
    with bench.admin.pubsub() as overheard:  # a pattern hears everything and is no listener to the channel
        overheard.psubscribe("gripfast:*")
        assert overheard.get_message(timeout=10)
        bench.release(b"holder")
        bench.heard()
        assert overheard.get_message(timeout=10)["channel"] == END  # nothing before it
    assert token_of(bench.look().fence) == token  # nor was anything written


def test_a_holder_whose_token_was_forgotten_gets_another(bench: Bench) -> None:
    first = bench.claim(OWNERS[0])
    bench.admin.delete(FENCE)
    assert bench.claim(OWNERS[0]) > first
    assert bench.look().fence is not None


def test_a_hand_over_passes_any_number_of_waiters_who_are_gone_or_deaf(bench: Bench) -> None:
    """More than are looked at in one go, of both kinds, in any order."""
    bench.claim(b"holder")
    crowd = [b"%d" % number for number in range(100)]
    for owner in crowd:
        bench.claim(owner)
    bench.claim(OWNERS[0])
    bench.claim(OWNERS[1])
    gone = [owner for owner in crowd if int(owner) % 3]
    for owner in gone:
        bench.admin.hset(PLACES, owner, b"1 30000 gripfast:gone {}")
    bench.release(b"holder")
    [(_, push)] = bench.heard()
    assert push.owner.encode() == OWNERS[0]
    deaf = [owner for owner in crowd if owner not in gone]
    assert bench.look().line == [*deaf, OWNERS[1]]
    assert [bench.claim(owner)[4] for owner in deaf[:2]] == [0, 0]


def test_a_waiter_whose_place_was_forgotten_is_dropped(bench: Bench) -> None:
    bench.claim(b"holder")
    bench.claim(OWNERS[0])
    bench.claim(OWNERS[1])
    bench.admin.hdel(PLACES, OWNERS[0])
    bench.release(b"holder")
    assert [push.owner.encode() for _, push in bench.heard()] == [OWNERS[1]]
    assert bench.look().line == []


def test_nobody_is_told_of_a_grant_that_could_not_be_written(bench: Bench) -> None:
    bench.claim(b"holder")
    bench.claim(OWNERS[0])
    bench.admin.config_set("min-replicas-to-write", 1)
    try:
        assert "NOREPLICAS" in str(bench.release(b"holder"))
    finally:
        bench.admin.config_set("min-replicas-to-write", 0)
    assert bench.heard() == []
    assert bench.look().holder == b"holder"


def test_a_line_that_nobody_stands_in_any_more_goes_by_itself(bench: Bench) -> None:
    bench.claim(b"holder")
    bench.claim(OWNERS[0])
    assert 0 < bench.admin.pttl(LINE) <= scripts.LINE_MS
    assert 0 < bench.admin.pttl(PLACES) <= scripts.LINE_MS


def test_a_line_stays_as_long_as_the_last_who_joined_it_may_be_silent(bench: Bench) -> None:
    """Not everyone who joins writes when the line expires: that may be 6 s old."""
    bench.claim(b"holder")
    bench.claim(OWNERS[0])
    for key in (LINE, PLACES):
        bench.admin.pexpire(key, scripts.LINE_MS - 6_000)
    bench.claim(OWNERS[1])
    assert scripts.WINDOW_MS < bench.admin.pttl(LINE) < scripts.LINE_MS - 5_000  # the second has not written it
    assert bench.admin.pttl(PLACES) > scripts.WINDOW_MS


def test_that_a_lock_was_broken_is_remembered_as_long_as_it_would_have_been_held(bench: Bench) -> None:
    bench.claim(b"holder", ttl_ms=30_000)
    bench.ask(scripts.FORCE_RELEASE, protocol.force_release(KEY, "deploy of v2"))
    assert 20_000 < bench.admin.pttl(keys.side_key(LOCK, b"broken")) <= 30_000
    assert 20_000 < bench.admin.pttl(keys.side_key(LOCK, b"note")) <= 30_000


def test_a_holder_of_an_older_version_still_sees_that_it_was_broken(bench: Bench) -> None:
    """It compares the key with its owner id."""
    bench.claim(b"holder", ttl_ms=30_000)
    bench.ask(scripts.FORCE_RELEASE, protocol.force_release(KEY, "deploy of v2"))
    assert bench.admin.get(keys.side_key(LOCK, b"broken")) == b"holder"


def test_without_a_reason_nothing_more_is_written(bench: Bench) -> None:
    bench.claim(b"holder", ttl_ms=30_000)
    bench.ask(scripts.FORCE_RELEASE, protocol.force_release(KEY))
    assert bench.admin.get(keys.side_key(LOCK, b"note")) is None


@pytest.mark.parametrize("script", [each for each in vars(scripts).values() if isinstance(each, Script)])
def test_the_server_knows_a_script_by_the_hash_that_is_sent(bench: Bench, script: Script) -> None:
    assert bench.admin.script_load(script.text) == script.sha
