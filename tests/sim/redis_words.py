"""Random commands for the pair: mostly well-formed, on a few keys so that they meet, some of them wrong."""

from typing import Any

from hypothesis import strategies as st

from sim.redis_pair import Pair

Words = tuple[bytes, ...]

KEYS = [b"a", b"b", b"c*[", b"\xff\0 x"]
CHANNELS = [b"news", b"weather"]


def weighted(*choices: tuple[int, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """`one_of` takes each once, however often it is told."""
    return st.sampled_from([each for weight, each in choices for _ in range(weight)]).flatmap(lambda chosen: chosen)


keys = st.sampled_from(KEYS)
channels = st.sampled_from(CHANNELS)
members = st.sampled_from([b"", b"m", b"n", b"\xfe\n"])
values = st.sampled_from([b"", b"v", b"7", b"-1", b"07", b"9223372036854775807", b"9223372036854775808", b"\r\n\0\xff"])
numbers = st.sampled_from([b"0", b"1", b"2", b"-1", b"-2", b"-100", b"100"])
wrong_numbers = st.sampled_from([b"x", b"", b"+1", b"01", b" 1", b"1 ", b"1.5", b"-0", b"1_0", b"9223372036854775808"])
indices = weighted((5, numbers), (1, wrong_numbers))
spans = st.one_of(
    st.sampled_from([b"60000", b"600000", b"9000000"]),
    st.sampled_from([b"0", b"-1", b"-60000"]),
    st.sampled_from([b"9223372036854775807", b"-9223372036854775808", b"9223372036854775", b"-9223372036854776"]),
    wrong_numbers,
)
"""Of time: long, over at once, or impossible; none that could run out on one server before it does on the other."""
bounds = st.sampled_from([b"-inf", b"0", b"1", b"2.5", b"+inf", b"x"])
scores = st.sampled_from(
    [
        b"0",
        b"-0",
        b"1",
        b"2",
        b"-3",
        b"1.5",
        b"0.1",
        b"1e17",
        b"1e400",
        b"inf",
        b"-inf",
        b"nan",
        b"x",
        b"",
        b" 1",
        b"+2",
    ]
)
patterns = st.sampled_from(
    [b"*", b"", b"?", b"[a-b]", b"[^a]", b"[b-", b"\\a", b"c\\*\\[", b"c[*]*", b"a\\", b"[]", b"*x"]
)

expiries = st.one_of(
    st.tuples(st.sampled_from([b"PX", b"EX", b"px"]), spans),
    st.tuples(st.just(b"PXAT"), st.sampled_from([b"1", b"0", b"-1", b"4102444800000", b"x"])),
    st.tuples(st.just(b"EXAT"), st.sampled_from([b"1", b"0", b"4102444800", b"9223372036854775807"])),
    st.sampled_from([(b"KEEPTTL",), (b"keepttl",), (b"PX",)]),
)
set_options = st.one_of(
    st.just(()), expiries, st.sampled_from([(b"NX",), (b"XX",), (b"GET",), (b"get",), (b"nope",), (b"NX", b"GET")])
)


def command(name: bytes, *words: st.SearchStrategy[bytes]) -> st.SearchStrategy[Words]:
    return st.tuples(st.just(name), *words)


def with_many(start: st.SearchStrategy[Words], more: st.SearchStrategy[Any]) -> st.SearchStrategy[Words]:
    return st.tuples(start, st.lists(more, max_size=3)).map(lambda both: both[0] + flat(both[1]))


def flat(words: Any) -> Words:
    return tuple(word for each in words for word in (each if isinstance(each, tuple) else (each,)))


plain = st.one_of(
    command(b"GET", keys),
    with_many(command(b"SET", keys, values), set_options),
    with_many(command(b"SET", keys, values), set_options),
    command(b"SETNX", keys, values),
    command(b"GETSET", keys, values),
    command(b"INCR", keys),
    command(b"DECR", keys),
    with_many(command(b"DEL", keys), keys),
    with_many(command(b"EXISTS", keys), keys),
    command(b"TYPE", keys),
    command(b"PEXPIRE", keys, spans),
    command(b"EXPIRE", keys, spans),
    command(b"PERSIST", keys),
    with_many(command(b"ZADD", keys, scores, members), st.tuples(scores, members)),
    command(b"ZADD", keys, st.just(b"NX"), scores, members),
    command(b"ZSCORE", keys, members),
    with_many(command(b"ZRANGE", keys, indices, indices), st.sampled_from([b"WITHSCORES", b"withscores", b"nope"])),
    with_many(command(b"ZREM", keys, members), members),
    command(b"ZCARD", keys),
    command(b"ZRANK", keys, members),
    command(b"ZREMRANGEBYSCORE", keys, bounds, bounds),
    with_many(command(b"HSET", keys, members, values), st.tuples(members, values)),
    command(b"HGET", keys, members),
    command(b"HEXISTS", keys, members),
    command(b"HINCRBY", keys, members, weighted((5, numbers), (2, values), (1, wrong_numbers))),
    with_many(command(b"HDEL", keys, members), members),
    command(b"HLEN", keys),
    command(b"HGETALL", keys),
    command(b"PUBLISH", channels, values),
    with_many(command(b"PUBSUB", st.sampled_from([b"NUMSUB", b"numsub", b"nope"])), channels),
    with_many(command(b"PING"), values),
    command(b"ECHO", values),
    command(b"nope", keys, values),
)
"""What a script may call, too: the same words get the same answer at any time."""

timed = st.one_of(command(b"PTTL", keys), command(b"TTL", keys), command(b"KEYS", patterns))


@st.composite
def mangled(draw: st.DrawFn) -> Words:
    """A word too many or too few, or letters of the other case."""
    words = draw(st.one_of(plain, timed))
    how = draw(st.integers(0, 2))
    if how == 0:
        return words[:-1] if len(words) > 1 else words
    return (*words, draw(values)) if how == 1 else (words[0].swapcase(), *words[1:])


scan_options = st.one_of(
    st.tuples(st.just(b"MATCH"), patterns),
    st.tuples(st.just(b"COUNT"), st.sampled_from([b"1", b"2", b"1000", b"0", b"x"])),
    st.tuples(st.just(b"TYPE"), st.sampled_from([b"string", b"ZSET", b"nope"])),
    st.just((b"MATCH",)),
)

steps = weighted(
    (9, st.tuples(st.just("do"), plain)),
    (3, st.tuples(st.just("do"), timed)),
    (2, st.tuples(st.just("do"), mangled())),
    (1, st.tuples(st.just("scan"), st.lists(scan_options, max_size=2).map(flat))),
    (2, st.tuples(st.just("listens"), st.tuples(st.integers(0, 1), channels, st.booleans()))),
    (1, st.tuples(st.just("expires"), keys)),
)
sequences = st.lists(steps, min_size=15, max_size=50)


def commands_are_alike(pair: Pair, sequence: list[tuple[str, Any]]) -> None:
    for kind, what in sequence:
        if kind == "do":
            pair.do(*what)
        elif kind == "scan":
            pair.scan(*what)
        elif kind == "listens":
            pair.listens(*what)
        elif pair.do(b"PEXPIRE", what, b"1"):
            pair.waits_for_the_end_of(what)
    pair.compare()
