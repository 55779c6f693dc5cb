"""What `gripfast doctor` finds at a Redis server. `judge_server` is for every server, also for a node of Redlock or of
a Cluster; `judge_alone` for one that has its locks alone, possibly with replicas."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from hiredis import HiredisError, ReplyError

from gripfast.stores.doctor import (
    Examination,
    Finding,
    Terms,
    advice,
    is_this_machine,
    judged,
    problem,
    version_in,
)
from gripfast.stores.faults import LinkDown
from gripfast.stores.redis import protocol
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.faults import no_reply

if TYPE_CHECKING:
    from gripfast.stores.redis.factory import RedisFactory
    from gripfast.stores.redis.failover import Failover

OLDEST = (6, 2)
FULL = 0.9
"""Of the memory that it may use."""
CROWDED = 0.8
"""Of the connections that it may have."""
SLOW_COMMAND = 0.1
"""Seconds: for so long nobody else is served."""

OLD = problem(
    "redis-old",
    "this is Redis {version}",
    why="Gripfast's scripts need Redis 6.2 or newer.",
    todo="Upgrade the server to a version that still gets fixes",
)
REPLICA = problem(
    "redis-replica",
    "this server is a replica of {primary}",
    why="It takes no writes, so no lock can be acquired here. If it were writable, no other server would "
    "know its locks.",
    todo="Use the address of the primary: {primary}",
)
CLUSTER_NODE = problem(
    "redis-cluster-node",
    "this server is a node of a Redis Cluster",
    why="It has only some of the hash slots: locks whose names belong to other slots are refused.",
    todo="Use the URL of the whole cluster: redis+cluster://host:port,host:port",
)
SENTINEL = problem(
    "redis-sentinel",
    "this server is a Sentinel, which keeps no data",
    why="No lock can be kept here.",
    todo="Use redis+sentinel://host:26379/service, with all Sentinels: they tell where the primary is",
)
EVICTS = problem(
    "redis-evicts",
    "maxmemory-policy is {policy}, and maxmemory is {limit}",
    why="Locks have a time to live, so the server deletes them when its memory is full. Then a lock is free while its "
    "holder works.",
    todo="CONFIG SET maxmemory-policy noeviction, and the same in redis.conf. If this server is a cache, give the "
    "locks a server of their own",
)
MAY_EVICT = advice(
    "redis-may-evict",
    "maxmemory-policy is {policy}; only because maxmemory is 0, nothing is evicted",
    why="As soon as somebody sets maxmemory, the server deletes locks when its memory is full.",
    todo="CONFIG SET maxmemory-policy noeviction, and the same in redis.conf",
)
NO_MEMORY = problem(
    "redis-memory",
    "{used} of {limit} (maxmemory) are used",
    why="When it is full, the server refuses all writes: no lock can be acquired or renewed.",
    todo="Raise maxmemory, or delete data",
)
CANNOT_SAVE = problem(
    "redis-cannot-save",
    "the server could not write its data to disk ({status})",
    why="After a restart it has forgotten locks. Unless stop-writes-on-bgsave-error is no, it refuses all writes "
    "until it can write to disk again: no lock can be acquired or renewed.",
    todo="Look at the server's log, and whether its disk is full. Then run BGSAVE (or BGREWRITEAOF)",
)
LOADING = problem(
    "redis-loading",
    "the server is still loading its data",
    why="It answers no request for a lock until that is done.",
    todo="Wait for it; INFO persistence says how far it is",
)
CROWDED_CLIENTS = advice(
    "redis-connections",
    "{used} of {limit} connections (maxclients) are used",
    why="When all are used, clients can't connect: they can neither acquire nor renew.",
    todo="CONFIG SET maxclients to a larger number (the server's limit of open files may have to grow, too), or find "
    "out who keeps connections: CLIENT LIST",
)
CLOSES_IDLE = advice(
    "redis-idle-timeout",
    "timeout is {timeout} s: connections that are idle for so long are closed",
    why="A holder renews every third of its ttl ({turn} s). Each time it has to connect again, and has less time left "
    "for a retry.",
    todo="CONFIG SET timeout 0, or a value above {turn}; tcp-keepalive finds dead clients",
)
NO_SCRIPT_LIMIT = advice(
    "redis-script-limit",
    "busy-reply-threshold is {limit}: the server never says that it is busy with a script",
    why="While somebody's slow script runs, clients get no answer at all, and no error says why leases are lost.",
    todo="CONFIG SET busy-reply-threshold 5000 (before Redis 7.0: lua-time-limit)",
)
SLOW_COMMANDS = advice(
    "redis-slow-commands",
    "a command took {took} ms: {command} (SLOWLOG)",
    why="The server does one thing at a time: meanwhile nobody can acquire, renew or release.",
    todo="Find out who sends it (SLOWLOG GET has its arguments and the client), or give the locks a server of their "
    "own. SLOWLOG RESET forgets it",
)
OPEN = problem(
    "redis-open",
    "the server has no password, listens on {addresses}, and protected-mode is off",
    why="Whoever can reach it can break locks and read all data.",
    todo="Set a password (ACL SETUSER default >…; docs/redis.md has a user with few rights), or bind it to loopback",
)
PLAIN_TEXT = advice(
    "redis-plain-text",
    "the connection to {host} is not encrypted",
    why="Whoever can read the network reads the password, and can break locks with it.",
    todo="Use rediss:// and a server with tls-port, unless the network is private",
)
UNTOLD = advice(
    "redis-untold",
    "this user may not use {commands}",
    why="So some settings could not be judged: {unknown}.",
    todo="Run gripfast doctor once as a user who has these rights. Locks do not need them",
)
NOT_DURABLE = advice(
    "redis-not-durable",
    "the server keeps nothing on disk (appendonly no, and no snapshots)",
    why="After a restart every lock is free, while its holders still work. Tokens go on growing only if the server's "
    "clock was not set back.",
    todo="CONFIG SET appendonly yes and CONFIG SET appendfsync always, and the same in redis.conf; or check tokens "
    "where you write (docs/fencing.md)",
)
SNAPSHOTS = advice(
    "redis-snapshots",
    "the server keeps its data in snapshots only (save {save}, appendonly no)",
    why="After a crash the locks of the last minutes are free, while their holders still work.",
    todo="CONFIG SET appendonly yes and CONFIG SET appendfsync always, and the same in redis.conf",
)
LATE_SYNC = advice(
    "redis-appendfsync",
    "appendfsync is {appendfsync}",
    why="After a crash of the machine, grants of the last second (everysec) or longer (no) are forgotten: those locks "
    "are free, while their holders still work.",
    todo="CONFIG SET appendfsync always, and the same in redis.conf",
)
FAILOVER = advice(
    "redis-failover",
    "{replicas} connected, and this client does not protect its locks in a failover",
    why="Replication is asynchronous: a replica that is promoted may not know the last grants. It grants these locks "
    "again, while their holders still work.",
    todo="Set ?failover_grace=15 in the URLs of all clients, and run gripfast init once; or check tokens where you "
    "write (docs/fencing.md)",
)
NO_MINIMUM = advice(
    "redis-min-replicas",
    "min-replicas-to-write is 0",
    why="A primary that is cut off from its replicas goes on granting locks, while a promoted replica grants the same "
    "ones.",
    todo="CONFIG SET min-replicas-to-write 1 and CONFIG SET min-replicas-max-lag 10, and the same in redis.conf",
)
TOO_FEW_REPLICAS = problem(
    "redis-too-few-replicas",
    "min-replicas-to-write is {minimum}, and {good} of the replicas are connected and up to date",
    why="The server refuses all writes: no lock can be acquired or renewed.",
    todo="Reconnect the replicas (INFO replication), or lower min-replicas-to-write",
)

ENCRYPTED = ("rediss", "valkeys", "unix")
"""Schemes of connections that nobody else can read."""
SETTINGS = (
    "save", "appendonly", "appendfsync", "min-replicas-to-write", "timeout", "busy-reply-threshold", "lua-time-limit",
    "protected-mode", "bind", "maxclients",
)  # fmt: skip
"""Those that INFO does not have."""


class Facts(NamedTuple):
    where: str
    """Which of several servers; empty if there is one."""
    host: str
    encrypted: bool
    terms: Terms
    info: Mapping[str, str] = {}
    config: Mapping[str, str] = {}
    clock: float | None = None
    """Seconds by which its clock is ahead of this machine's."""
    has_password: bool | None = None
    slowest: tuple[str, float] | None = None
    """The command, without its arguments, and the seconds that it took."""
    refused: tuple[str, ...] = ()
    """Commands that this user may not use."""

    def number(self, name: str) -> float | None:
        """Of INFO, or else of CONFIG."""
        text = self.info.get(name, self.config.get(name))
        return float(text) if text else None

    @property
    def version(self) -> str:
        """What its makers call it."""
        name = self.info.get("server_name", "redis")
        number = self.info.get(f"{name}_version", self.info.get("redis_version", ""))
        return f"{name.capitalize()} {number}".strip()

    @property
    def mode(self) -> str:
        """standalone, sentinel or cluster. Valkey has another name for it."""
        return self.info.get("server_mode") or self.info.get("redis_mode", "")


def examine(factory: RedisFactory, terms: Terms) -> Examination:
    facts = gather(factory.dialer(terms.request_timeout), facts_of(factory, terms))
    findings = [*judge_mode(facts), *judge_server(facts), *judge_alone(facts, factory._failover)]
    return Examination(summary(facts), findings)


# -- facts ---------------------------------------------------------------------------------------------------------


def facts_of(factory: RedisFactory, terms: Terms, where: str = "") -> Facts:
    """What its address says."""
    url = urlsplit(factory.where)
    return Facts(where, url.hostname or "", url.scheme in ENCRYPTED, terms)


def gather(dialer: Dialer, facts: Facts) -> Facts:
    """What the server says. Raises LinkDown."""
    replies = ask(dialer, [*_QUESTIONS, *(("CONFIG", "GET", name) for name in SETTINGS)])
    return read(facts, replies, time.time())


def ask(dialer: Dialer, questions: Sequence[Sequence[str]]) -> list[Any]:
    """The replies, on a connection of its own. Raises LinkDown."""
    wire = dialer.dial_unseen()
    packed = [protocol.command(*(word.encode() for word in words)) for words in questions]
    try:
        return wire.ask_many(b"".join(packed), len(packed))
    except (OSError, HiredisError) as error:
        raise LinkDown(no_reply(dialer.where, dialer.timeout, error)) from None
    finally:
        wire.close()


_QUESTIONS = (("TIME",), ("INFO",), ("SLOWLOG", "GET", "128"), ("ACL", "GETUSER", "default"))


def read(facts: Facts, replies: Sequence[Any], now: float) -> Facts:
    """From the server's replies; one that is an error leaves a fact unknown."""
    moment, info, slow, user, *settings = replies
    config = {_text(pair[0]): _text(pair[1]) for pair in settings if isinstance(pair, list) and len(pair) == 2}
    asked = {"TIME": moment, "INFO": info, "SLOWLOG": slow, "ACL GETUSER": user, "CONFIG GET": settings[0]}
    return facts._replace(
        clock=_ahead(moment, now),
        info=_read_info(info),
        config=config,
        slowest=_slowest(slow),
        has_password=None if isinstance(user, ReplyError) or not user else b"nopass" not in user[1],
        refused=tuple(name for name, reply in asked.items() if isinstance(reply, ReplyError)),
    )


def _ahead(moment: Any, now: float) -> float | None:
    return None if isinstance(moment, ReplyError) else int(moment[0]) + int(moment[1]) / 1e6 - now


def _read_info(reply: Any) -> dict[str, str]:
    lines = [] if isinstance(reply, ReplyError) else _text(reply).splitlines()
    return {name: value for name, found, value in (line.partition(":") for line in lines) if found}


def _slowest(reply: Any) -> tuple[str, float] | None:
    """A command may be a script with the secrets of somebody: its name is enough."""
    entries = [] if isinstance(reply, ReplyError) else [(int(each[2]) / 1e6, _text(each[3][0])) for each in reply]
    return max(entries)[::-1] if entries else None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def summary(facts: Facts) -> str:
    if not facts.info:
        return "Redis"
    role = {"master": "primary", "slave": "replica"}.get(facts.info.get("role", ""), facts.mode)
    replicas = int(facts.number("connected_slaves") or 0)
    return ", ".join(filter(None, [facts.version, role, _several(replicas) if replicas else "", _kept(facts)]))


def _kept(facts: Facts) -> str:
    if facts.info.get("aof_enabled") == "1":
        return f"appendfsync {facts.config.get('appendfsync', '?')}"
    save = facts.config.get("save")
    return "" if save is None else "snapshots" if save else "nothing on disk"


def _several(replicas: int) -> str:
    return f"{replicas} replica{'s' * (replicas != 1)}"


# -- judging -------------------------------------------------------------------------------------------------------


def judge_mode(facts: Facts) -> Iterator[Finding]:
    """It should be a server like any other."""
    if facts.mode == "cluster":
        yield CLUSTER_NODE(facts.where)
    if facts.mode == "sentinel":
        yield SENTINEL(facts.where)


def judge_server(facts: Facts) -> Iterator[Finding]:
    return judged(facts, (_judge_kind, _judge_memory, _judge_disk, _judge_clients, _judge_pace, _judge_access))


def judge_alone(facts: Facts, failover: Failover | None = None) -> Iterator[Finding]:
    """`failover`: what the client does about failovers. It is safe after restarts, too: a server that has lost its data
    has a grace."""
    if failover is None:
        yield from _judge_durability(facts)
    yield from _judge_replicas(facts, failover)


def _judge_kind(facts: Facts) -> Iterator[Finding]:
    info, where = facts.info, facts.where
    version = version_in(info.get("redis_version", ""))
    if version and version < OLDEST:
        yield OLD(where, version=info["redis_version"])
    if info.get("role") == "slave":
        yield REPLICA(where, primary=f"{info.get('master_host')}:{info.get('master_port')}")
    if info.get("loading") == "1":
        yield LOADING(where)


def _judge_memory(facts: Facts) -> Iterator[Finding]:
    limit, used = facts.number("maxmemory") or 0, facts.number("used_memory") or 0
    policy = facts.info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield (EVICTS if limit else MAY_EVICT)(facts.where, policy=policy, limit=_bytes(limit))
    elif limit and used > FULL * limit:
        yield NO_MEMORY(facts.where, used=_bytes(used), limit=_bytes(limit))


def _judge_disk(facts: Facts) -> Iterator[Finding]:
    for name in ("rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"):
        status = facts.info.get(name, "ok")
        if status != "ok":
            yield CANNOT_SAVE(facts.where, status=f"{name} is {status}")


def _judge_clients(facts: Facts) -> Iterator[Finding]:
    used, limit = facts.number("connected_clients"), facts.number("maxclients")
    if used and limit and used >= CROWDED * limit:
        yield CROWDED_CLIENTS(facts.where, used=int(used), limit=int(limit))
    timeout, turn = facts.number("timeout"), facts.terms.ttl / 3
    if timeout and timeout <= turn:
        yield CLOSES_IDLE(facts.where, timeout=int(timeout), turn=f"{turn:g}")


def _judge_pace(facts: Facts) -> Iterator[Finding]:
    limit = facts.number("busy-reply-threshold")
    limit = facts.number("lua-time-limit") if limit is None else limit
    if limit is not None and limit <= 0:
        yield NO_SCRIPT_LIMIT(facts.where, limit=int(limit))
    if facts.slowest is not None and facts.slowest[1] >= SLOW_COMMAND:
        yield SLOW_COMMANDS(facts.where, command=facts.slowest[0], took=round(facts.slowest[1] * 1000))


def _judge_access(facts: Facts) -> Iterator[Finding]:
    reach = [each.lstrip("-") for each in facts.config.get("bind", "").split()]
    is_far = facts.config.get("bind") == "" or any(not is_this_machine(each) for each in reach)
    if facts.has_password is False and is_far and facts.config.get("protected-mode") == "no":
        yield OPEN(facts.where, addresses=", ".join(reach) or "all addresses")
    if not facts.encrypted and not is_this_machine(facts.host):
        yield PLAIN_TEXT(facts.where, host=facts.host)
    if facts.refused:
        unknown = [_TOLD_BY[name] for name in facts.refused if name in _TOLD_BY]
        yield UNTOLD(facts.where, commands=", ".join(facts.refused), unknown="; ".join(unknown))


_TOLD_BY = {
    "TIME": "its clock",
    "INFO": "its version, role, memory and replicas",
    "SLOWLOG": "slow commands",
    "ACL GETUSER": "whether it needs a password",
    "CONFIG GET": "what it keeps on disk, its time-outs, who may connect",
}


def _judge_durability(facts: Facts) -> Iterator[Finding]:
    save, appendfsync = facts.config.get("save"), facts.config.get("appendfsync", "always")
    if save is None:
        return
    if facts.config.get("appendonly") == "yes":
        if appendfsync != "always":
            yield LATE_SYNC(facts.where, appendfsync=appendfsync)
    elif save:
        yield SNAPSHOTS(facts.where, save=save)
    else:
        yield NOT_DURABLE(facts.where)


def _judge_replicas(facts: Facts, failover: Failover | None) -> Iterator[Finding]:
    replicas, minimum = int(facts.number("connected_slaves") or 0), facts.number("min-replicas-to-write")
    good = int(facts.number("min_slaves_good_slaves") or 0)
    if minimum and good < minimum:
        yield TOO_FEW_REPLICAS(facts.where, minimum=int(minimum), good=good)
    if replicas and failover is None:
        yield FAILOVER(facts.where, replicas="1 replica is" if replicas == 1 else f"{replicas} replicas are")
    if replicas and minimum == 0:
        yield NO_MINIMUM(facts.where)


def _bytes(size: float) -> str:
    unit = min(int(math.log(size, 1024)), 3) if size >= 1 else 0
    return f"{size / 1024**unit:.3g} {('B', 'KB', 'MB', 'GB')[unit]}"
