"""What `gripfast doctor` finds at a MariaDB or MySQL server.

Gripfast sets the time-outs and the isolation level of its own sessions, whatever the server has for a default. So these
are judged only where they matter: for `lock.within()`, which uses a connection of the caller's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from gripfast.stores.doctor import Examination, Finding, Terms, advice, is_this_machine, judged, problem, version_in
from gripfast.stores.mysql.protocol import several_primaries
from gripfast.stores.sql.doctor import CROWDED, Asking, Table, judge_tables
from gripfast.stores.sql.factory import SqlFactory

OLDEST = {"MariaDB": (10, 6), "MySQL": (8, 0)}
IDLE_LEAST = 60
"""Seconds for which a session with a lock in its transaction may have to be idle."""

OLD = problem(
    "mysql-old",
    "this is {version}",
    why="Gripfast needs MariaDB 10.6 or MySQL 8.0: older ones can't skip rows that others have locked, so "
    "waiters would block each other.",
    todo="Upgrade the server",
)
READ_ONLY = problem(
    "mysql-read-only",
    "{setting} is on: this server is a replica, or was set to read-only",
    why="It takes no writes of this user, so no lock can be acquired here. If this user has a right to write here "
    "anyway, its locks are on the replica alone.",
    todo="Use the address of the primary",
)
SEVERAL_PRIMARIES = problem(
    "mysql-several-primaries",
    "this server is a node of {cluster}, and mode={mode}",
    why="There each node has row locks and user-level locks of its own: two clients could hold the same lock. Gripfast "
    "refuses to use them.",
    todo="Use mode=lease, or a server with a single primary",
)
CLUSTER = advice(
    "mysql-cluster",
    "this server is a node of {cluster}",
    why="Leases rely on the cluster to refuse one of two grants that are made on two nodes at the same time. This is "
    "not tested.",
    todo="Let all clients use one and the same node for locks, and check tokens where you write (docs/fencing.md)",
)
NOT_READY = problem(
    "mysql-cluster-not-ready",
    "the node of Galera is not ready (wsrep_cluster_status is {status})",
    why="It is cut off from the majority of its cluster: it refuses requests, or answers with old data.",
    todo="Look at the server's log, and at SHOW STATUS LIKE 'wsrep%'",
)
LATE_FLUSH = problem(
    "mysql-flush-log",
    "innodb_flush_log_at_trx_commit is 0",
    why="The server acknowledges a grant before it has written it. After a crash of the server that lock is free, "
    "while its holder still works.",
    todo="SET GLOBAL innodb_flush_log_at_trx_commit = 1, and the same in the server's configuration",
)
LATE_SYNC = advice(
    "mysql-sync-log",
    "innodb_flush_log_at_trx_commit is 2",
    why="The server acknowledges a grant before it is on disk. After a crash of the machine, grants of the last second "
    "are forgotten, while their holders still work.",
    todo="SET GLOBAL innodb_flush_log_at_trx_commit = 1, and the same in the server's configuration",
)
ASYNCHRONOUS = advice(
    "mysql-asynchronous",
    "{replicas} replica(s) connected, and no commit waits for them",
    why="A replica that is promoted may not know the last grants. It grants these locks again, while their holders "
    "still work, and its tokens may be smaller.",
    todo="Turn on semi-synchronous replication (rpl_semi_sync_master_enabled, rpl_semi_sync_source_enabled), or check "
    "tokens where you write (docs/fencing.md)",
)
LATE_BINLOG = advice(
    "mysql-sync-binlog",
    "sync_binlog is {value}, and {replicas} replica(s) connected",
    why="After a crash of the machine, the primary and its replicas may know different grants.",
    todo="SET GLOBAL sync_binlog = 1, and the same in the server's configuration",
)
STATEMENTS = advice(
    "mysql-binlog-format",
    "binlog_format is STATEMENT",
    why="The server refuses to lock rows under READ COMMITTED. Gripfast's own sessions use REPEATABLE READ instead, "
    "but lock.within() refuses your transactions if they use READ COMMITTED.",
    todo="SET GLOBAL binlog_format = 'ROW', and the same in the server's configuration",
)
CROWDED_SERVER = advice(
    "mysql-connections",
    "{used} of {limit} connections are used",
    why="When all are used, clients can't connect: they can neither acquire nor renew.",
    todo="SET GLOBAL max_connections to a larger number, or find out who keeps connections: SHOW PROCESSLIST",
)
TOO_MANY_SESSIONS = advice(
    "mysql-sessions",
    "mode={mode} may use {most} connections of each client, and the server has {free} left",
    why="Each lock that is held or waited for has a connection of its own. When none is left, acquire() fails.",
    todo="Set ?max_connections= in the URL to what the server can give, raise the server's max_connections, or use "
    "mode=lease",
)
NOT_INNODB = problem(
    "mysql-engine",
    "the table {table} uses the engine {engine}",
    why="Only InnoDB has transactions and row locks: with another engine two clients can hold the same lock.",
    todo="Stop all clients, then ALTER TABLE {table} ENGINE = InnoDB",
)
BLIND = advice(
    "mysql-no-process",
    "this user has no PROCESS right",
    why="It can't see whether a waiter of another user still lives. If clients log in as different users, waiters for "
    "semaphores and read/write locks may lose their positions in the queue. Replicas can't be seen either.",
    todo="GRANT PROCESS ON *.* TO the user, or let all clients use the same user",
)
PLAIN_TEXT = advice(
    "mysql-plain-text",
    "the connection to {host} is not encrypted",
    why="Whoever can change what is on the network can change or break locks.",
    todo="Set ?ssl_ca=… and ssl_verify_cert=true in the URL, unless the network is private",
)
ENDS_WITHIN = advice(
    "mysql-idle-sessions",
    "{setting} is {seconds} s",
    why="It ends sessions that are idle for so long. A lock in your own transaction (lock.within) is lost then. "
    "Gripfast sets it for its own sessions.",
    todo="SET GLOBAL {setting} to more seconds than your transactions with locks may be idle",
)

VARIABLES = (
    "version", "version_comment", "read_only", "super_read_only", "innodb_read_only", "innodb_flush_log_at_trx_commit",
    "sync_binlog", "log_bin", "binlog_format", "max_connections", "wsrep_on", "wsrep_provider",
    "group_replication_single_primary_mode", "rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled",
    "wait_timeout", "idle_transaction_timeout", "idle_write_transaction_timeout",
)  # fmt: skip
STATUS = ("Threads_connected", "wsrep_cluster_status", "wsrep_ready")
IDLE = ("wait_timeout", "idle_transaction_timeout", "idle_write_transaction_timeout")
UNLOCKED = ("gripfast_grant", "gripfast_rw_holder")
"""Tables of which no row is ever locked: they may use another engine."""
SEMI_SYNC = ("rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled")


class MysqlTable(NamedTuple):
    name: str
    engine: str
    rows: int


class Facts(NamedTuple):
    host: str
    mode: str
    most: int
    """Connections that a client may use for locks in sessions."""
    variables: Mapping[str, str] = {}
    status: Mapping[str, str] = {}
    replicas: int = 0
    grants: Sequence[str] = ()
    encrypted: bool | None = None
    tables: Sequence[MysqlTable] = ()

    def is_on(self, name: str) -> bool:
        return self.variables.get(name, "").lower() in ("on", "1")

    @property
    def kind(self) -> str:
        told = self.variables.get("version", "") + self.variables.get("version_comment", "")
        return "MariaDB" if "mariadb" in told.lower() else "MySQL"

    @property
    def version(self) -> str:
        return f"{self.kind} {'.'.join(map(str, version_in(self.variables.get('version', ''))))}"

    @property
    def cluster(self) -> str | None:
        return several_primaries((name.encode(), value.encode()) for name, value in self.variables.items())


def examine(factory: SqlFactory, terms: Terms) -> Examination:
    with Asking(factory.dialect, terms.request_timeout) as asking:
        facts = gather(asking, Facts(urlsplit(factory.where).hostname or "", factory.mode, factory.most))
    return Examination(summary(facts), [*judge(facts)])


# -- facts ---------------------------------------------------------------------------------------------------------

_TABLES = """SELECT table_name, engine, table_rows FROM information_schema.tables
    WHERE table_schema = database() AND table_name LIKE 'gripfast%' ORDER BY table_name"""
_REPLICAS = "SELECT count(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"


def gather(asking: Asking, facts: Facts) -> Facts:
    cipher = asking.pairs("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
    return facts._replace(
        variables=asking.pairs(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN {VARIABLES}"),
        status=asking.pairs(f"SHOW GLOBAL STATUS WHERE Variable_name IN {STATUS}"),
        replicas=int(asking.value(_REPLICAS) or 0),
        grants=[row[0] or "" for row in asking.rows("SHOW GRANTS")],
        encrypted=bool(cipher["Ssl_cipher"]) if cipher else None,
        tables=[MysqlTable(name or "", engine or "", int(rows or 0)) for name, engine, rows in asking.rows(_TABLES)],
    )


def summary(facts: Facts) -> str:
    replicas = f"{facts.replicas} replica{'s' * (facts.replicas != 1)}" if facts.replicas else ""
    role = "read-only" if facts.is_on("read_only") else "primary"
    return ", ".join(filter(None, [facts.version, facts.cluster or role, replicas, f"mode={facts.mode}"]))


# -- judging -------------------------------------------------------------------------------------------------------


def judge(facts: Facts) -> Iterator[Finding]:
    judges = (_judge_kind, _judge_cluster, _judge_durability, _judge_replicas, _judge_connections, _judge_tables)
    yield from judged(facts, judges)
    yield from _judge_within(facts)


def _judge_kind(facts: Facts) -> Iterator[Finding]:
    version = version_in(facts.variables.get("version", ""))
    if version and version < OLDEST[facts.kind]:
        yield OLD(version=facts.version)
    for setting in ("read_only", "super_read_only", "innodb_read_only"):
        if facts.is_on(setting):
            yield READ_ONLY(setting=setting)
            break
    if facts.encrypted is False and not is_this_machine(facts.host):
        yield PLAIN_TEXT(host=facts.host)


def _judge_cluster(facts: Facts) -> Iterator[Finding]:
    cluster = facts.cluster
    if cluster is None:
        return
    yield CLUSTER(cluster=cluster) if facts.mode == "lease" else SEVERAL_PRIMARIES(cluster=cluster, mode=facts.mode)
    status = facts.status.get("wsrep_cluster_status", "Primary")
    if status != "Primary" or facts.status.get("wsrep_ready", "ON") != "ON":
        yield NOT_READY(status=status)


def _judge_durability(facts: Facts) -> Iterator[Finding]:
    flushes = facts.variables.get("innodb_flush_log_at_trx_commit", "1")
    if flushes == "0":
        yield LATE_FLUSH()
    elif flushes == "2":
        yield LATE_SYNC()


def _judge_replicas(facts: Facts) -> Iterator[Finding]:
    if facts.is_on("log_bin") and facts.variables.get("binlog_format", "").upper() == "STATEMENT":
        yield STATEMENTS()
    if facts.replicas and not any(facts.is_on(name) for name in SEMI_SYNC):
        yield ASYNCHRONOUS(replicas=facts.replicas)
    if facts.replicas and facts.variables.get("sync_binlog", "1") != "1":
        yield LATE_BINLOG(value=facts.variables["sync_binlog"], replicas=facts.replicas)
    if facts.grants and not any(re.search(r"\b(PROCESS|ALL PRIVILEGES)\b.* ON \*\.\* ", each) for each in facts.grants):
        yield BLIND()


def _judge_connections(facts: Facts) -> Iterator[Finding]:
    used, limit = int(facts.status.get("Threads_connected") or 0), int(facts.variables.get("max_connections") or 0)
    if limit and used >= CROWDED * limit:
        yield CROWDED_SERVER(used=used, limit=limit)
    free = max(0, limit - used)
    if limit and facts.mode != "lease" and facts.most > free:
        yield TOO_MANY_SESSIONS(mode=facts.mode, most=facts.most, free=free)


def _judge_tables(facts: Facts) -> Iterator[Finding]:
    yield from judge_tables([Table(table.name, table.rows) for table in facts.tables])
    for table in facts.tables:
        if table.engine not in ("", "InnoDB") and table.name not in UNLOCKED:
            yield NOT_INNODB(table=table.name, engine=table.engine)


def _judge_within(facts: Facts) -> Iterator[Finding]:
    """Only mode=row has it."""
    for setting in IDLE if facts.mode == "row" else ():
        seconds = int(facts.variables.get(setting) or 0)
        if 0 < seconds < IDLE_LEAST:
            yield ENDS_WITHIN(setting=setting, seconds=seconds)
