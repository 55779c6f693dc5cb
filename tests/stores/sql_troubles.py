"""Users with fewer rights, and rows that somebody else has locked: what SQL servers are made to refuse in tests."""

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from support.sql_process import DATABASE, HOST, PASSWORD, SqlServer

MODES = ("lease", "row", "advisory")
SESSIONS = ("row", "advisory")


def is_postgres(server: SqlServer) -> bool:
    return server.scheme == "postgresql"


@contextlib.contextmanager
def user(server: SqlServer, limit: str = "") -> Iterator[str]:
    """A new one, who may log in to all databases and nothing else."""
    name = f"user_{uuid.uuid4().hex[:12]}"
    if is_postgres(server):
        server.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}' {limit}")
    else:
        server.execute(f"CREATE USER {name}@'%' IDENTIFIED BY '{PASSWORD}' {limit}")
    try:
        yield name
    finally:
        if not is_postgres(server):
            server.execute(f"DROP USER {name}@'%'")


def as_user(url: str, name: str) -> str:
    parts = urlsplit(url)
    port = parts.netloc.rpartition(":")[2]
    return urlunsplit(parts._replace(netloc=f"{name}:{quote(PASSWORD, safe='')}@{HOST}:{port}"))


def database_of(url: str) -> str:
    return urlsplit(url).path.lstrip("/")


@contextlib.contextmanager
def row_locked(server: Any, name: str, table: str = "gripfast_lock") -> Iterator[None]:
    """As an administrator at a console might: for as long as this lasts."""
    connection = server._connect(DATABASE)
    try:
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(f"SELECT 1 FROM {table} WHERE name LIKE %s FOR UPDATE", (f"%{name}",))
            assert cursor.fetchall()
            yield
            cursor.execute("ROLLBACK")
    finally:
        connection.close()
