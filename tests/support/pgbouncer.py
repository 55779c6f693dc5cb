"""A real pgbouncer before a PostgreSQL server of the tests: transactions of all its clients share a few sessions."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg

from support.ports import give_back_port, reserved_port
from support.run_wide import watched
from support.server_process import ATTEMPTS, HOST, as_user, give
from support.sql_process import DATABASE, PASSWORD, USER
from support.sql_servers import PostgresServer
from support.waiting import until

SETTINGS = """
[databases]
* = host={host} port={server_port} user={user} password='{password}'
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {sessions}
"""


@contextlib.contextmanager
def pgbouncer(server: PostgresServer, mode: str = "transaction", sessions: int = 2) -> Iterator[str]:
    """The URL of the server's common database through it; needs no password."""
    folder = Path(tempfile.mkdtemp(prefix="pgbouncer-"))
    keeper = watched(folder)
    process, port = None, 0
    try:
        for _ in range(ATTEMPTS):
            give_back_port(port)
            port = reserved_port()
            process = _started(folder, server, port, mode, sessions)
            if process is not None:
                break
        assert process is not None, (folder / "log").read_text(encoding="utf-8")
        yield f"postgresql://{USER}@{HOST}:{port}/{DATABASE}"
    finally:
        if process is not None:
            process.kill()
            process.wait()
        give_back_port(port)
        os.close(keeper)
        shutil.rmtree(folder, ignore_errors=True)


def _started(
    folder: Path, server: PostgresServer, port: int, mode: str, sessions: int
) -> "subprocess.Popen[bytes] | None":
    """None if it ended instead: somebody else has the port."""
    given = {"host": HOST, "server_port": server.port, "user": USER, "password": PASSWORD}
    (folder / "settings").write_text(
        SETTINGS.format(**given, port=port, mode=mode, sessions=sessions), encoding="utf-8"
    )
    (folder / "work").mkdir(exist_ok=True)
    give(folder, server.package_user)
    with open(folder / "log", "wb") as log:
        line = [shutil.which("pgbouncer") or "/usr/sbin/pgbouncer", str(folder / "settings")]
        process = subprocess.Popen(
            line, cwd=folder / "work", stdout=log, stderr=log, start_new_session=True, **as_user(server.package_user)
        )
    until(lambda: process.poll() is not None or _answers(port), within=20)
    return process if process.poll() is None else None


def _answers(port: int) -> bool:
    with contextlib.suppress(psycopg.OperationalError):
        psycopg.connect(host=HOST, port=port, user=USER, dbname=DATABASE, connect_timeout=5).close()
        return True
    return False
