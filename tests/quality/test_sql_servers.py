"""The SQL servers of the tests: they answer, do what they are told, and never outlive the tests."""

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import psycopg
import pymysql
import pytest

from quality.tree import ROOT
from support.run_wide import RUN, once, workers_in
from support.sql_process import SqlServer
from support.sql_servers import MariaServer, PostgresServer, mariadb_server, postgres_server
from support.waiting import until

pytestmark = pytest.mark.in_turn(2)

KINDS = [PostgresServer, MariaServer]
FAILURES = (psycopg.Error, pymysql.err.Error)


@pytest.fixture(params=[postgres_server, mariadb_server], ids=["postgres", "mariadb"])
def common(request: pytest.FixtureRequest) -> SqlServer:
    """The one that all tests share."""
    server: SqlServer = request.param()
    return server


@pytest.fixture(params=KINDS, ids=["postgres", "mariadb"])
def own(request: pytest.FixtureRequest) -> Iterator[SqlServer]:
    with request.param() as server:
        yield server


def ask(url: str, sql: str) -> list[tuple[Any, ...]]:
    """As an application would, by the URL alone."""
    with contextlib.closing(connected(url)) as connection, contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(sql)
        rows = list(cursor.fetchall()) if cursor.description else []
        connection.commit()
        return rows


def connected(url: str) -> Any:
    if url.startswith("postgresql:"):
        return psycopg.connect(url, connect_timeout=5)
    parts = urlsplit(url)
    options = {name: values[0] for name, values in parse_qs(parts.query).items()}
    tls = {"ssl_ca": options["ssl_ca"], "ssl_verify_cert": True} if options else {"ssl_disabled": True}
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 0,
        user=parts.username,
        password=unquote(parts.password or ""),
        database=parts.path[1:],
        read_timeout=5,
        **tls,
    )


# Who they are ---------------------------------------------------------------------------------------------------------


def test_it_answers_at_its_url(common: SqlServer) -> None:
    assert ask(common.url, "SELECT 7") == [(7,)]


def test_it_wants_the_password(common: SqlServer) -> None:
    user, rest = common.url.split("@")
    with pytest.raises(FAILURES, match=r"password authentication failed|Access denied"):
        ask(f"{user}x@{rest}", "SELECT 1")


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_with_tls_takes_nothing_else(kind: type[SqlServer]) -> None:
    with kind(tls=True) as server:
        assert ask(server.url, "SELECT 7") == [(7,)]
        with pytest.raises(FAILURES):
            ask(server.url.replace("sslmode=verify-full", "sslmode=disable").partition("?ssl_ca")[0], "SELECT 1")


def test_two_servers_are_two(own: SqlServer) -> None:
    own.execute("CREATE TABLE only_here (number INTEGER)")
    with type(own)() as other, pytest.raises(FAILURES, match="only_here"):
        other.execute("SELECT * FROM only_here")


def test_settings_reach_the_server() -> None:
    with PostgresServer("work_mem=1MB", durable=True) as server:
        assert server.execute("SHOW work_mem") == [("1MB",)]
        assert server.execute("SHOW fsync") == [("on",)]
    with MariaServer("wait-timeout=77", durable=True) as maria:
        assert maria.execute("SELECT @@global.wait_timeout, @@innodb_flush_log_at_trx_commit") == [(77, 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_settings_that_are_wrong_fail_with_the_words_of_the_server(kind: type[SqlServer]) -> None:
    with pytest.raises(AssertionError, match=r"no.such.option"):
        kind("no_such_option=1")


# Places for locks -----------------------------------------------------------------------------------------------------


def test_lock_spaces_have_prefixes_of_their_own(common: SqlServer) -> None:
    one, other = (parse_qs(urlsplit(common.lock_space(mode="row")).query) for _ in range(2))
    assert one["mode"] == ["row"]
    assert one["prefix"] != other["prefix"]


def test_a_fresh_database_is_empty_and_the_users_own(common: SqlServer) -> None:
    with common.fresh_database() as one, common.fresh_database() as other:
        for url in (one, other):
            ask(url, "CREATE TABLE things (number INTEGER)")


def test_a_fresh_database_is_dropped_whoever_still_uses_it(common: SqlServer) -> None:
    with contextlib.ExitStack() as still_open:
        with common.fresh_database() as url:
            connection = still_open.enter_context(contextlib.closing(connected(url)))
            cursor = still_open.enter_context(contextlib.closing(connection.cursor()))
            cursor.execute("CREATE TABLE things (number INTEGER)")
            cursor.execute("SELECT * FROM things")
        with pytest.raises(FAILURES):
            ask(url, "SELECT 1")


# What is asked of them ------------------------------------------------------------------------------------------------


def test_sessions_of_the_urls_user_are_known_and_can_be_killed(common: SqlServer) -> None:
    with common.fresh_database() as url:
        database = urlsplit(url).path[1:]
        with contextlib.closing(connected(url)) as connection, contextlib.closing(connection.cursor()) as cursor:
            [session] = common.sessions(database)
            assert session.database == database
            assert session in common.sessions()
            common.kill_session(session.id)
            until(lambda: not common.sessions(database))
            with pytest.raises(FAILURES):
                cursor.execute("SELECT 1")


def test_killing_a_session_that_is_gone_is_no_error(common: SqlServer) -> None:
    common.kill_session(2**30)


def test_a_read_only_server_refuses_to_write_until_it_is_writable_again(own: SqlServer) -> None:
    ask(own.url, "CREATE TABLE things (number INTEGER)")
    own.make_read_only()
    with pytest.raises(FAILURES, match=r"read.only"):
        ask(own.url, "INSERT INTO things VALUES (1)")
    own.make_writable()
    ask(own.url, "INSERT INTO things VALUES (2)")
    assert ask(own.url, "SELECT * FROM things") == [(2,)]


# What is done to them -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_server_that_was_ended_has_its_data_when_it_is_started_again(own: SqlServer, how: str) -> None:
    ask(own.url, "CREATE TABLE things (number INTEGER)")
    ask(own.url, "INSERT INTO things VALUES (7)")
    before = own.url, own.pid
    getattr(own, how)()
    assert not own.running
    with pytest.raises(FAILURES):
        ask(own.url, "SELECT 1")
    own.restart()
    assert ask(own.url, "SELECT * FROM things") == [(7,)]
    assert own.url == before[0]
    assert own.pid != before[1]


def test_a_server_can_be_made_to_forget(own: SqlServer) -> None:
    ask(own.url, "CREATE TABLE things (number INTEGER)")
    own.restart_empty()
    ask(own.url, "CREATE TABLE things (number INTEGER)")


def test_a_paused_server_is_silent_until_it_goes_on(own: SqlServer) -> None:
    with contextlib.closing(connected(own.url)) as connection, contextlib.closing(connection.cursor()) as cursor:
        own.pause()
        asked = "SELECT 7"
        asking = subprocess.Popen(
            [sys.executable, "-c", f"import test_sql_servers as t; print(t.ask({own.url!r}, {asked!r}))"],
            env={**os.environ, "PYTHONPATH": f"{ROOT}/tests:{ROOT}/tests/quality"},
            stdout=subprocess.PIPE,
            text=True,
        )
        with asking:
            with pytest.raises(subprocess.TimeoutExpired):
                asking.wait(timeout=0.7)
            own.resume()
            assert asking.communicate()[0] == "[(7,)]\n"
        cursor.execute(asked)
        assert cursor.fetchall() in ([(7,)], ((7,),))


def test_a_paused_server_can_be_ended(own: SqlServer) -> None:
    own.pause()
    own.close()
    assert not own.running
    assert not own.folder.exists()


# Whose they are -------------------------------------------------------------------------------------------------------


def script(text: str, run: str) -> "subprocess.Popen[str]":
    """Another process of that run."""
    return subprocess.Popen(
        [sys.executable, "-c", f"import os\nfrom support.sql_servers import *\n{text}"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), RUN: run},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


TELL = "server = postgres_server()\nprint(server.pid, server.folder, flush=True)\ninput()"


def test_all_processes_of_a_run_share_one_server_until_the_last_has_ended() -> None:
    run = uuid.uuid4().hex
    with script(TELL, run) as one, script(TELL, run) as other:
        assert one.stdout is not None
        assert other.stdout is not None
        told = one.stdout.readline()
        assert other.stdout.readline() == told
        folder = Path(told.split()[1])
        one.send_signal(signal.SIGKILL)
        one.wait()
        assert os.kill(int(told.split()[0]), 0) is None
        other.communicate("\n")
    until(lambda: not folder.parent.exists())
    assert workers_in(folder) == []


def test_servers_of_two_runs_are_two() -> None:
    with script(TELL, uuid.uuid4().hex) as one, script(TELL, uuid.uuid4().hex) as other:
        assert one.communicate("\n")[0] != other.communicate("\n")[0]


OWN = "server = MariaServer()\nprint(server.pid, server.folder, flush=True)\nserver.pause()\nprint()\ninput()"


def test_a_killed_test_process_leaves_no_server_of_its_own() -> None:
    with script(OWN, os.environ.get(RUN, "")) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().split()[1])
        assert process.stdout.readline() == "\n"
        process.send_signal(signal.SIGKILL)
    until(lambda: not folder.exists())
    assert workers_in(folder) == []


FORK = """
server = postgres_server()
if child := os.fork():
    os.waitpid(child, 0)
    print(server.execute("SELECT 7"))
"""


def test_a_forked_child_that_exits_leaves_the_server_alone() -> None:
    with script(FORK, os.environ.get(RUN, "")) as process:
        assert process.communicate()[0] == "[(7,)]\n"


def test_what_could_not_be_made_is_made_by_the_next() -> None:
    name = uuid.uuid4().hex

    def fails(path: Path) -> None:
        path.mkdir()
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        once(name, fails)
    made = once(name, Path.mkdir)
    assert made.is_dir()
    assert once(name, fails) == made
