"""The simulated server answers commands as a real one does, whatever the order, the types and the mistakes."""

import pytest

from gripfast.stores.redis import protocol
from sim.redis_pair import Pair, hold_alike, shape
from sim.redis_words import commands_are_alike, sequences


@pytest.mark.timeout(400)  # making a failure smaller takes a while
def test_any_sequence_of_commands(pair: Pair) -> None:
    hold_alike(pair, sequences, commands_are_alike, examples=300)


LINES = """
GET | get a b c | FOO a b | SET a b px 0 | SET a b px -5 | SET a b px x | SET a b px | SET a b nx xx | SET a b nx get
SET a b px 60000 ex 10 | SET a b px 60000 px 50000 | set a b px 99999999999999999999 | SET a b KEEPTTL PX 5 | SET a b
EVALSHA abc 0 | EVALSHA abc 5 | EVALSHA abc x | EVALSHA abc -1 | EVAL | EVAL x x | eval return(1) 0
SCRIPT | SCRIPT foo | SCRIPT EXISTS | SCRIPT EXISTS abc ABC | SCRIPT LOAD for | SCRIPT LOAD | SCRIPT FLUSH x
SCRIPT LOAD return(1) | SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db E0E1F9FABFC9D4800C877A703B823AC0578FF8DB
EVALSHA E0E1F9FABFC9D4800C877A703B823AC0578FF8DB 0 | EVALSHA E0E1F9FABFC9D4800C877A703B823AC0578FF8DB 1
SCRIPT FLUSH | EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0 | EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db x
ZADD z x a | ZADD z 1 | ZADD z 1 a 2 | ZADD z inf a 1e17 b 0.1 c -0 d | ZRANGE z 0 -1 WITHSCORES | ZRANGE a 0 x
ZREMRANGEBYSCORE z x 1 | ZREMRANGEBYSCORE z 0 | ZREMRANGEBYSCORE z -inf 0.1 | ZRANK z a | ZRANK z c | ZRANK none a
DECR s | DECR s | INCR s | DECR z | ZRANK s a | ZREMRANGEBYSCORE s 0 1 | DEL s
ZADD z 1 a 2 b | ZADD z NX 5 a 6 e | ZADD z nx 1 | ZADD z NX x e | ZRANGE z 0 -1 WITHSCORES
EXPIRE a x | PEXPIRE a 100 foo | SCAN x | SCAN 0 count 0 | SCAN 0 match | SCAN 0 foo bar | SCAN 99999999999999999999999
HSET h a | HSET h a 1 b | INCR a | PING a b | PING x | FLUSHALL foo | DBSIZE x | DBSIZE | FLUSHALL ASYNC | DBSIZE
UNSUBSCRIBE | UNSUBSCRIBE a b | SUBSCRIBE | SUBSCRIBE a b a | GET a | EVAL x 0 | NOPE a | PING | PING x | PING x y
UNSUBSCRIBE b | UNSUBSCRIBE c | unsubscribe | GET a
"""
REPLIES = {"UNSUBSCRIBE a b": 2, "SUBSCRIBE a b a": 3}


def test_a_conversation(pair: Pair) -> None:
    """On one connection: what is remembered from one command to the next, and what nobody should send."""
    lines = [line.strip() for row in LINES.strip().splitlines() for line in row.split("|")]
    parts = [(protocol.command(*line.encode().split()), REPLIES.get(line, 1)) for line in lines]
    real, simulated = (side.talk(parts) for side in (pair.real, pair.simulated))
    for line, expected, replies in zip(lines, real, simulated, strict=True):
        assert (line, [shape((b"",), each) for each in replies]) == (line, [shape((b"",), each) for each in expected])


def test_the_time(pair: Pair) -> None:
    (real,), (simulated,) = (side.many((b"TIME",)) for side in (pair.real, pair.simulated))
    assert [len(each) for each in simulated] == [10, len(simulated[1])]
    assert abs(int(simulated[0]) - int(real[0])) <= 2


def test_unknown_commands_are_quoted_as_far_as_redis_does(pair: Pair) -> None:
    for words in [(b"x" * 300,), (b"nope", b"y" * 100, b"z" * 100, b"end"), (b"nope", b"a\r\nb", b"\xff"), (b"",)]:
        pair.do(*words)
