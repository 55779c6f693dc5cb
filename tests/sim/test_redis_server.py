"""What the simulated server has that a real one has not: a clock that is given, faults, hooks, snapshots."""

from typing import Any

import pytest
from hiredis import ReplyError

from gripfast.stores.redis.protocol import command, subscribe
from gripfast_lab.sim.redis import lua
from gripfast_lab.sim.redis.database import Database
from gripfast_lab.sim.redis.server import Server, Session

START_US = 1_700_000_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now_us = START_US

    def __call__(self) -> int:
        return self.now_us

    def passes(self, ms: int) -> None:
        self.now_us += ms * 1000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Server:
    return Server(clock)


def ask(session: Session, *words: bytes) -> Any:
    [reply] = session.receive(command(*words))
    return reply


def do(database: Database, line: str) -> Any:
    return database.call(line.encode().split())


# The clock ------------------------------------------------------------------------------------------------------------


def test_a_key_is_there_until_its_millisecond_is_over(clock: Clock, server: Server) -> None:
    do(server.database, "SET a b PX 10")
    clock.passes(10)
    assert (do(server.database, "PTTL a"), server.database.keys()) == (0, [b"a"])
    clock.passes(1)
    assert server.database.keys() == []
    assert (do(server.database, "PTTL a"), do(server.database, "GET a")) == (-2, None)


def test_a_key_that_nobody_looked_at_comes_back_with_the_clock(clock: Clock, server: Server) -> None:
    for key in "abc":
        do(server.database, f"SET {key} x PX 10")
    clock.passes(20)
    do(server.database, "GET a")
    assert server.database.keys() == []  # which is not looking
    clock.passes(-20)
    assert server.database.keys() == [b"b", b"c"]
    clock.passes(20)
    server.database.sweep()
    clock.passes(-20)
    assert server.database.keys() == []


# Memory ---------------------------------------------------------------------------------------------------------------


def test_a_snapshot_brings_everything_back_as_often_as_wanted(server: Server) -> None:
    database = server.database
    lines = ["SET s x PX 5000", "HSET h f v", "ZADD z 1 m"]
    for line in lines:
        do(database, line)
    before, snapshot = database.fingerprint(), database.snapshot()
    for _ in range(2):
        for line in ["SET s y", "HSET h f w", "ZADD z 2 m", "SET more x"]:
            do(database, line)
        assert database.fingerprint() != before
        database.restore(snapshot)
        assert database.fingerprint() == before


def test_a_fingerprint_counts_expiries_from_now(clock: Clock, server: Server) -> None:
    do(server.database, "SET a b PX 5000")
    before = server.database.fingerprint()
    clock.passes(1000)
    assert server.database.fingerprint() != before
    do(server.database, "PEXPIRE a 5000")
    assert server.database.fingerprint() == before
    assert hash(before) == hash(server.database.fingerprint())


@pytest.mark.parametrize("lines", [("SET a x", "SET a y"), ("HSET a f 1", "ZADD a 1 f"), ("SET a x", "SET b x")])
def test_different_contents_have_different_fingerprints(clock: Clock, lines: tuple[str, str]) -> None:
    prints = []
    for line in lines:
        database = Server(clock).database
        do(database, line)
        prints.append(database.fingerprint())
    assert prints[0] != prints[1]


def test_a_walk_by_scan_finds_all_that_stays_although_others_come_and_go(server: Server) -> None:
    database = server.database
    for number in range(50):
        do(database, f"SET stays:{number} x")
        do(database, f"SET goes:{number} x")
    cursor, found, turn = b"0", list[bytes](), 0
    while turn == 0 or cursor != b"0":
        cursor, keys = do(database, f"SCAN {cursor.decode()} COUNT 7")
        found += keys
        do(database, f"DEL goes:{turn} goes:{49 - turn}")
        do(database, f"SET new:{turn} x")
        turn += 1
    assert turn > 10
    assert {key for key in found if key.startswith(b"stays")} == {b"stays:%d" % number for number in range(50)}
    assert len(found) == len(set(found))


# Sessions -------------------------------------------------------------------------------------------------------------


def test_commands_may_come_in_pieces_and_together(server: Server) -> None:
    session = server.connect()
    packed = command(b"SET", b"a", b"b") + command(b"GET", b"a") + command(b"DEL", b"a")
    assert session.receive(packed[:10]) == []
    assert session.receive(packed[10:40]) == [b"OK"]
    assert session.receive(packed[40:]) == [b"b", 1]


def test_a_message_arrives_before_the_reply_of_whoever_published(server: Server) -> None:
    order: list[Any] = []
    server.connect(order.append).receive(subscribe(b"news"))
    order.append(ask(server.connect(), b"EVAL", b"return redis.call('PUBLISH', KEYS[1], 'x')", b"1", b"news"))
    assert order == [[b"message", b"news", b"x"], 1]


def test_a_closed_session_hears_nothing_and_does_not_count(server: Server) -> None:
    heard: list[Any] = []
    sessions = [server.connect(heard.append) for _ in range(2)]
    for session in sessions:
        session.receive(subscribe(b"news"))
    assert server.receivers(b"news") == 2
    sessions[0].close()
    assert (server.receivers(b"news"), ask(server.connect(), b"PUBLISH", b"news", b"x")) == (1, 1)
    sessions[1].close()
    assert (server.receivers(b"news"), ask(server.connect(), b"PUBLISH", b"news", b"x")) == (0, 0)
    assert len(heard) == 1


def test_a_server_that_refuses_does_nothing_else(server: Server) -> None:
    session = server.connect()
    server.refusal = b"LOADING Redis is loading the dataset in memory"
    reply = ask(session, b"SET", b"a", b"b")
    assert isinstance(reply, ReplyError)
    assert str(reply).startswith("LOADING ")
    server.refusal = None
    assert ask(session, b"EXISTS", b"a") == 0


def test_scripts_are_remembered_until_they_are_forgotten(server: Server) -> None:
    session = server.connect()
    sha = lua.sha_of("return ARGV[1]").encode()
    assert str(ask(session, b"EVALSHA", sha, b"0", b"x")).startswith("NOSCRIPT ")
    assert ask(session, b"EVAL", b"return ARGV[1]", b"0", b"x") == b"x"
    assert ask(session, b"EVALSHA", sha, b"0", b"x") == b"x"
    server.forget_scripts()
    assert str(ask(session, b"EVALSHA", sha, b"0", b"x")).startswith("NOSCRIPT ")


def test_an_observer_sees_each_command_before_and_after(server: Server) -> None:
    seen: list[Any] = []
    server.before = lambda session, args: seen.append(("before", args))
    server.after = lambda session, args, reply: seen.append(("after", args, reply))
    server.connect().receive(command(b"SET", b"a", b"b") + command(b"GET", b"a"))
    set_it, get_it = [b"SET", b"a", b"b"], [b"GET", b"a"]
    assert seen == [("before", set_it), ("after", set_it, b"OK"), ("before", get_it), ("after", get_it, b"b")]


# Scripts --------------------------------------------------------------------------------------------------------------


def test_a_rewritten_script_keeps_its_name(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    session = server.connect()
    sha = ask(session, b"SCRIPT", b"LOAD", b"return 'right'")
    monkeypatch.setattr(lua.ENGINE, "rewrite", lambda text: text.replace("right", "wrong"))
    assert ask(session, b"EVALSHA", sha, b"0") == b"wrong"
    assert ask(session, b"SCRIPT", b"LOAD", b"return 'right'") == sha
    monkeypatch.undo()
    assert ask(session, b"EVALSHA", sha, b"0") == b"right"


def test_scripts_of_two_servers_see_their_own_data(clock: Clock) -> None:
    first, second = Server(clock).connect(), Server(clock).connect()
    script = b"return redis.call('INCR', KEYS[1])"
    assert [ask(each, b"EVAL", script, b"1", b"n") for each in (first, second, first)] == [1, 1, 2]


@pytest.mark.parametrize("line", ["ZADD z XX 1 m", "ZRANGE z 0 1 REV", "PEXPIRE z 1 GT"])
@pytest.mark.parametrize("how", ["at once", "call", "pcall"])
def test_what_is_not_simulated_ends_the_simulation(server: Server, line: str, how: str) -> None:
    words = line.encode().split()
    if how != "at once":
        words = [b"EVAL", b"pcall(redis.%b, unpack(ARGV)) return 1" % how.encode(), b"0", *words]
    with pytest.raises(NotImplementedError):
        server.connect().receive(command(*words))
    assert ask(server.connect(), b"EVAL", b"return 2", b"0") == 2
