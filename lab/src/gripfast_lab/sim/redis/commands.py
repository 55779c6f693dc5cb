"""The commands of the simulated server: each a function of the keys and its words, the first of which is its name.

Arguments are looked at in the order in which Redis 7.0 does, so that of two errors the same one is told. What Redis
could do and nobody here asks for is not answered wrongly: it raises NotImplementedError, which ends the simulation.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from hiredis import ReplyError

from gripfast_lab.sim.redis import glob
from gripfast_lab.sim.redis.keyspace import Hash, Keyspace, SortedSet
from gripfast_lab.sim.redis.replies import (
    LARGEST,
    OK,
    SMALLEST,
    Reply,
    Status,
    UnknownSubcommand,
    Words,
    bad_expiry,
    error,
    integer,
    real,
    shown,
    syntax_error,
    wrong_number,
)


class Command(NamedTuple):
    name: str
    run: Callable[[Keyspace, Words], Reply]
    least: int
    most: int
    """Words, with the name."""
    writes: bool
    """Only a primary does it."""


COMMANDS: dict[bytes, Command] = {}
"""By name in upper and in lower case."""

ANY_NUMBER = 2**31


def find(name: bytes) -> Command | None:
    return COMMANDS.get(name) or COMMANDS.get(name.upper())


def _command(
    name: str, least: int, most: int | None = None, writes: bool = False
) -> Callable[[Callable[[Keyspace, Words], Reply]], Callable[[Keyspace, Words], Reply]]:
    def add(run: Callable[[Keyspace, Words], Reply]) -> Callable[[Keyspace, Words], Reply]:
        command = Command(name, run, least, least if most is None else most, writes)
        COMMANDS[name.encode()] = COMMANDS[name.upper().encode()] = command
        return run

    return add


def _not_simulated(words: Words) -> NoReturn:
    raise NotImplementedError(f"the simulated server can't do {b' '.join(words)!r}")


# Strings --------------------------------------------------------------------------------------------------------------


@_command("get", 2)
def _get(keys: Keyspace, words: Words) -> Reply:
    return keys.text(words[1])


@_command("mget", 2, ANY_NUMBER)
def _mget(keys: Keyspace, words: Words) -> Reply:
    """What is no string counts as absent."""
    found = [keys.find(key) for key in words[1:]]
    return [value if type(value) is bytes else None for value in found]


@_command("set", 3, ANY_NUMBER, writes=True)
def _set(keys: Keyspace, words: Words) -> Reply:
    key, value = words[1], words[2]
    if len(words) == 3:
        keys.put(key, value, None)
        return OK
    nx, xx, get, keep, from_now, expiry = _set_options(tuple(words[3:]))
    if expiry is not None and from_now:
        expiry += keys.now_ms()
        if expiry > LARGEST:
            raise bad_expiry("set")
    before = keys.text(key) if get else keys.find(key) if nx or xx or keep else None
    if (nx and before is not None) or (xx and before is None):
        return before if isinstance(before, bytes) and get else None
    keys.put(key, value, keys.expiry_ms(key) if keep and before is not None else expiry)
    return before if get else OK  # type: ignore[return-value]


class _SetOptions(NamedTuple):
    nx: bool
    xx: bool
    get: bool
    keep: bool
    from_now: bool
    expiry_ms: int | None


@functools.lru_cache(maxsize=1024)
def _set_options(words: Words) -> _SetOptions:
    nx = xx = get = keep = False
    unit = amount = b""
    at, last = 0, len(words) - 1
    while at <= last:
        option = words[at].upper()
        if option in _UNITS and at < last and not keep and unit in (b"", option):
            unit, amount = option, words[at + 1]
            at += 1
        elif option == b"NX" and not xx:
            nx = True
        elif option == b"XX" and not nx:
            xx = True
        elif option == b"GET":
            get = True
        elif option == b"KEEPTTL" and not unit:
            keep = True
        else:
            raise syntax_error()
        at += 1
    milliseconds, from_now = _UNITS.get(unit, (0, False))
    expiry = integer(amount) * milliseconds if unit else None
    if expiry is not None and not 0 < expiry <= LARGEST:
        raise bad_expiry("set")
    return _SetOptions(nx, xx, get, keep, from_now, expiry)


_UNITS = {b"PX": (1, True), b"EX": (1000, True), b"PXAT": (1, False), b"EXAT": (1000, False)}
"""How many milliseconds one is, and whether it counts from now."""


@_command("setnx", 3, writes=True)
def _setnx(keys: Keyspace, words: Words) -> Reply:
    if keys.find(words[1]) is not None:
        return 0
    keys.put(words[1], words[2], None)
    return 1


@_command("getset", 3, writes=True)
def _getset(keys: Keyspace, words: Words) -> Reply:
    before = keys.text(words[1])
    keys.put(words[1], words[2], None)
    return before


@_command("incr", 2, writes=True)
def _incr(keys: Keyspace, words: Words) -> Reply:
    return _counted(keys, words[1], 1, LARGEST)


@_command("decr", 2, writes=True)
def _decr(keys: Keyspace, words: Words) -> Reply:
    return _counted(keys, words[1], -1, SMALLEST)


def _counted(keys: Keyspace, key: bytes, by: int, last: int) -> int:
    before = keys.text(key)
    number = 0 if before is None else integer(before)
    if number == last:
        raise ReplyError("ERR increment or decrement would overflow")
    keys.replace(key, b"%d" % (number + by))
    return number + by


# Any key --------------------------------------------------------------------------------------------------------------


@_command("del", 2, ANY_NUMBER, writes=True)
def _del(keys: Keyspace, words: Words) -> Reply:
    count = 0
    for key in words[1:]:
        if keys.find(key) is not None:
            keys.remove(key)
            count += 1
    return count


@_command("exists", 2, ANY_NUMBER)
def _exists(keys: Keyspace, words: Words) -> Reply:
    count = 0
    for key in words[1:]:
        if keys.find(key) is not None:
            count += 1
    return count


_TYPES = {bytes: Status(b"string"), Hash: Status(b"hash"), SortedSet: Status(b"zset"), type(None): Status(b"none")}


@_command("type", 2)
def _type(keys: Keyspace, words: Words) -> Reply:
    return _TYPES[type(keys.find(words[1]))]


@_command("pttl", 2)
def _pttl(keys: Keyspace, words: Words) -> Reply:
    key = words[1]
    if keys.find(key) is None:
        return -2
    expiry = keys.expiry_ms(key)
    return -1 if expiry is None else max(0, expiry - keys.now_ms())


@_command("ttl", 2)
def _ttl(keys: Keyspace, words: Words) -> Reply:
    left = _pttl(keys, words)
    return (left + 500) // 1000 if isinstance(left, int) and left >= 0 else left


@_command("pexpire", 3, ANY_NUMBER, writes=True)
def _pexpire(keys: Keyspace, words: Words) -> Reply:
    return _expire_in(keys, words, "pexpire", 1)


@_command("expire", 3, ANY_NUMBER, writes=True)
def _expire(keys: Keyspace, words: Words) -> Reply:
    return _expire_in(keys, words, "expire", 1000)


def _expire_in(keys: Keyspace, words: Words, name: str, milliseconds: int) -> Reply:
    for option in words[3:]:
        if option.upper() in (b"NX", b"XX", b"GT", b"LT"):
            _not_simulated(words)
        raise error(b"ERR Unsupported option " + option)
    key = words[1]
    ms = integer(words[2]) * milliseconds
    now = keys.now_ms()
    if not SMALLEST <= ms <= LARGEST - now:
        raise bad_expiry(name)
    if keys.find(key) is None:
        return 0
    if ms <= 0:
        keys.remove(key)
    else:
        keys.expire_at(key, now + ms)
    return 1


@_command("persist", 2, writes=True)
def _persist(keys: Keyspace, words: Words) -> Reply:
    return int(keys.find(words[1]) is not None and keys.persist(words[1]))


# Sorted sets ----------------------------------------------------------------------------------------------------------


@_command("zadd", 4, ANY_NUMBER, writes=True)
def _zadd(keys: Keyspace, words: Words) -> Reply:
    only_new = words[2].upper() == b"NX"
    pairs = words[3:] if only_new else words[2:]
    if pairs[0].upper() in (b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR"):
        _not_simulated(words)
    if len(pairs) % 2:
        raise syntax_error()
    scores = [real(word) for word in pairs[::2]]
    found = keys.collection_for_writing(words[1], SortedSet)
    before = len(found)
    for score, member in zip(scores, pairs[1::2], strict=True):
        if found.get(member) != score and not (only_new and member in found):
            found[member] = score
            keys.touch(words[1])
    return len(found) - before


@_command("zscore", 3)
def _zscore(keys: Keyspace, words: Words) -> Reply:
    found = keys.collection(words[1], SortedSet)
    score = None if found is None else found.get(words[2])
    return None if score is None else shown(score)


@_command("zrange", 4, ANY_NUMBER)
def _zrange(keys: Keyspace, words: Words) -> Reply:
    with_scores = False
    for option in words[4:]:
        if option.upper() in (b"BYSCORE", b"BYLEX", b"REV", b"LIMIT"):
            _not_simulated(words)
        if option.upper() != b"WITHSCORES":
            raise syntax_error()
        with_scores = True
    start, stop = integer(words[2]), integer(words[3])
    found = keys.collection(words[1], SortedSet)
    if found is None:
        return []
    size = len(found)
    start = max(0, start + size if start < 0 else start)
    chosen = found.in_order()[start : max(0, (stop + size if stop < 0 else stop) + 1)]
    if with_scores:
        return [word for score, member in chosen for word in (member, shown(score))]
    return [member for _, member in chosen]


@_command("zrem", 3, ANY_NUMBER, writes=True)
def _zrem(keys: Keyspace, words: Words) -> Reply:
    return _without(keys, words, keys.collection(words[1], SortedSet))


@_command("zcard", 2)
def _zcard(keys: Keyspace, words: Words) -> Reply:
    return len(keys.collection(words[1], SortedSet) or ())


@_command("zrank", 3)
def _zrank(keys: Keyspace, words: Words) -> Reply:
    found = keys.collection(words[1], SortedSet) or SortedSet()
    return next((place for place, (_, member) in enumerate(found.in_order()) if member == words[2]), None)


@_command("zremrangebyscore", 4, writes=True)
def _zremrangebyscore(keys: Keyspace, words: Words) -> Reply:
    if b"(" in (words[2][:1], words[3][:1]):
        _not_simulated(words)
    try:
        least, most = real(words[2]), real(words[3])
    except ReplyError:
        raise ReplyError("ERR min or max is not a float") from None
    found = keys.collection(words[1], SortedSet)
    over = [member for member, score in (found or {}).items() if least <= score <= most]
    return _without(keys, [*words[:2], *over], found)


def _without(keys: Keyspace, words: Words, found: Hash | SortedSet | None) -> int:
    """How many were taken out; an empty collection goes."""
    if found is None:
        return 0
    before = len(found)
    for member in words[2:]:
        found.pop(member, None)
    if not found:
        keys.remove(words[1])
    elif len(found) < before:
        keys.touch(words[1])
    return before - len(found)


# Hashes ---------------------------------------------------------------------------------------------------------------


@_command("hset", 4, ANY_NUMBER, writes=True)
def _hset(keys: Keyspace, words: Words) -> Reply:
    if len(words) % 2:
        raise wrong_number("hset")
    found = keys.collection_for_writing(words[1], Hash)
    before = len(found)
    found.update(zip(words[2::2], words[3::2], strict=True))
    keys.touch(words[1])
    return len(found) - before


@_command("hget", 3)
def _hget(keys: Keyspace, words: Words) -> Reply:
    found = keys.collection(words[1], Hash)
    return None if found is None else found.get(words[2])


@_command("hexists", 3)
def _hexists(keys: Keyspace, words: Words) -> Reply:
    return int(words[2] in (keys.collection(words[1], Hash) or ()))


@_command("hincrby", 4, writes=True)
def _hincrby(keys: Keyspace, words: Words) -> Reply:
    by = integer(words[3])
    found = keys.collection(words[1], Hash) or Hash()
    try:
        number = integer(found.get(words[2], b"0"))
    except ReplyError:
        raise ReplyError("ERR hash value is not an integer") from None
    if not SMALLEST <= number + by <= LARGEST:
        raise ReplyError("ERR increment or decrement would overflow")
    keys.collection_for_writing(words[1], Hash)[words[2]] = b"%d" % (number + by)
    keys.touch(words[1])
    return number + by


@_command("hdel", 3, ANY_NUMBER, writes=True)
def _hdel(keys: Keyspace, words: Words) -> Reply:
    return _without(keys, words, keys.collection(words[1], Hash))


@_command("hlen", 2)
def _hlen(keys: Keyspace, words: Words) -> Reply:
    return len(keys.collection(words[1], Hash) or ())


@_command("hgetall", 2)
def _hgetall(keys: Keyspace, words: Words) -> Reply:
    return [word for pair in (keys.collection(words[1], Hash) or {}).items() for word in pair]


# The server -----------------------------------------------------------------------------------------------------------


@_command("time", 1)
def _time(keys: Keyspace, words: Words) -> Reply:
    seconds, micros = divmod(keys.now_us(), 1_000_000)
    return [b"%d" % seconds, b"%d" % micros]


@_command("publish", 3)
def _publish(keys: Keyspace, words: Words) -> Reply:
    return keys.publish(words[1], words[2])


@_command("pubsub", 2, ANY_NUMBER)
def _pubsub(keys: Keyspace, words: Words) -> Reply:
    """Of its subcommands, the one that scripts need."""
    if words[1].upper() != b"NUMSUB":
        raise UnknownSubcommand(f"ERR unknown subcommand '{words[1].decode(errors='replace')}'. Try PUBSUB HELP.")
    return [word for channel in words[2:] for word in (channel, keys.receivers(channel))]


@_command("info", 1, ANY_NUMBER)
def _info(keys: Keyspace, words: Words) -> Reply:
    return keys.about().told(words[1:])


@_command("ping", 1, ANY_NUMBER)
def _ping(keys: Keyspace, words: Words) -> Reply:
    if len(words) > 2:
        raise wrong_number("ping")
    return words[1] if len(words) == 2 else Status(b"PONG")


@_command("echo", 2)
def _echo(keys: Keyspace, words: Words) -> Reply:
    return words[1]


@_command("flushall", 1, ANY_NUMBER, writes=True)
def _flushall(keys: Keyspace, words: Words) -> Reply:
    if len(words) > 2 or (len(words) == 2 and words[1].upper() not in (b"SYNC", b"ASYNC")):
        raise syntax_error()
    keys.clear()
    return OK


@_command("dbsize", 1)
def _dbsize(keys: Keyspace, words: Words) -> Reply:
    return len(keys)


@_command("keys", 2)
def _keys(keys: Keyspace, words: Words) -> Reply:
    wanted = glob.compiled(words[1]).fullmatch
    living = keys.keys()
    return [key for key in living if wanted(key)]


@_command("scan", 2, ANY_NUMBER)
def _scan(keys: Keyspace, words: Words) -> Reply:
    """The cursor is a place in the order of the keys' hashes, so that keys which come and go disturb nobody's walk."""
    cursor = _cursor(words[1])
    count, pattern, kind = _scan_options(words)
    living = keys.keys()
    waiting = sorted([(place, key) for key in living if (place := 1 + zlib.crc32(key)) > cursor])
    seen = waiting[:count]
    while len(seen) < len(waiting) and waiting[len(seen)][0] == seen[-1][0]:  # those of one place go together
        seen.append(waiting[len(seen)])
    wanted = glob.compiled(pattern).fullmatch
    found: list[Reply] = [key for _, key in seen if wanted(key) and kind in (None, _TYPES[type(keys.find(key))])]
    return [b"%d" % seen[-1][0] if len(seen) < len(waiting) else b"0", found]


def _cursor(word: bytes) -> int:
    if not word.isdigit() or int(word) > 2 * LARGEST + 1:
        raise ReplyError("ERR invalid cursor")
    return int(word)


def _scan_options(words: Words) -> tuple[int, bytes, bytes | None]:
    count, pattern, kind = 10, b"*", None
    for at in range(2, len(words), 2):
        option = words[at].upper()
        if at + 1 == len(words) or option not in (b"COUNT", b"MATCH", b"TYPE"):
            raise syntax_error()
        argument = words[at + 1]
        if option == b"COUNT":
            count = integer(argument)
            if count < 1:
                raise syntax_error()
        elif option == b"MATCH":
            pattern = argument
        else:
            kind = argument.lower()
    return count, pattern, kind
