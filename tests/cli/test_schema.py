"""`gripfast schema` prints what a database needs, as its own client takes it."""

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from urllib.parse import urlsplit

import pytest

import gripfast
from cli.commandline import Call
from gripfast import fencing
from gripfast.stores.mysql import scripts as mysql_scripts
from gripfast.stores.postgres import scripts as postgres_scripts
from support.sql_servers import mariadb_server, postgres_server

LOCKS = ["gripfast_lock", "gripfast_row", "gripfast_grant"]
PERMITS = ["gripfast_permit", "gripfast_permit_holder", "gripfast_permit_waiter", "gripfast_rw", "gripfast_rw_holder"]
FENCES = ["gripfast_fence", "gripfast_fence_shared"]
TABLES = [*LOCKS, *PERMITS, *FENCES]
MYSQL_TABLES = [*LOCKS, "gripfast_within", *PERMITS, *FENCES]
SCRIPTS = {"postgresql": postgres_scripts, "mysql": mysql_scripts, "mariadb": mysql_scripts}


def tables(text: str) -> list[str]:
    return [line.split("EXISTS ")[1].split()[0] for line in text.splitlines() if line.startswith("CREATE TABLE")]


def tables_of(engine: str) -> list[str]:
    return TABLES if engine == "postgresql" else MYSQL_TABLES


@pytest.mark.parametrize("engine", SCRIPTS)
def test_it_prints_the_tables_of_locks_and_fences(call: Call, engine: str) -> None:
    printed = call("schema", engine)
    assert (printed.returncode, printed.stderr) == (0, "")
    assert tables(printed.stdout) == tables_of(engine)
    assert fencing.schema(engine) in printed.stdout
    assert all(statement.sql in printed.stdout for statement in SCRIPTS[engine].SCHEMA)


@pytest.mark.parametrize("engine", SCRIPTS)
def test_every_statement_ends_with_a_semicolon(call: Call, engine: str) -> None:
    statements = call("schema", engine).stdout.split(";\n")
    assert all(re.search(r"^CREATE (TABLE|INDEX) ", each, re.MULTILINE) for each in statements[:-1])
    assert len(tables(";".join(statements))) == len(tables_of(engine))
    assert statements[-1].strip() == ""


def test_either_half_is_had_alone(call: Call) -> None:
    assert tables(call("schema", "postgresql", "--locks-only").stdout) == [*LOCKS, *PERMITS]
    assert tables(call("schema", "postgresql", "--fencing-only").stdout) == FENCES
    assert call("schema", "postgresql", "--fencing-only", "--locks-only").returncode == 64


@pytest.mark.parametrize(
    ("url", "engine"),
    [
        ("postgresql://shop/db", "postgresql"),
        ("postgres://shop/db?mode=row", "postgresql"),
        ("postgresql+psycopg://shop/db", "postgresql"),
        ("mysql+pymysql://shop/db", "mysql"),
        ("mariadb://shop/db", "mariadb"),
        ("sqlite:///locks.db", "sqlite"),
    ],
)
def test_the_engine_is_that_of_the_store(call: Call, monkeypatch: pytest.MonkeyPatch, url: str, engine: str) -> None:
    expected = call("schema", engine).stdout
    assert expected
    assert call("--url", url, "schema").stdout == expected
    assert call("schema", "--url", url).stdout == expected
    monkeypatch.setenv("GRIPFAST_URL", url)
    assert call("schema").stdout == expected


def test_a_store_without_tables_is_told_apart(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("redis://localhost", ""):
        monkeypatch.setenv("GRIPFAST_URL", url)
        refused = call("schema")
        assert (refused.returncode, refused.stdout) == (64, "")
        assert "Name a database: postgresql, mysql, mariadb, sqlite" in refused.stderr


def test_an_unknown_engine_is_refused(call: Call) -> None:
    assert call("schema", "oracle").returncode == 64


def test_sqlite_has_a_table_for_fencing_only(call: Call) -> None:
    printed = call("schema", "sqlite").stdout
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(printed)
        fencing.guard(connection, "stock", 1)
        fencing.guard(connection, "stock", 1, shared=True)
    assert tables(printed) == FENCES
    assert call("schema", "sqlite", "--locks-only").returncode == 64


def test_no_driver_is_needed_for_it() -> None:
    code = "import sys; sys.modules['psycopg'] = sys.modules['pymysql'] = None\n"
    code += "from gripfast.cli import main; sys.exit(main(['schema', 'postgresql']) or main(['schema', 'mysql']))"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("mode", ["lease", "row", "advisory"])
@pytest.mark.parametrize("engine", ["postgresql", "mysql"])
def test_what_it_prints_is_all_that_a_database_needs(call: Call, engine: str, mode: str) -> None:
    """Run twice, as migrations may be; after it nobody has to make a table."""
    printed = call("schema", engine).stdout
    server = postgres_server() if engine == "postgresql" else mariadb_server()
    with server.fresh_database(mode=mode) as url:
        database = urlsplit(url).path.lstrip("/")
        for statement in printed.split(";\n")[:-1] * 2:
            server.execute(statement, database=database)
        if engine == "postgresql":
            server.execute(
                "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO gripfast", database=database
            )
            server.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC, gripfast", database=database)
        with gripfast.connect(url) as client, client.lock("nightly") as lease:
            assert lease.held
