"""What `within` says to the server, in the caller's transaction; see `drivers` for how it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Texts(NamedTuple):
    """One way to lock. `attempt` and `wait` give (session, mark) if it is locked, and no row if it is not."""

    attempt: str
    wait: str
    token: str


TEXTS: Mapping[tuple[str, str], Texts] = {
    ("postgresql", "row"): Texts(
        attempt="SELECT pg_backend_pid(), CAST(pg_current_xact_id() AS text) FROM gripfast_row WHERE name = :name"
        " FOR UPDATE SKIP LOCKED",
        wait="SELECT pg_backend_pid(), CAST(pg_current_xact_id() AS text) FROM gripfast_row WHERE name = :name"
        " FOR UPDATE",
        token="SELECT token FROM gripfast_grant WHERE mode = 'row' AND name = :name",
    ),
    ("postgresql", "advisory"): Texts(
        attempt="SELECT pg_backend_pid(), NULL WHERE pg_try_advisory_xact_lock(:key)",
        wait="SELECT pg_backend_pid(), NULL, pg_advisory_xact_lock(:key)",
        token="SELECT token FROM gripfast_grant WHERE mode = 'advisory' AND name = :name",
    ),
    ("mysql", "row"): Texts(
        attempt="SELECT CONNECTION_ID(), NULL FROM gripfast_row WHERE name = UNHEX(:name) FOR UPDATE NOWAIT",
        wait="SELECT CONNECTION_ID(), NULL FROM gripfast_row WHERE name = UNHEX(:name) FOR UPDATE",
        token="SELECT token FROM gripfast_within WHERE name = UNHEX(:name)",
    ),
}
"""By engine and mode."""

POSTGRES_SETTINGS = """\
SELECT current_setting('transaction_isolation'), current_setting('lock_timeout'), current_setting('statement_timeout')
"""
POSTGRES_SET_TIMEOUTS = """\
SELECT set_config('lock_timeout', :for_lock, true), set_config('statement_timeout', :for_statement, true)
"""
SAVEPOINT = "SAVEPOINT gripfast_within"
ROLLBACK_TO_SAVEPOINT = "ROLLBACK TO SAVEPOINT gripfast_within"
RELEASE_SAVEPOINT = "RELEASE SAVEPOINT gripfast_within"

POSTGRES_MAKE_OBJECT = "SELECT lo_create(0)"
POSTGRES_IS_OUTERMOST = """\
SELECT CAST(CAST(xmin AS text) AS bigint) = MOD(CAST(CAST(pg_current_xact_id() AS text) AS bigint), 4294967296),
    lo_unlink(oid)
FROM pg_largeobject_metadata WHERE oid = CAST(CAST(:made AS bigint) AS oid)
"""
"""What is written behind a savepoint has another number than the transaction. Everybody may make a large object, and
this one is gone with the same statement."""

MYSQL_SETTINGS = """\
SELECT @@innodb_lock_wait_timeout, @@innodb_rollback_on_timeout, 1 /*M!100000 AND @@in_transaction */
"""
MYSQL_SET_TIMEOUT = "SET SESSION innodb_lock_wait_timeout = :seconds"
MYSQL_LOCK_SIGN = "SELECT token FROM gripfast_within WHERE name = UNHEX(:name) FOR UPDATE NOWAIT"
MYSQL_ISOLATES = "SELECT @@innodb_snapshot_isolation"
MYSQL_SET_ISOLATES = "SET SESSION innodb_snapshot_isolation = :isolates"
MYSQL_SAVEPOINTS = "SHOW SESSION STATUS LIKE 'Com_savepoint'"
