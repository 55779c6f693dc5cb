"""Connections as applications have them, of every driver that is recognised, behind one face for the tests.

Every method is a coroutine; with a driver that blocks it blocks.
"""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import unquote, urlsplit

import aiomysql
import asyncmy
import asyncpg
import mysql.connector
import psycopg
import psycopg2
import pymysql
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from gripfast import fencing


async def settled(thing: Any) -> Any:
    return await thing if inspect.isawaitable(thing) else thing


def mysql_words(url: str) -> dict[str, Any]:
    """A URL as MySQL's drivers want it."""
    parts = urlsplit(url)
    words = {"host": parts.hostname, "port": parts.port, "user": parts.username or "root"}
    return words | {"password": unquote(parts.password or ""), "database": parts.path.lstrip("/")}


class Application:
    """One connection; `given` is what the application hands over."""

    kind: str
    engine: str
    is_async: bool

    def __init__(self, url: str, autocommit: bool = False) -> None:
        self.url = url
        self.autocommit = autocommit
        self.given: Any = None

    async def open(self) -> None:
        self.given = await settled(self._connect())

    async def close(self) -> None:
        await settled(self.given.close())

    async def execute(self, sql: str) -> list[tuple[Any, ...]]:
        cursor = await settled(self.given.cursor())
        try:
            await settled(cursor.execute(sql))
            return [tuple(row) for row in await settled(cursor.fetchall())] if cursor.description else []
        finally:
            await settled(cursor.close())

    async def begin(self) -> None:
        """Where the driver does not do it by itself."""

    async def commit(self) -> None:
        await settled(self.given.commit())

    async def rollback(self) -> None:
        await settled(self.given.rollback())

    async def guard(self, resource: str, token: int, shared: bool = False) -> None:
        guard = fencing.async_guard if self.is_async else fencing.guard
        await settled(guard(self.given, resource, token, shared=shared))

    def _connect(self) -> Any:
        raise NotImplementedError


class Psycopg(Application):
    kind, engine, is_async = "psycopg", "postgresql", False

    def _connect(self) -> Any:
        return psycopg.connect(self.url, autocommit=self.autocommit)


class Psycopg2(Application):
    kind, engine, is_async = "psycopg2", "postgresql", False

    def _connect(self) -> Any:
        connection = psycopg2.connect(self.url)
        connection.autocommit = self.autocommit
        return connection


class AsyncPsycopg(Application):
    kind, engine, is_async = "psycopg-async", "postgresql", True

    def _connect(self) -> Any:
        return psycopg.AsyncConnection.connect(self.url, autocommit=self.autocommit)


class Asyncpg(Application):
    """It has no transaction unless one is begun."""

    kind, engine, is_async = "asyncpg", "postgresql", True

    def _connect(self) -> Any:
        return asyncpg.connect(self.url)

    async def execute(self, sql: str) -> list[tuple[Any, ...]]:
        await self.begin()
        return [tuple(row) for row in await self.given.fetch(sql)]

    async def begin(self) -> None:
        if not self.autocommit and not self.given.is_in_transaction():
            await self.given.execute("BEGIN")

    async def commit(self) -> None:
        await self.given.execute("COMMIT")

    async def rollback(self) -> None:
        await self.given.execute("ROLLBACK")


class PyMySQL(Application):
    kind, engine, is_async = "pymysql", "mysql", False

    def _connect(self) -> Any:
        return pymysql.connect(**mysql_words(self.url), ssl_disabled=True, autocommit=self.autocommit)


class Connector(Application):
    kind, engine, is_async = "mysql-connector", "mysql", False

    def _connect(self) -> Any:
        return mysql.connector.connect(**mysql_words(self.url), autocommit=self.autocommit, use_pure=True)


class AioMySQL(Application):
    kind, engine, is_async = "aiomysql", "mysql", True

    def _connect(self) -> Any:
        words = mysql_words(self.url)
        return aiomysql.connect(db=words.pop("database"), **words, autocommit=self.autocommit)

    async def close(self) -> None:
        self.given.close()
        await asyncio.sleep(0)  # the transport closes its socket in the next turn of the loop


class AsyncMy(Application):
    kind, engine, is_async = "asyncmy", "mysql", True

    def _connect(self) -> Any:
        return asyncmy.connect(**mysql_words(self.url), autocommit=self.autocommit)

    async def close(self) -> None:
        self.given.close()
        await asyncio.sleep(0)


class Alchemy(Application):
    """SQLAlchemy's Connection or Session, in either colour."""

    scheme: str
    as_session = False

    async def open(self) -> None:
        make: Any = create_async_engine if self.is_async else sqlalchemy.create_engine
        level = {"isolation_level": "AUTOCOMMIT"} if self.autocommit else {}
        self._engine = make(self.url.replace(urlsplit(self.url).scheme, self.scheme, 1), pool_size=1, **level)
        if self.as_session:
            self.given = (AsyncSession if self.is_async else Session)(self._engine)
        else:
            self.given = await settled(self._engine.connect())

    async def close(self) -> None:
        await settled(self.given.close())
        await settled(self._engine.dispose())

    async def execute(self, sql: str) -> list[tuple[Any, ...]]:
        result = await settled(self.given.execute(sqlalchemy.text(sql)))
        return [tuple(row) for row in result] if result.returns_rows else []


class AlchemyPsycopg(Alchemy):
    kind, engine, is_async, scheme = "sqlalchemy-psycopg", "postgresql", False, "postgresql+psycopg"


class AlchemyPsycopgSession(AlchemyPsycopg):
    kind, as_session = "session-psycopg", True


class AlchemyAsyncpg(Alchemy):
    kind, engine, is_async, scheme = "sqlalchemy-asyncpg", "postgresql", True, "postgresql+asyncpg"


class AlchemyAsyncpgSession(AlchemyAsyncpg):
    kind, as_session = "session-asyncpg", True


class AlchemyPyMySQL(Alchemy):
    kind, engine, is_async, scheme = "sqlalchemy-pymysql", "mysql", False, "mysql+pymysql"


class AlchemyPyMySQLSession(AlchemyPyMySQL):
    kind, as_session = "session-pymysql", True


class AlchemyAioMySQL(Alchemy):
    kind, engine, is_async, scheme = "sqlalchemy-aiomysql", "mysql", True, "mysql+aiomysql"


class AlchemyAioMySQLSession(AlchemyAioMySQL):
    kind, as_session = "session-aiomysql", True


KINDS: list[type[Application]] = [
    Psycopg, Psycopg2, AsyncPsycopg, Asyncpg, AlchemyPsycopg, AlchemyPsycopgSession, AlchemyAsyncpg,
    AlchemyAsyncpgSession, PyMySQL, Connector, AioMySQL, AsyncMy, AlchemyPyMySQL, AlchemyPyMySQLSession,
    AlchemyAioMySQL, AlchemyAioMySQLSession,
]  # fmt: skip


def kinds(engine: str, is_async: bool | None = None) -> list[type[Application]]:
    return [kind for kind in KINDS if kind.engine == engine and is_async in (None, kind.is_async)]


@contextlib.asynccontextmanager
async def opened(kind: Callable[..., Application], url: str, **options: Any) -> AsyncIterator[Application]:
    application = kind(url, **options)
    await application.open()
    try:
        yield application
    finally:
        await application.close()
