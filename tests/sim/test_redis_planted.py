"""The comparisons with a real server would notice: each planted difference is caught by one of them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gripfast.stores.redis import scripts
from gripfast.stores.redis.scripts import Script
from gripfast_lab.sim.redis import commands, keyspace, lua
from gripfast_lab.sim.redis.server import Server
from sim import redis_owners, redis_programs, redis_words
from sim.redis_pair import Pair, hold_alike, pair_of_servers

Comparison = tuple[Any, Callable[[Pair, Any], None]]
Plant = Callable[[pytest.MonkeyPatch], None]

COMMANDS: Comparison = (redis_words.sequences, redis_words.commands_are_alike)
PROGRAMS: Comparison = (redis_programs.cases, redis_programs.programs_are_alike)
OWNERS: Comparison = (redis_owners.sequences, redis_owners.owners_are_alike)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with pair_of_servers() as pair:
        yield pair


def changed_reply(name: bytes, change: Callable[[Any], Any]) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        command = commands.COMMANDS[name]
        wrong = command._replace(run=lambda keys, words: change(command.run(keys, words)))
        patch.setitem(commands.COMMANDS, name, wrong)

    return plant


def changed_words(name: bytes, change: Callable[[Any], Any]) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        command = commands.COMMANDS[name]
        wrong = command._replace(run=lambda keys, words: command.run(keys, change(words)))
        patch.setitem(commands.COMMANDS, name, wrong)

    return plant


def never_expires(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keyspace.Keyspace, "find", lambda keys, key: keys._values.get(key))


def expires_a_minute_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keyspace.Keyspace, "expiry_ms", lambda keys, key: keys._expiries.get(key, -60_000) + 60_000)


def nobody_is_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Server, "receivers", lambda server, channel: 0)
    patch.setattr(Server, "listen", lambda server, session, channel: None)


def rounds_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lua, "_truncated", lambda number: round(number) if abs(number) < 1e18 else 0)


def rewritten(old: str, new: str) -> Plant:
    assert any(old in each.text for each in vars(scripts).values() if isinstance(each, Script)), old
    return lambda patch: patch.setattr(lua.ENGINE, "rewrite", lambda text: text.replace(old, new))


PLANTED: dict[str, tuple[Comparison, Plant]] = {
    "keys never expire": (COMMANDS, never_expires),
    "ttls are a minute longer": (COMMANDS, expires_a_minute_late),
    "SET forgets its options": (COMMANDS, changed_words(b"SET", lambda words: words[:3])),
    "ZRANGE is reversed": (COMMANDS, changed_reply(b"ZRANGE", lambda reply: reply[::-1])),
    "PUBLISH always says 1": (COMMANDS, changed_reply(b"PUBLISH", lambda reply: 1)),
    "messages reach nobody": (COMMANDS, nobody_is_told),
    "DEL deletes only the first": (COMMANDS, changed_words(b"DEL", lambda words: words[:2])),
    "EXISTS counts no further than one": (COMMANDS, changed_reply(b"EXISTS", lambda reply: min(reply, 1))),
    "numbers are rounded": (PROGRAMS, rounds_up),
    "scripts see absent keys as empty": (PROGRAMS, changed_reply(b"GET", lambda reply: reply or b"")),
    "errors are caught by call, too": (PROGRAMS, rewritten("redis.call", "redis.pcall")),
    "the line is reversed": (OWNERS, changed_reply(b"ZRANGE", lambda reply: reply[::-1])),
    "everyone hears everything": (OWNERS, changed_reply(b"PUBSUB", lambda reply: [*reply[:1], 1])),
    "locks never expire": (OWNERS, never_expires),
    "the window is endless": (OWNERS, rewritten("now_ms() - seen > 10000", "false")),
    "the deaf get it": (OWNERS, rewritten("if not is_heard(channel) then", "if false then")),
    "the fence is not read": (OWNERS, rewritten("'PX', keep, 'GET'", "'PX', keep")),
    "a renewal may shorten": (OWNERS, rewritten("ARGV[4] == '1' and 0", "true and 0")),
}


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_is_caught(pair: Pair, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (cases, check), plant = PLANTED[name]
    with monkeypatch.context() as patch:
        plant(patch)
        with pytest.raises(AssertionError, match=r"the simulated one|was still"):
            hold_alike(pair, cases, check, examples=500, planted=True)
