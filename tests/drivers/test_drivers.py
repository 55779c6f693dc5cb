"""Connections of the caller's: recognised by name, asked in their own way, left as they were."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import psycopg2
import psycopg2.extras
import pymysql
import pytest
import sqlalchemy
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from gripfast import drivers
from gripfast.drivers import code_of, recognised
from gripfast.errors import ConfigurationError
from support.both_colours import staged
from support.callers import KINDS, Application, mysql_words, opened
from support.sql_servers import mariadb_server, postgres_server

Kind = type[Application]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.kind)
def kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


@pytest.fixture
def url(kind: Kind) -> str:
    return (postgres_server if kind.engine == "postgresql" else mariadb_server)().url


@staged
async def test_engine_and_colour_are_known(kind: Kind, url: str) -> None:
    async with opened(kind, url) as application:
        assert drivers.is_async(application.given) is kind.is_async
        assert (await recognised(application.given)).engine == kind.engine


@staged
async def test_values_arrive_as_they_are(kind: Kind, url: str) -> None:
    text = "text" if kind.engine == "postgresql" else "CHAR"
    asked = f"SELECT CAST(:number AS {'bigint' if kind.engine == 'postgresql' else 'SIGNED'}), CAST(:words AS {text})"
    asked += f", CAST(:words AS {text})"
    async with opened(kind, url) as application:
        await application.begin()
        caller = await recognised(application.given)
        for number, words in [(2**63 - 1, "a:b %s %(x)s ''\\"), (-1, "ö\U0001f512"), (0, "")]:
            rows, _ = await caller.run(asked, {"number": number, "words": words})
            assert rows == [(number, words, words)]


@staged
async def test_a_statement_without_rows_or_values_has_none(kind: Kind, url: str) -> None:
    async with opened(kind, url) as application:
        await application.begin()
        caller = await recognised(application.given)
        assert (await caller.run("SAVEPOINT here", {})).rows == []


@staged
async def test_whether_a_transaction_is_kept_open(kind: Kind, url: str) -> None:
    async with opened(kind, url) as application:
        await application.begin()
        assert (await recognised(application.given)).keeps_transaction
        await application.execute("SELECT 1")
        assert (await recognised(application.given)).keeps_transaction
    async with opened(kind, url, autocommit=True) as application:
        assert not (await recognised(application.given)).keeps_transaction
        await application.execute("SELECT 1")
        assert not (await recognised(application.given)).keeps_transaction
        await application.execute("BEGIN")
        assert (await recognised(application.given)).keeps_transaction
        await application.execute("COMMIT")
        assert not (await recognised(application.given)).keeps_transaction


@staged
async def test_the_engines_code_is_read_from_every_drivers_error(kind: Kind, url: str) -> None:
    async with opened(kind, url) as application:
        await application.begin()
        caller = await recognised(application.given)
        with pytest.raises(Exception, match="no_such_table") as refusal:
            await caller.run("SELECT 1 FROM no_such_table", {})
        assert code_of(refusal.value) == ("42P01" if kind.engine == "postgresql" else "1146")
        await application.rollback()


def test_an_error_of_nobodys_engine_has_no_code() -> None:
    assert code_of(ValueError("42P01")) == ""
    assert code_of(ValueError()) == ""


@staged
async def test_a_connection_from_a_pool_of_asyncpg_is_one_too() -> None:
    async with asyncpg.create_pool(postgres_server().url, min_size=1, max_size=1) as pool, pool.acquire() as lent:
        assert drivers.is_async(lent) is True
        assert not (await recognised(lent)).keeps_transaction
        async with lent.transaction():
            caller = await recognised(lent)
            assert caller.keeps_transaction
            assert (await caller.run("SELECT 1", {})).rows == [(1,)]


def dict_rows() -> Iterator[Any]:
    with psycopg.connect(postgres_server().url, row_factory=psycopg.rows.dict_row) as connection:
        yield connection
    connection = psycopg2.connect(postgres_server().url, cursor_factory=psycopg2.extras.RealDictCursor)
    yield connection
    connection.close()
    words = mysql_words(mariadb_server().url)
    another = pymysql.connect(**words, ssl_disabled=True, cursorclass=pymysql.cursors.SSDictCursor)
    yield another
    another.close()


def test_rows_are_tuples_whatever_the_callers_cursors_give() -> None:
    async def rows_of(connection: Any) -> list[Any]:
        return (await (await recognised(connection)).run("SELECT 1, 2", {})).rows

    assert [asyncio.run(rows_of(connection)) for connection in dict_rows()] == [[(1, 2)]] * 3


def test_a_registry_of_sessions_is_asked_for_its_session() -> None:
    engine = sqlalchemy.create_engine(postgres_server().url.replace("postgresql", "postgresql+psycopg", 1))
    sessions = scoped_session(sessionmaker(engine))
    assert drivers.is_async(sessions) is False
    assert asyncio.run(recognised(sessions)).keeps_transaction
    assert sessions().in_transaction()
    sessions.remove()
    with Session(engine) as session:
        assert asyncio.run(recognised(session)).engine == "postgresql"
    engine.dispose()


def test_whatever_else_is_not_known() -> None:
    assert drivers.is_async(object()) is None
    with pytest.raises(ConfigurationError, match=r"builtins\.object"):
        asyncio.run(recognised(object()))


def test_asking_imports_no_driver() -> None:
    code = "import sys; from gripfast import drivers; drivers.is_async(object())\n"
    code += "assert not {'psycopg', 'asyncpg', 'pymysql', 'aiomysql', 'sqlalchemy'} & set(sys.modules), sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_name_in_the_table_is_that_of_a_class() -> None:
    """Where the driver is installed."""
    missing = []
    for full_name in [*drivers._DRIVERS, *drivers._SQLALCHEMY]:
        module, _, name = full_name.rpartition(".")
        try:
            __import__(module)
        except ImportError:
            missing.append(module)
            continue
        assert isinstance(getattr(sys.modules[module], name), type)
    assert set(missing) <= {"MySQLdb.connections"}


class Wrapper:
    """As Django's wrappers have it: the driver's connection inside, made when it is needed."""

    def __init__(self, url: str) -> None:
        self.connection: Any = None
        self._url = url

    def ensure_connection(self) -> None:
        if self.connection is None:
            self.connection = psycopg.connect(self._url, autocommit=True)


class Proxy:
    """As `django.db.connection` is one."""

    def __init__(self, wrapped: Wrapper) -> None:
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)


@pytest.mark.parametrize("is_proxied", [False, True], ids=["of connections", "connection"])
def test_a_connection_of_djangos_is_the_one_inside(is_proxied: bool) -> None:
    base = type("BaseDatabaseWrapper", (Wrapper,), {"__module__": "django.db.backends.base.base"})
    proxy = type("ConnectionProxy", (Proxy,), {"__module__": "django.utils.connection"})
    wrapper = type("DatabaseWrapper", (base,), {})(postgres_server().url)
    given = proxy(wrapper) if is_proxied else wrapper
    assert drivers.is_async(given) is False
    with wrapper.connection as inside, inside.transaction():
        caller = asyncio.run(recognised(given))
        assert (caller.engine, caller.keeps_transaction) == ("postgresql", True)
        assert asyncio.run(caller.run("SELECT 1", {})).rows == [(1,)]  # type: ignore[arg-type]
