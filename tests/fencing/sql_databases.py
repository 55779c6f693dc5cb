"""A database per test module for the guards on SQL engines, and who waits for whom in it."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql

from gripfast.fencing import schema
from support.callers import mysql_words
from support.sql_servers import mariadb_server, postgres_server

SERVERS: dict[str, Callable[[], Any]] = {"postgresql": postgres_server, "mysql": mariadb_server}

_WAITING = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s",
    # innodb_trx would tell, too, but not if it is asked more often than ten times a second.
    "mysql": """SELECT count(*) FROM information_schema.processlist
        WHERE command = 'Query' AND time_ms > 100 AND db = %s""",
}

_numbers = itertools.count()


def new_resource() -> str:
    return f"stock {next(_numbers)}"


def database(engine: str) -> AbstractContextManager[str]:
    made: AbstractContextManager[str] = SERVERS[engine]().fresh_database()
    return made


@contextmanager
def fenced_database(engine: str) -> Iterator[str]:
    """The URL of a database that has the table."""
    with database(engine) as url:
        create(engine, url, schema(engine))
        yield url


@contextmanager
def shared_database(engine: str) -> Iterator[str]:
    """The URL of a database that has both tables."""
    with fenced_database(engine) as url:
        create(engine, url, schema(engine, shared=True))
        yield url


def create(engine: str, url: str, ddl: str) -> None:
    with closing(connect(engine, url)) as connection, connection.cursor() as cursor:
        cursor.execute(ddl)
        connection.commit()


def connect(engine: str, url: str) -> Any:
    return psycopg.connect(url) if engine == "postgresql" else pymysql.connect(**mysql_words(url), ssl_disabled=True)


def waiting(engine: str, url: str) -> int:
    """How many sessions of this database wait for a lock right now."""
    ((count,),) = SERVERS[engine]().execute(_WAITING[engine], urlsplit(url).path.lstrip("/"))
    return int(count)
