"""Random little Lua programs for the pair: calls, conversions both ways, errors, caught and not."""

from typing import Any

from hypothesis import strategies as st

from sim.redis_pair import Pair
from sim.redis_words import channels, flat, keys, plain, values, weighted

TEXTS = ["''", "'x'", "'12'", "'-1'", "'OK'", "'CODE of it'", "'-CODE of it'", "'a\\r\\nb'", "'x\\r\\n'", "'\\0\\255'"]
NUMBERS = ["0", "1", "-1", "0.1", "1.5", "-1.9", "2.7", "1e17", "1e300", "9007199254740993", "1/0"]
SIMPLE = [
    *TEXTS, *NUMBERS, "nil", "true", "false",
    "KEYS[1]", "KEYS[2]", "KEYS[3]", "ARGV[1]", "ARGV[2]", "#KEYS", "#ARGV", "{}", "one", "two", "absent",
    "redis.absent", "string.absent", "redis.call()", "redis.pcall()", "redis.error_reply()", "redis.status_reply()",
    "redis.sha1hex()",
]  # fmt: skip
AROUND = [
    "tonumber({})", "type({})", "({}).err", "({}).ok", "({})[1]", "({})[2]", "#({})", "({}) .. 'z'", "({}) + 1",
    "not ({})", "({}) == 'x'", "({}) or 'other'", "({}) and 1", "select('#', {})", "string.format('%.0f', {})",
    "math.floor({})", "string.match({}, '%d+')", "string.sub({}, 1, 2)", "redis.error_reply({})",
    "redis.status_reply({})", "{{pcall(redis.call, {})}}", "{{pcall(function() return {} end)}}",
    "{{unpack({{ {} }})}}",
    "redis.call({})", "redis.pcall('SET', {}, {})", "redis.pcall('GET', {})", "redis.call('ECHO', {})",
    "redis.acl_check_cmd({}, 'a')", "rawequal({}, {})", "{{ok = {}}}", "{{err = {}, 1}}", "{{ {}, {}, {} }}",
    "{{ {}, {{ {} }} }}", "{{one = 1, {}}}", "(function() return {} end)()",
]  # fmt: skip
STATEMENTS = [
    "one = {}", "two = {}", "local one = {}", "if {} then two = {} end", "for i = 1, 2 do one = {{ {}, i }} end",
    "redis.call('SET', 'a', {})", "redis.pcall('PUBLISH', 'news', {})", "pcall(function() two = {}; one = {} end)",
    "for _, each in ipairs({}) do two = each end",
]  # fmt: skip
ENDS = [
    "return {}", "return {}", "return {}", "return {}", "return {}, 1", "return {{one, two}}", "one = {}",
    "absent = {}", "string.absent = {}", "redis.call = {}", "KEYS = {}", "KEYS[1] = {} return KEYS", "error('x')",
    "error('CODE x', 0)",
    "error({{err = 'CODE x'}})", "error(redis.pcall('nope').err, 0)", "return redis.absent({})", "return (one)({})",
]  # fmt: skip


def quoted(word: bytes) -> str:
    return "'" + "".join(f"\\{byte:03d}" for byte in word) + "'"


def called(words: tuple[bytes, ...], how: str) -> str:
    return f"redis.{how}({', '.join(map(quoted, words))})"


calls = st.builds(called, plain, st.sampled_from(["call", "pcall"]))
simple = weighted((2, st.sampled_from(SIMPLE)), (1, st.sampled_from(TEXTS)), (1, st.sampled_from(NUMBERS)), (2, calls))


def filled(pattern: str, parts: list[str]) -> str:
    return pattern.format(*parts)


def around(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(filled, st.sampled_from(AROUND), st.lists(inner, min_size=3, max_size=3))


expressions = st.recursive(simple, around, max_leaves=5)
three = st.lists(expressions, min_size=3, max_size=3)
lines = st.builds(filled, st.sampled_from(STATEMENTS), three)
ends = st.builds(filled, st.sampled_from(ENDS), three)


def text(body: list[str], end: str) -> str:
    return "\n".join(["local one, two", *body, end])


programs = st.builds(text, st.lists(lines, max_size=4), ends)
runs = st.tuples(programs, st.lists(keys, max_size=2), st.lists(values, max_size=2))
listening = st.tuples(st.integers(0, 1), channels)
cases = st.tuples(st.lists(listening, max_size=2), st.lists(plain, max_size=5), st.lists(runs, min_size=1, max_size=4))


def programs_are_alike(pair: Pair, case: Any) -> None:
    subscriptions, before, programs = case
    for number, channel in subscriptions:
        pair.listens(number, channel, True)
    for words in before:
        pair.do(*words)
    for program, names, arguments in programs:
        pair.do(*flat([b"EVAL", program.encode(), b"%d" % len(names), *names, *arguments]))
    pair.compare()
