"""The lab's database answers, and makes wait, as PostgreSQL and MariaDB do: the same questions to both."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pymysql
import pytest

from gripfast_lab.engines.database import COMMIT, DELETE, DUPLICATE, ENDED, INSERT, SELECT, Database
from gripfast_lab.moves import ask
from support.sql_process import SqlServer
from support.sql_servers import mariadb_server, postgres_server
from support.waiting import until

WAITS = "waits"
CLIENTS = ("A", "B")
NAMED_TWICE = (psycopg.errors.UniqueViolation, pymysql.err.IntegrityError)
GONE = (psycopg.OperationalError, psycopg.InterfaceError, pymysql.err.Error)
SQL = {
    INSERT: "INSERT INTO locks VALUES ('job')",
    DELETE: "DELETE FROM locks WHERE name = 'job'",
    SELECT: "SELECT name FROM jobs WHERE name = 'job' FOR UPDATE",
    COMMIT: "COMMIT",
}


class Real:
    """A server with the two tables of the lab, and a session for each client."""

    def __init__(self, server: SqlServer, url: str) -> None:
        self._server = server
        self._url = url
        self._connections = {who: self._connected() for who in CLIENTS}
        self._ids = {who: self._id(who) for who in CLIENTS}
        self._threads = {who: ThreadPoolExecutor(1) for who in CLIENTS}
        for table in ("locks", "jobs"):
            self._connections["A"].cursor().execute(f"CREATE TABLE {table} (name VARCHAR(9) PRIMARY KEY)")
        self._connections["A"].cursor().execute("INSERT INTO jobs VALUES ('job')")

    def ask(self, who: str, command: str) -> Future[Any]:
        """On return it is answered or made to wait, as far as the server knows."""
        asked = self._threads[who].submit(self._answer, who, command)
        until(lambda: asked.done() or self._is_waiting(who))
        return asked

    def end(self, who: str) -> None:
        """The session, by the administrator."""
        self._server.kill_session(self._ids[who])
        until(lambda: self._ids[who] not in {session.id for session in self._server.sessions()})

    def crash(self, who: str) -> None:
        with suppress(*GONE):
            self._connections[who].close()
        until(lambda: self._ids[who] not in {session.id for session in self._server.sessions()})

    def close(self) -> None:
        for who in CLIENTS:
            self._server.kill_session(self._ids[who])
            self._threads[who].shutdown()
            with suppress(*GONE):
                self._connections[who].close()

    def _answer(self, who: str, command: str) -> int | str:
        try:
            cursor = self._connections[who].cursor()
            if command == SELECT:
                cursor.execute("BEGIN")
            cursor.execute(SQL[command])
        except NAMED_TWICE:
            return DUPLICATE
        except GONE:
            return ENDED
        return "OK" if command == COMMIT else int(cursor.rowcount)

    def _connected(self) -> Any:
        raise NotImplementedError

    def _id(self, who: str) -> int:
        raise NotImplementedError

    def _is_waiting(self, who: str) -> bool:
        raise NotImplementedError


class Postgres(Real):
    def _connected(self) -> Any:
        return psycopg.connect(self._url, autocommit=True)

    def _id(self, who: str) -> int:
        return int(self._connections[who].info.backend_pid)

    def _is_waiting(self, who: str) -> bool:
        sql = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        return bool(self._server.execute(sql, self._ids[who]))


class Maria(Real):
    def _connected(self) -> Any:
        url = urlsplit(self._url)
        assert url.password is not None
        assert url.username is not None
        return pymysql.connect(
            host=url.hostname,
            port=url.port or 0,
            user=url.username,
            password=unquote(url.password),
            database=url.path[1:],
            autocommit=True,
        )

    def _id(self, who: str) -> int:
        return int(self._connections[who].thread_id())

    def _is_waiting(self, who: str) -> bool:
        # information_schema.innodb_trx would be a tenth of a second old, and stay so for whoever asks all the time.
        ((_, _, status),) = self._server.execute("SHOW ENGINE INNODB STATUS")
        transactions = status.split("---TRANSACTION ")
        return any("LOCK WAIT" in each and f"thread id {self._ids[who]}," in each for each in transactions)


@contextmanager
def real(kind: str) -> Iterator[Real]:
    server, made = {"PostgreSQL": (postgres_server, Postgres), "MariaDB": (mariadb_server, Maria)}[kind]
    with ExitStack() as stack:
        opened = made(server(), stack.enter_context(server().fresh_database()))
        stack.callback(opened.close)
        yield opened


class Both:
    """The lab's database beside a real one. In the lab, whoever is made to wait asks again when something is over."""

    def __init__(self, server: Real) -> None:
        self._real = server
        self._lab = Database()
        self._has = self._lab.start()
        self.waiting: dict[str, tuple[str, Future[Any]]] = {}

    @property
    def locked_by(self) -> str:
        return self._has.locked_by

    def ask(self, who: str, command: str) -> object:
        answered = self._real.ask(who, command)
        expected = self._in_lab(who, command)
        if expected == WAITS:
            self.waiting[who] = command, answered
        told = answered.result() if answered.done() else WAITS
        assert told == expected, f"{who}: {command}"
        self._let_go()
        return told

    def end(self, who: str) -> None:
        (happening,) = self._lab.happenings(self._has)
        assert who in happening.text
        self._has = happening.state
        self._real.end(who)
        self._let_go()

    def crash(self, who: str) -> None:
        self._has = self._lab.closed(self._has, who)
        self._real.crash(who)
        self._let_go()

    def _in_lab(self, who: str, command: str) -> object:
        answer = self._lab.ask(self._has, who, ask(command))
        if answer is None:
            return WAITS
        self._has = answer.state
        return answer.reply

    def _let_go(self) -> None:
        for who, (command, answered) in list(self.waiting.items()):
            expected = self._in_lab(who, command)
            if expected == WAITS:
                assert not answered.done(), f"{who} is not made to wait any more"
            else:
                assert answered.result(timeout=10) == expected
                del self.waiting[who]


@pytest.fixture(params=["PostgreSQL", "MariaDB"])
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    with real(request.param) as server:
        yield Both(server)


def test_a_name_can_be_inserted_once_until_it_is_deleted(both: Both) -> None:
    assert [both.ask("A", INSERT), both.ask("B", INSERT), both.ask("A", INSERT)] == [1, DUPLICATE, DUPLICATE]
    assert [both.ask("B", DELETE), both.ask("A", DELETE), both.ask("B", INSERT)] == [1, 0, 1]


def test_the_row_of_a_client_that_dies_stays(both: Both) -> None:
    both.ask("A", INSERT)
    both.crash("A")
    assert both.ask("B", INSERT) == DUPLICATE


def test_who_asks_for_a_locked_row_waits_for_the_commit(both: Both) -> None:
    assert both.ask("A", SELECT) == 1
    assert both.ask("B", SELECT) == WAITS
    assert both.ask("A", COMMIT) == "OK"
    assert not both.waiting
    assert both.ask("A", SELECT) == WAITS
    both.ask("B", COMMIT)


def test_the_lock_of_a_client_that_dies_ends_with_it(both: Both) -> None:
    both.ask("A", SELECT)
    assert both.ask("B", SELECT) == WAITS
    both.crash("A")
    assert not both.waiting


def test_a_session_that_the_server_ends_is_unlocked_and_told_at_its_next_statement(both: Both) -> None:
    both.ask("A", SELECT)
    assert both.ask("B", SELECT) == WAITS
    both.end("A")
    assert not both.waiting
    assert [both.ask("A", COMMIT), both.ask("A", SELECT), both.ask("A", INSERT)] == [ENDED, ENDED, ENDED]


@pytest.mark.parametrize("seed", range(4))
def test_any_questions_are_answered_alike(both: Both, seed: int) -> None:
    """Who has locked a row asks for nothing else before its commit, as the lab's programs do."""
    chance, waited = random.Random(seed), 0
    for _ in range(25):
        who = chance.choice([who for who in CLIENTS if who not in both.waiting])
        command = COMMIT if both.locked_by == who else chance.choice([SELECT, SELECT, INSERT, DELETE])
        waited += both.ask(who, command) == WAITS
    assert waited
