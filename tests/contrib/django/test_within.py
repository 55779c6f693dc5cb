"""`within()`: the lock in a transaction of Django's own connection, whichever driver that has."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from django.db import connections, transaction
from django.test import override_settings

import gripfast
from contrib.django.bazaar_processes import PROJECT, Bazaar, database_of
from gripfast.contrib.django import locks, within
from support.pgbouncer import pgbouncer
from support.sql_process import DATABASE, SqlServer
from support.sql_servers import PostgresServer, mariadb_server, postgres_server

ROWS = {"default": {"URL": "memory://"}, "rows": {"DATABASE": "pg", "MODE": "row"}, "l": {"DATABASE": "pg"}}


@pytest.fixture(autouse=True)
def rows() -> Iterator[None]:
    with override_settings(GRIPFAST=ROWS):
        yield


def is_held(name: str) -> bool:
    return locks["rows"].inspect(name) is not None


def test_it_is_held_until_the_commit() -> None:
    with transaction.atomic("pg"):
        held = within("seat", using="rows")
        assert is_held("seat")
        assert locks["rows"].lock("seat").try_acquire() is None
    assert not is_held("seat")
    with transaction.atomic("pg"):
        assert within("seat", using="rows").token > held.token


def test_a_rollback_frees_it() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic("pg"):
        within("seat", using="rows")
        raise ZeroDivisionError
    assert not is_held("seat")


def test_another_thread_waits_until_the_commit_and_is_told_who_holds_it() -> None:
    told: list[str] = []

    def other() -> None:
        with transaction.atomic("pg"):
            try:
                within("seat", using="rows", wait=0.1)
            except gripfast.LockTimeout as error:
                told.append(str(error))
        connections.close_all()

    with transaction.atomic("pg"):
        within("seat", using="rows", label="of the first")
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "(of the first)" in told[0]


def test_it_is_refused_where_it_would_be_worth_nothing() -> None:
    with pytest.raises(gripfast.ConfigurationError, match=r"call it inside `with transaction.atomic\('pg'\)"):
        within("seat", using="rows")
    with pytest.raises(gripfast.ConfigurationError, match="needs a database"):
        within("seat")
    with transaction.atomic("pg"), pytest.raises(gripfast.ConfigurationError, match="mode=row"):
        within("seat", using="l")
    with override_settings(GRIPFAST={"default": {"DATABASE": "default", "MODE": "row"}}), transaction.atomic():
        with pytest.raises(gripfast.ConfigurationError, match="SQLite can't lock within a transaction"):
            within("seat")


def test_durable_refuses_what_a_savepoint_could_release() -> None:
    with transaction.atomic("pg"), transaction.atomic("pg"):
        with pytest.raises(gripfast.ConfigurationError, match="a savepoint"):
            within("seat", using="rows", durable=True)
        within("seat", using="rows")


def test_the_connection_may_go_through_a_proxy_that_pools_sessions() -> None:
    """A transaction stays in one session there; the lock's own client has the server's address."""
    settings = connections["pg"].settings_dict
    before = dict(settings)
    with PostgresServer() as server, pgbouncer(server) as url:
        settings.update(database_of(url))
        connections["pg"].close()
        rows = {"default": {"URL": server.url_with(database=DATABASE, mode="row")}}
        try:
            with override_settings(GRIPFAST=rows):
                locks["default"].lock("first").acquire().release()  # creates the tables
                with transaction.atomic("pg"):
                    within("seat", database="pg")
                    assert locks["default"].inspect("seat") is not None
                assert locks["default"].inspect("seat") is None
                locks.close_all()
        finally:
            connections["pg"].close()
            settings.update(before)


PSYCOPG2 = """
import sys
sys.modules["psycopg"] = None  # Django takes psycopg2 then
from django.db.backends.postgresql import base, psycopg_any
del sys.modules["psycopg"]
assert not psycopg_any.is_psycopg3
"""
TAKE_IT = """
import django
django.setup()
from django.db import connection, transaction
from gripfast.contrib.django import locks, within
with transaction.atomic():
    within("seat", using="rows")
    print(type(connection.connection).__module__, locks["rows"].inspect("seat") is not None)
print(locks["rows"].inspect("seat") is not None)
"""


ENTRIES = {"default": {"DATABASE": "default"}, "rows": {"DATABASE": "default", "MODE": "row"}}


@pytest.mark.parametrize(
    ("server", "first", "driver"),
    [
        (postgres_server, "", "psycopg"),
        (postgres_server, PSYCOPG2, "psycopg2.extensions"),
        (mariadb_server, "", "pymysql.connections"),
    ],
    ids=["psycopg", "psycopg2", "PyMySQL"],
)
def test_djangos_connection_may_be_of_several_drivers(server: Callable[[], SqlServer], first: str, driver: str) -> None:
    with server().fresh_database() as url:
        environment = Bazaar(database_of(url), ENTRIES).environ()
        command = [sys.executable, "-c", first + TAKE_IT]
        printed = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=120)
    assert printed.stdout.split() == [driver, "True", "False"], printed.stderr
