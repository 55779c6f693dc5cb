"""Real SQL servers for tests. `support/server_process.py` tells how they start and end.

`postgres_server()` and `mariadb_server()` are those that most tests use, all workers of a run the same ones, each test
with a `lock_space()` of its own. A test that stops, kills or configures its server starts one for itself:
`with PostgresServer("max_connections=20") as server:`.
"""

import base64
import contextlib
import functools
import hashlib
import hmac
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pymysql

from support.server_process import HOST, as_user, give, shared
from support.sql_process import DATABASE, PASSWORD, USER, Session, SqlServer
from support.waiting import until

ADMIN = "postgres"
CONNECTIONS = 300

# PostgreSQL -----------------------------------------------------------------------------------------------------------


class PostgresServer(SqlServer):
    package_user = "postgres"
    program = "postgres"
    scheme = "postgresql"
    ends_at = signal.SIGINT  # "fast"; SIGTERM would wait until the last client has gone

    def execute(self, sql: str, *values: object, database: str = DATABASE) -> list[tuple[Any, ...]]:
        with self._connect(database) as connection:
            cursor = connection.execute(sql.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def sessions(self, database: str | None = None) -> list[Session]:
        columns = "pid, datname, coalesce(state, ''), coalesce(query, '')"
        asked = "usename = %s AND coalesce(datname = %s, true) ORDER BY backend_start, pid"
        rows = self.execute(f"SELECT {columns} FROM pg_stat_activity WHERE {asked}", USER, database)
        return [Session(*row) for row in rows]

    def kill_session(self, session: int) -> None:
        self.execute("SELECT pg_terminate_backend(%s)", session)

    def make_read_only(self) -> None:
        self.stop()
        (self.folder / "data" / "standby.signal").touch()
        assert self._start(), self.log

    def make_writable(self) -> None:
        self.execute("SELECT pg_promote(true)")

    def _connect(self, database: str) -> "psycopg.Connection[tuple[Any, ...]]":
        return psycopg.connect(
            host=str(self.folder), port=self.port, user=ADMIN, dbname=database, autocommit=True, connect_timeout=10
        )

    @classmethod
    def _new_data(cls, folder: Path) -> None:
        _folder_for(cls, folder)
        data = str(folder / "data")
        access = "--auth-local=trust --auth-host=scram-sha-256"
        # An order of names that is not that of their bytes: what relies on bytes has to say so.
        order = "--encoding=UTF8 --locale=C --locale-provider=icu --icu-locale=en"
        command = f"--username={ADMIN} --no-sync --no-instructions {access} {order}".split()
        _run([server_program("initdb"), "-D", data, *command], cls)
        words = f"CREATE ROLE {USER} LOGIN PASSWORD '{_scram(PASSWORD)}'\nCREATE DATABASE {DATABASE} OWNER {USER}\n"
        _run([server_program("postgres"), "--single", "-F", "-D", data, ADMIN], cls, words)

    def _command_line(self) -> list[str]:
        settings = [
            f"port={self.port}",
            f"listen_addresses={HOST}",
            f"unix_socket_directories={self.folder}",
            f"max_connections={CONNECTIONS}",
            "shared_buffers=16MB",
            "jit=off",
            "lc_messages=C",
            *([] if self._durable else ["fsync=off", "full_page_writes=off"]),
        ]
        if self._certificate:
            key = self._certificate.with_suffix(".key")
            settings += ["ssl=on", f"ssl_cert_file={self._certificate}", f"ssl_key_file={key}"]
            self._refuse_plain_text()
        line = [server_program("postgres"), "-D", str(self.folder / "data")]
        return line + [part for setting in (*settings, *self._settings) for part in ("-c", setting)]

    def _refuse_plain_text(self) -> None:
        rules = self.folder / "data" / "pg_hba.conf"
        rules.write_text("local all all trust\nhostssl all all all scram-sha-256\n", encoding="utf-8")

    def _tls_options(self) -> dict[str, object]:
        return {"sslmode": "verify-full", "sslrootcert": self._certificate} if self._certificate else {}

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError), self._connect(ADMIN):
            return True
        return False

    def _create_database(self, name: str) -> None:
        self.execute(f"CREATE DATABASE {name} OWNER {USER}", database=ADMIN)

    def _drop_database(self, name: str) -> None:
        self.execute(f"DROP DATABASE {name} WITH (FORCE)", database=ADMIN)


def server_program(name: str) -> str:
    """Where it is: Debian keeps PostgreSQL's in a folder for each version, and servers not in everybody's path."""
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    newest_first = sorted(versions, key=lambda path: float(path.parent.name), reverse=True)
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", *map(str, newest_first)])
    found = shutil.which(name, path=path)
    assert found, f"{name} is missing: run scripts/system-needs"
    return found


def _scram(password: str) -> str:
    """What the server stores of a password. With one round instead of 4096, which cost each connection 5 ms here."""
    salt, rounds = b"not secret", 1
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds)
    client, server = (hmac.digest(salted, word, "sha256") for word in (b"Client Key", b"Server Key"))
    stored = hashlib.sha256(client).digest()
    salt64, stored64, server64 = (base64.b64encode(part).decode() for part in (salt, stored, server))
    return f"SCRAM-SHA-256${rounds}:{salt64}${stored64}:{server64}"


# MariaDB --------------------------------------------------------------------------------------------------------------


class MariaServer(SqlServer):
    package_user = "mysql"
    program = "mariadbd"
    scheme = "mysql"
    ends_at = signal.SIGTERM

    def execute(self, sql: str, *values: object, database: str = DATABASE) -> list[tuple[Any, ...]]:
        with self._connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return [tuple(row) for row in cursor.fetchall()]

    def sessions(self, database: str | None = None) -> list[Session]:
        columns = "id, coalesce(db, ''), command, coalesce(info, '')"
        asked = "user = %s AND coalesce(db = %s, true) ORDER BY id"
        rows = self.execute(f"SELECT {columns} FROM information_schema.processlist WHERE {asked}", USER, database)
        return [Session(*row) for row in rows]

    def kill_session(self, session: int) -> None:
        with contextlib.suppress(pymysql.err.OperationalError):  # it has just ended by itself
            self.execute(f"KILL CONNECTION {session}")

    def make_read_only(self) -> None:
        self.execute("SET GLOBAL read_only = 1")

    def make_writable(self) -> None:
        self.execute("SET GLOBAL read_only = 0")

    def _connect(self, database: str | None) -> "pymysql.Connection[Any]":
        return pymysql.connect(
            unix_socket=str(self.folder / "socket"),
            user="root",
            database=database,
            autocommit=True,
            ssl_disabled=True,
            connect_timeout=10,
        )

    @classmethod
    def _new_data(cls, folder: Path) -> None:
        _folder_for(cls, folder)
        words = folder / "words.sql"
        granted = "\n".join(f"GRANT ALL ON `{name}`.* TO {USER}@'%';" for name in (DATABASE, r"fresh\_%"))
        user = f"CREATE USER {USER}@'%' IDENTIFIED BY '{PASSWORD}';"
        first = f"FLUSH PRIVILEGES;\nDROP USER IF EXISTS root@'{HOST}', root@'::1';\nCREATE DATABASE {DATABASE};"
        words.write_text(f"{first}\n{user}\n{granted}\n", encoding="utf-8")
        words.chmod(0o644)
        # Any settings that make it faster make it wrong sometimes: without its last writes, data can not be used.
        options = (
            "--auth-root-authentication-method=normal --skip-test-db --skip-name-resolve --innodb-log-file-size=4M"
        )
        line = [server_program("mariadb-install-db"), "--no-defaults", *options.split(), f"--datadir={folder / 'data'}"]
        _run([*line, f"--extra-file={words}", f"--tmpdir={folder}"], cls)

    def _command_line(self) -> list[str]:
        settings = [
            f"datadir={self.folder / 'data'}",
            f"socket={self.folder / 'socket'}",
            f"pid-file={self.folder / 'data' / 'pid'}",
            f"tmpdir={self.folder}",  # where it starts by removing what looks like its own
            f"port={self.port}",
            f"bind-address={HOST}",
            f"max-connections={CONNECTIONS}",
            "skip-name-resolve",
            "performance-schema=0",
            "innodb-buffer-pool-size=16M",
            "innodb-log-file-size=4M",
            "key-buffer-size=1M",
            "aria-pagecache-buffer-size=8M",
            "table-open-cache=200",
            *([] if self._durable else IN_MEMORY),
        ]
        if self._certificate:
            key = self._certificate.with_suffix(".key")
            settings += ["require-secure-transport=1", f"ssl-cert={self._certificate}", f"ssl-key={key}"]
        return [
            server_program("mariadbd"),
            "--no-defaults",
            *(f"--{setting}" for setting in (*settings, *self._settings)),
        ]

    def _tls_options(self) -> dict[str, object]:
        return {"ssl_ca": self._certificate, "ssl_verify_cert": "true"} if self._certificate else {}

    def _answers(self) -> bool:
        if "ready for connections" not in self.log:  # the driver leaves its socket open if it can't connect
            return False
        with self._connect(None):
            return True

    def _create_database(self, name: str) -> None:
        self.execute(f"CREATE DATABASE {name}")

    def _drop_database(self, name: str) -> None:
        for session in self.sessions(name):  # a transaction that is still open would keep its tables
            self.kill_session(session.id)
        until(lambda: not self.sessions(name))
        self.execute(f"DROP DATABASE {name}")


IN_MEMORY = [
    "innodb-flush-method=nosync",
    "innodb-flush-log-at-trx-commit=2",
    "loose-innodb-log-file-buffering=1",
    "sync-frm=0",
    "debug-no-sync=1",  # nor what it writes down of CREATE and DROP, thirty times for a database
]
"""What was committed is with the operating system, which no kill of the server takes it from."""


# One for all ----------------------------------------------------------------------------------------------------------


@functools.cache
def postgres_server() -> PostgresServer:
    """The server of this test run, started when it is first asked for. Never stop, pause or configure it."""
    return shared(PostgresServer)


@functools.cache
def mariadb_server() -> MariaServer:
    """The same."""
    return shared(MariaServer)


def _folder_for(kind: type[SqlServer], folder: Path) -> None:
    folder.mkdir(mode=0o711)
    give(folder, kind.package_user)


def _run(line: list[str], kind: type[SqlServer], words: str = "") -> None:
    ran = subprocess.run(line, input=words, capture_output=True, text=True, cwd="/", **as_user(kind.package_user))
    assert ran.returncode == 0, f"{line[0]} failed:\n{ran.stdout}\n{ran.stderr}"
