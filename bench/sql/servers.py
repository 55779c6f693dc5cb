"""A PostgreSQL and a MariaDB of the benchmarks' own: free ports of this machine, stopped and forgotten at the end.

They keep what they commit, as they do unless told: a commit is answered when it is on disk. Both refuse to run as
root; started by root, each runs as the user that its package made.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.serving import HOST, IsReady, running, told_in, version_told

CONNECTIONS = 300
"""More than all processes and threads of a scenario have together."""

COUNTING = ("shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=top")
"""PostgreSQL's settings for a scenario in which statements are counted."""


@contextmanager
def postgres_server(folder: Path, settings: Sequence[str] = ()) -> Iterator[str]:
    """Its URL. It runs on the cores that the caller may use."""
    programs = _postgres_programs()
    with _own_folder("postgres") as (own, user):
        data = ["-D", str(own / "data")]
        log = folder / "postgres.log"
        _do([str(programs / "initdb"), *data, "--username=postgres", "--auth=trust", "--no-sync"], user, log)
        wanted = [f"listen_addresses={HOST}", f"unix_socket_directories={own}", f"max_connections={CONNECTIONS}"]

        def command(port: int) -> list[str]:
            options = [part for each in (*wanted, *settings, f"port={port}") for part in ("-c", each)]
            return [str(programs / "postgres"), *data, *options]

        # SIGINT: sessions that are still open are ended, not waited for.
        with running(command, log, says("ready to accept connections"), signal.SIGINT, user) as port:
            yield f"postgresql://postgres@{HOST}:{port}/postgres"


@contextmanager
def counting_postgres(folder: Path) -> Iterator[str]:
    with postgres_server(folder, COUNTING) as url:
        yield url


@contextmanager
def maria_server(folder: Path) -> Iterator[str]:
    with _own_folder("mysql") as (own, user):
        data = [f"--datadir={own / 'data'}"]
        log = folder / "mariadb.log"
        # What is installed need not be on disk; what is committed later must.
        hasty = "--innodb-flush-log-at-trx-commit=0"
        as_user = [f"--user={user}"] if user else []
        installer = ["mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal", hasty]
        _do([*installer, "--skip-test-db", *as_user, *data], None, log)
        first = own / "first.sql"
        first.write_text("CREATE DATABASE IF NOT EXISTS bench;\n", encoding="utf-8")
        wanted = [f"--bind-address={HOST}", f"--socket={own / 'socket'}", f"--pid-file={own / 'pid'}"]
        wanted += [f"--max-connections={CONNECTIONS}", f"--init-file={first}"]

        def command(port: int) -> list[str]:
            return ["mariadbd", "--no-defaults", *data, *wanted, f"--port={port}"]

        with running(command, log, says("ready for connections"), signal.SIGTERM, user) as port:
            yield f"mysql://root@{HOST}:{port}/bench"


@contextmanager
def _own_folder(package_user: str) -> Iterator[tuple[Path, str | None]]:
    """Where that user can come, which a folder of the caller's is not; and the user, if it must be another one."""
    own = Path(tempfile.mkdtemp(prefix="gripfast-bench-"))
    user = package_user if os.geteuid() == 0 else None
    try:
        if user:
            shutil.chown(own, user)
        yield own, user
    finally:
        shutil.rmtree(own, ignore_errors=True)


def says(ready: str) -> IsReady:
    return lambda port, told: ready in told


def _do(command: Sequence[str], user: str | None, log: Path) -> None:
    with log.open("ab") as told:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=told, stderr=told, user=user, check=False)
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name} failed:\n{told_in(log)[-2000:]}")


def _postgres_programs() -> Path:
    """Debian keeps them by version, out of everybody's path."""
    found = shutil.which("postgres")
    if found:
        return Path(found).parent
    by_version = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    if not by_version:
        raise LookupError("PostgreSQL's server is not installed")
    return by_version[-1].parent


def postgres_version() -> str:
    """Of the server that would be started; empty where there is none."""
    try:
        return version_told([str(_postgres_programs() / "postgres"), "--version"], r"PostgreSQL\) (\S+)")
    except LookupError:
        return ""


def maria_version() -> str:
    return version_told(["mariadbd", "--no-defaults", "--version"], r"Ver (\d[\d.]*)")
