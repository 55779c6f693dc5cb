"""What `gripfast doctor` finds at a PostgreSQL server.

Gripfast sets the time-outs, the isolation level and the encoding of its own sessions, whatever the server has for a
default. So these are judged only where they matter: for `lock.within()`, which uses a connection of the caller's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from gripfast.durations import shown
from gripfast.stores.doctor import Examination, Finding, Terms, advice, is_this_machine, judged, problem
from gripfast.stores.sql.doctor import CROWDED, Asking, Table, judge_tables
from gripfast.stores.sql.factory import SqlFactory

OLDEST, OLDEST_FOR_ADVISORY = 130000, 140000
DEAD_LEAST, DEAD_FACTOR = 10_000, 10
LONG_TRANSACTION = 3600.0
QUEUE_FULL = 0.5
IDLE_LEAST = 10.0
"""Seconds for which a transaction with a lock in it may have to be idle."""

OLD = problem(
    "postgres-old",
    "this is PostgreSQL {version}, and mode={mode} needs {needed}",
    why="It lacks statements and settings that Gripfast relies on.",
    todo="Upgrade the server",
)
STANDBY = problem(
    "postgres-standby",
    "this server is a standby",
    why="It takes no writes, so no lock can be acquired here.",
    todo="Use the address of the primary, or name all hosts: postgresql://host1,host2/database",
)
POOLED = advice(
    "postgres-pooled",
    "the connection leads through a proxy that pools sessions, such as pgbouncer",
    why="Leases work. But waiters are not notified: they poll. mode=row and mode=advisory are refused.",
    todo="Use the server's own address for locks: a client needs one or two connections for any number of leases",
)
NO_FSYNC = problem(
    "postgres-fsync",
    "{setting} is off",
    why="A crash of the machine can destroy the database, and with it every lock.",
    todo="ALTER SYSTEM SET {setting} = on; SELECT pg_reload_conf();",
)
LATE_COMMIT = problem(
    "postgres-synchronous-commit",
    "synchronous_commit is off",
    why="The server acknowledges a grant before it is on disk. After a crash of the server that lock is free, while "
    "its holder still works.",
    todo="ALTER ROLE … SET synchronous_commit = on for Gripfast's user, or ALTER SYSTEM SET synchronous_commit = on",
)
ASYNCHRONOUS = advice(
    "postgres-asynchronous",
    "{standbys} connected, and {how}",
    why="A standby that is promoted may not know the last grants. It grants these locks again, while their holders "
    "still work, and its tokens may be smaller.",
    todo="Set synchronous_standby_names, and synchronous_commit = on (or remote_apply), if a failover must not lose "
    "locks; or check tokens where you write (docs/fencing.md)",
)
CROWDED_SERVER = advice(
    "postgres-connections",
    "{used} of {limit} connections are used",
    why="When all are used, clients can't connect: they can neither acquire nor renew.",
    todo="Raise max_connections, or find out who keeps connections: SELECT * FROM pg_stat_activity",
)
TOO_MANY_SESSIONS = advice(
    "postgres-sessions",
    "mode={mode} may use {most} connections of each client, and the server has {free} left",
    why="Each lock that is held or waited for has a connection of its own. When none is left, acquire() fails.",
    todo="Set ?max_connections= in the URL to what the server can give, raise the server's max_connections, or use "
    "mode=lease",
)
NOT_UTF8 = advice(
    "postgres-encoding",
    "the encoding of the database is {encoding}",
    why="Names and labels with characters that it lacks are refused.",
    todo="Use a database with ENCODING 'UTF8' for locks, or only ASCII in names and labels",
)
NO_VACUUM = advice(
    "postgres-autovacuum",
    "autovacuum is off{of_table}",
    why="Every grant and every renewal leaves a dead row behind. Nobody removes them, so each request takes longer.",
    todo="ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf(); (and ALTER TABLE {table} RESET "
    "(autovacuum_enabled))",
)
DEAD_ROWS = advice(
    "postgres-dead-rows",
    "the table {table} has {dead} dead rows beside {live} live ones",
    why="Every grant and every renewal leaves a dead row behind. Too many make each request slower.",
    todo="VACUUM {table}; and if that removes nothing, end what keeps them: old transactions, replication slots, "
    "prepared transactions",
)
LONG = advice(
    "postgres-long-transaction",
    "a transaction is open for {age} (pid {pid})",
    why="As long as it is open, no dead row is removed, and each grant and renewal leaves one.",
    todo="Find out what it does: SELECT * FROM pg_stat_activity WHERE pid = {pid}. End it: SELECT "
    "pg_terminate_backend({pid})",
)
QUEUE = problem(
    "postgres-notify-queue",
    "the queue of notifications is {share} % full",
    why="Some session listens and does not read. When the queue is full, NOTIFY fails, and with it every release of a "
    "lock that somebody waits for.",
    todo="End the session that is idle in a transaction for long: SELECT * FROM pg_stat_activity ORDER BY xact_start",
)
TWO_SCHEMAS = problem(
    "postgres-two-schemas",
    "there is a table gripfast_lock in each of the schemas {schemas}",
    why="Clients with different search_paths use different tables, so two of them can hold the same lock.",
    todo="Give all clients the same search_path (?options=-csearch_path%3D… in the URL), and DROP the tables that "
    "nobody uses",
)
PLAIN_TEXT = advice(
    "postgres-plain-text",
    "the connection to {host} is not encrypted",
    why="Whoever can change what is on the network can change or break locks.",
    todo="Set ?sslmode=verify-full in the URL, unless the network is private",
)
ENDS_WITHIN = advice(
    "postgres-idle-transactions",
    "idle_in_transaction_session_timeout is {timeout}",
    why="It ends sessions that are idle in a transaction for so long. A lock in your own transaction (lock.within) is "
    "lost then. Leases are not: Gripfast turns it off for its own sessions.",
    todo="Set it to a longer time than your transactions with locks may be idle",
)
KEEPS_WITHIN = advice(
    "postgres-no-idle-timeout",
    "idle_in_transaction_session_timeout is 0",
    why="If a machine is cut off while it has a lock in its own transaction (lock.within), the lock stays until TCP "
    "gives up, which may take hours.",
    todo="ALTER ROLE … SET idle_in_transaction_session_timeout = '60s' for the users of lock.within",
)
ISOLATION = advice(
    "postgres-isolation",
    "default_transaction_isolation is {level}",
    why="lock.within refuses such transactions: they would not see what the previous holder wrote.",
    todo="Begin transactions with locks by BEGIN ISOLATION LEVEL READ COMMITTED",
)

SETTINGS = (
    "server_version", "server_version_num", "synchronous_commit", "synchronous_standby_names", "fsync",
    "full_page_writes", "max_connections", "superuser_reserved_connections", "idle_in_transaction_session_timeout",
    "default_transaction_isolation", "server_encoding", "autovacuum",
)  # fmt: skip


class PostgresTable(NamedTuple):
    schema: str
    name: str
    live: int
    dead: int
    is_vacuumed: bool


class Facts(NamedTuple):
    host: str
    mode: str
    most: int
    """Connections that a client may use for locks in sessions."""
    is_pooled: bool = False
    settings: Mapping[str, str] = {}
    """As a new session has them."""
    in_recovery: bool = False
    standbys: int = 0
    connections: int = 0
    encrypted: bool | None = None
    queue: float = 0.0
    """The share of the queue of notifications that is used."""
    oldest: tuple[str, float] | None = None
    """The session with the oldest transaction, and its seconds."""
    tables: Sequence[PostgresTable] = ()

    def number(self, name: str) -> int:
        return int(self.settings.get(name) or 0)

    @property
    def has_sessions(self) -> bool:
        return self.mode != "lease"


def examine(factory: SqlFactory, terms: Terms) -> Examination:
    host = urlsplit(factory.where).netloc.split(",")[0].rpartition(":")[0].strip("[]")
    with Asking(factory.dialect, terms.request_timeout) as asking:
        facts = gather(asking, Facts(host, factory.mode, factory.most))
    return Examination(summary(facts), [*judge(facts)])


# -- facts ---------------------------------------------------------------------------------------------------------

_SETTINGS = f"SELECT name, reset_val FROM pg_settings WHERE name IN {SETTINGS}"
_OLDEST = """SELECT pid, extract(epoch FROM clock_timestamp() - xact_start) FROM pg_stat_activity
    WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1"""
_TABLES = """SELECT n.nspname, c.relname, greatest(s.n_live_tup, 0), greatest(s.n_dead_tup, 0),
    NOT coalesce(c.reloptions && ARRAY['autovacuum_enabled=false', 'autovacuum_enabled=off'], false)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
    WHERE c.relkind = 'r' AND c.relname LIKE 'gripfast\\_%' ORDER BY 1, 2"""


def gather(asking: Asking, facts: Facts) -> Facts:
    oldest = asking.rows(_OLDEST)
    return facts._replace(
        is_pooled=asking.wire.is_proxied,
        settings=asking.pairs(_SETTINGS),
        in_recovery=asking.value("SELECT pg_is_in_recovery()") == "t",
        standbys=int(asking.value("SELECT count(*) FROM pg_stat_replication") or 0),
        connections=int(asking.value("SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL") or 0),
        encrypted=asking.value("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == "t",
        queue=float(asking.value("SELECT pg_notification_queue_usage()") or 0),
        oldest=(oldest[0][0] or "", float(oldest[0][1] or 0)) if oldest else None,
        tables=[_table(*row) for row in asking.rows(_TABLES)],
    )


def _table(
    schema: str | None, name: str | None, live: str | None, dead: str | None, vacuumed: str | None
) -> PostgresTable:
    return PostgresTable(schema or "", name or "", int(live or 0), int(dead or 0), vacuumed == "t")


def summary(facts: Facts) -> str:
    role = "standby" if facts.in_recovery else "primary"
    standbys = f"{facts.standbys} standby server{'s' * (facts.standbys != 1)}" if facts.standbys else ""
    parts = [f"PostgreSQL {facts.settings.get('server_version', '').split()[0]}", role, standbys, f"mode={facts.mode}"]
    return ", ".join(filter(None, [*parts, "behind a pooling proxy" if facts.is_pooled else ""]))


# -- judging -------------------------------------------------------------------------------------------------------


def judge(facts: Facts) -> Iterator[Finding]:
    judges = (_judge_kind, _judge_durability, _judge_connections, _judge_schemas, _judge_rows, _judge_within)
    return judged(facts, judges)


def _judge_kind(facts: Facts) -> Iterator[Finding]:
    needed = OLDEST_FOR_ADVISORY if facts.mode == "advisory" else OLDEST
    if 0 < facts.number("server_version_num") < needed:
        yield OLD(version=facts.settings["server_version"], mode=facts.mode, needed=needed // 10000)
    if facts.in_recovery:
        yield STANDBY()
    if facts.is_pooled:
        yield POOLED()
    if facts.settings.get("server_encoding", "UTF8") != "UTF8":
        yield NOT_UTF8(encoding=facts.settings["server_encoding"])
    if facts.encrypted is False and not is_this_machine(facts.host):
        yield PLAIN_TEXT(host=facts.host)


def _judge_durability(facts: Facts) -> Iterator[Finding]:
    for setting in ("fsync", "full_page_writes"):
        if facts.settings.get(setting) == "off":
            yield NO_FSYNC(setting=setting)
    commits, names = facts.settings.get("synchronous_commit"), facts.settings.get("synchronous_standby_names")
    if commits == "off":
        yield LATE_COMMIT()
    waits_for_none = "no commit waits for it (synchronous_standby_names is empty)" if not names else ""
    if commits in ("off", "local", "remote_write"):
        waits_for_none = f"synchronous_commit is {commits}"
    if facts.standbys and waits_for_none:
        standbys = "1 standby is" if facts.standbys == 1 else f"{facts.standbys} standbys are"
        yield ASYNCHRONOUS(standbys=standbys, how=waits_for_none)


def _judge_connections(facts: Facts) -> Iterator[Finding]:
    limit = facts.number("max_connections") - facts.number("superuser_reserved_connections")
    if limit > 0 and facts.connections >= CROWDED * limit:
        yield CROWDED_SERVER(used=facts.connections, limit=limit)
    free = max(0, limit - facts.connections)
    if facts.has_sessions and limit > 0 and facts.most > free:
        yield TOO_MANY_SESSIONS(mode=facts.mode, most=facts.most, free=free)
    if facts.queue > QUEUE_FULL:
        yield QUEUE(share=round(facts.queue * 100))


def _judge_schemas(facts: Facts) -> Iterator[Finding]:
    schemas = [table.schema for table in facts.tables if table.name == "gripfast_lock"]
    if len(schemas) > 1:
        yield TWO_SCHEMAS(schemas=" and ".join(schemas))


def _judge_rows(facts: Facts) -> Iterator[Finding]:
    yield from judge_tables([Table(table.name, table.live) for table in facts.tables])
    if facts.settings.get("autovacuum") == "off":
        yield NO_VACUUM(of_table="", table="gripfast_lock")
    for table in facts.tables:
        if not table.is_vacuumed:
            yield NO_VACUUM(of_table=f" for {table.name}", table=table.name)
        if table.dead > DEAD_LEAST + DEAD_FACTOR * table.live:
            yield DEAD_ROWS(table=table.name, dead=f"{table.dead:,}", live=f"{table.live:,}")
    if facts.oldest is not None and facts.oldest[1] > LONG_TRANSACTION and not facts.has_sessions:
        yield LONG(pid=facts.oldest[0], age=shown(facts.oldest[1]))


def _judge_within(facts: Facts) -> Iterator[Finding]:
    """Only these modes have it."""
    if not facts.has_sessions or "idle_in_transaction_session_timeout" not in facts.settings:
        return
    seconds = facts.number("idle_in_transaction_session_timeout") / 1000
    if seconds == 0:
        yield KEEPS_WITHIN()
    elif seconds < IDLE_LEAST:
        yield ENDS_WITHIN(timeout=f"{seconds:g} s")
    level = facts.settings.get("default_transaction_isolation", "read committed")
    if level != "read committed":
        yield ISOLATION(level=level)
