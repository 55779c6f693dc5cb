"""What a MySQL or MariaDB URL or a SQLAlchemy engine says, and that no password of it is told."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pymysql
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

import gripfast
from gripfast import ConfigurationError
from gripfast.stores.mysql.factory import dialect, dialect_of
from gripfast.stores.sql.ports import LinkDown
from gripfast.stores.sql.statement import Query, Statement
from stores.mysql_stage import ask, last
from stores.mysql_stage import dialect as dialect_to
from support.sql_process import DATABASE, HOST, PASSWORD, USER
from support.sql_servers import MariaServer, mariadb_server
from support.waiting import until

SECRET = "geheim"
AT_HOME = [Query(Statement("SELECT DATABASE(), CURRENT_USER(), @@session.autocommit"))]


@pytest.fixture(scope="module")
def tls_server() -> Iterator[MariaServer]:
    with MariaServer(tls=True) as server:
        yield server


WHERE = {
    f"mysql://u:{SECRET}@host:3307/db": ("mysql://host:3307/db", "db"),
    f"mariadb://u:{SECRET}@host/db": ("mysql://host:3306/db", "db"),
    f"mysql+pymysql://u:{SECRET}@host/db/": ("mysql://host:3306/db", "db"),
    "mysql:///db": ("mysql://localhost:3306/db", "db"),
    "mysql://u@[::1]/d%C3%A4ta": ("mysql://[::1]:3306/däta", "däta"),
    f"mysql://u:{SECRET}@/db?unix_socket=/run/my.sock": ("mysql:///run/my.sock/db", "db"),
}


@pytest.mark.parametrize("url, told", WHERE.items(), ids=WHERE)
def test_what_a_url_is_called_in_messages(url: str, told: tuple[str, str]) -> None:
    made = dialect_to(url)
    assert (made.where, made.database) == told
    assert SECRET not in f"{made!r} {vars(made)}"


def test_options_of_the_driver_are_taken_and_others_are_left() -> None:
    options: dict[str, Any] = {
        "ssl_ca": "/ca.pem", "ssl_verify_cert": "true", "ssl_verify_identity": "0", "connect_timeout": "3",
        "charset": "utf8mb4", "unix_socket": "/s", "mode": "row", "prefix": "x", "cursorclass": "DictCursor",
    }  # fmt: skip
    dialect(urlsplit("mysql://h/db"), options)
    assert options == {"mode": "row", "prefix": "x", "cursorclass": "DictCursor"}


def test_options_that_nobody_knows_are_an_error_without_the_password() -> None:
    with pytest.raises(ConfigurationError, match="pool_size") as told:
        gripfast.connect(f"mysql://u:{SECRET}@h/db?pool_size=5")
    assert SECRET not in str(told.value)


WRONG = {
    f"mysql://u:{SECRET}@h": "has no database",
    f"mysql://u:{SECRET}@h/": "has no database",
    f"mysql://u/x:{SECRET}@h/db": "%2F",
    f"mysql://u:ge/{SECRET}@h/db": "",
    f"mysql://u:{SECRET}@h,i/db": "",
    f"mysql://u:{SECRET}@h:port/db": "",
    f"mysql://u:{SECRET}@h/db?charset=latin1": "charset must be utf8mb4",
    f"mysql://u:{SECRET}@h/db?connect_timeout=soon": "connect_timeout must be a duration",
    f"mysql://u:{SECRET}@h/db?connect_timeout=-1": "connect_timeout",
    f"mysql://u:{SECRET}@h/db?ssl_verify_cert=maybe": "ssl_verify_cert must be true or false, not 'maybe'",
    f"mysql://u:{SECRET}@h/db?mode=table": "mode must be one of",
    f"mysql://u:{SECRET}@h/db?max_connections=0": "max_connections",
}


@pytest.mark.parametrize("url, words", WRONG.items(), ids=WRONG)
def test_a_url_that_says_something_wrong_is_refused_without_the_password(url: str, words: str) -> None:
    for connect in (gripfast.connect, gripfast.connect_async):
        with pytest.raises(ConfigurationError) as told:
            connect(url)
        assert words in str(told.value)
        assert SECRET not in str(told.value)


ODD = "us:e/r@%2F+ö"
ODD_PASSWORD = "p:a/s?s@w#o rd%2F+ö[]\u20ac"


@contextlib.contextmanager
def odd_user(name: str = ODD) -> Iterator[str]:
    """The login, quoted, of a user whose name and password need care."""
    server = mariadb_server()
    with contextlib.suppress(pymysql.Error):
        server.execute("DROP USER %s@'%%'", name)
    server.execute("CREATE USER %s@'%%' IDENTIFIED BY %s", name, ODD_PASSWORD)
    server.execute(f"GRANT ALL ON {DATABASE}.* TO %s@'%%'", name)
    try:
        yield f"{quote(name, safe='')}:{quote(ODD_PASSWORD, safe='')}"
    finally:
        server.execute("DROP USER %s@'%%'", name)


def test_any_user_name_and_password_can_be_quoted() -> None:
    """In UTF-8, where PyMySQL by itself would not know how to write the password."""
    with odd_user() as login:
        made = dialect_to(f"mysql://{login}@{HOST}:{mariadb_server().port}/{DATABASE}")
        with contextlib.closing(made.dial(5.0, True)) as wire:
            told = last(ask(wire, AT_HOME)).rows
    assert told == [(DATABASE.encode(), f"{ODD}@%".encode(), b"1")]


def test_a_unix_socket_will_do(tmp_path: Any) -> None:
    server = mariadb_server()
    login = f"{USER}:{quote(PASSWORD, safe='')}"
    made = dialect_to(f"mysql://{login}@/{DATABASE}?unix_socket={server.folder / 'socket'}")
    with contextlib.closing(made.dial(5.0, True)) as wire:
        assert last(ask(wire, AT_HOME)).rows[0][0] == DATABASE.encode()


CIPHER = [Query(Statement("SHOW SESSION STATUS LIKE 'Ssl_cipher'"))]


def test_tls_is_used_where_the_server_offers_it_and_verified_if_told_to(tls_server: MariaServer) -> None:
    plain = tls_server.url.partition("?")[0]
    for url in (plain, tls_server.url, f"{tls_server.url}&ssl_verify_identity=true"):
        with contextlib.closing(dialect_to(url).dial(5.0, True)) as wire:
            assert last(ask(wire, CIPHER)).rows[0][1]
    with pytest.raises(LinkDown, match="check that the server uses TLS on this port"):
        dialect_to(f"{plain}?ssl_verify_cert=true&ssl_ca=/etc/ssl/certs/ca-certificates.crt").dial(5.0, True)
    with pytest.raises(LinkDown, match="and whether TLS is required"):
        dialect_to(f"{plain}?ssl_disabled=true").dial(5.0, True)


def test_a_connection_is_made_without_reading_the_systems_certificates(tls_server: MariaServer) -> None:
    """They took 50 ms of each, as PyMySQL does it."""
    made = dialect_to(tls_server.url.partition("?")[0])
    made.dial(5.0, True).close()
    started = time.process_time()
    for _ in range(10):
        made.dial(5.0, True).close()
    assert time.process_time() - started < 0.25


def engine_url(driver: str, server: MariaServer | None = None) -> sqlalchemy.URL:
    port = (server or mariadb_server()).port
    return sqlalchemy.URL.create(driver, USER, PASSWORD, HOST, port, DATABASE)


@pytest.fixture
def engine() -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(engine_url("mysql+pymysql"))
    yield engine
    engine.dispose()


def test_an_engines_connections_are_made_as_it_makes_them(engine: sqlalchemy.Engine) -> None:
    """With its creator and its events; several statements at a time are allowed though it did not ask for that."""
    made: list[Any] = []
    sqlalchemy.event.listen(engine, "connect", lambda connection, record: made.append(connection))
    dialect = dialect_of(engine)
    assert dialect.where == f"mysql://{HOST}:{mariadb_server().port}/{DATABASE}"
    wires = [dialect.dial(5.0, is_shared) for is_shared in (True, False, True)]
    assert len(made) == 3
    for wire in wires:
        assert last(ask(wire, [*AT_HOME, *AT_HOME])).rows[0][2] == b"1"
        wire.close()


def test_an_engine_and_its_pool_go_on_as_if_nothing_had_happened(engine: sqlalchemy.Engine) -> None:
    with engine.connect() as mine:
        before = engine.pool.status()
        with gripfast.connect(engine, prefix=f"{id(mine)}:") as client, client.lock("job") as lease:
            assert lease.held
            assert engine.pool.status() == before
        assert mine.exec_driver_sql("SELECT 1").scalar() == 1


ENGINES: dict[str, Callable[[], Any]] = {
    "pymysql": lambda: sqlalchemy.create_engine(engine_url("mysql+pymysql")),
    "mariadb": lambda: sqlalchemy.create_engine(engine_url("mariadb+pymysql")),
    "no pool": lambda: sqlalchemy.create_engine(engine_url("mysql+pymysql"), poolclass=sqlalchemy.NullPool),
    "a creator": lambda: sqlalchemy.create_engine("mysql+pymysql://", creator=by_hand),
    "another driver": lambda: sqlalchemy.create_engine(engine_url("mysql+mysqldb"), module=pymysql),
    "asyncio": lambda: create_async_engine(engine_url("mysql+aiomysql")),
}


def by_hand() -> Any:
    return pymysql.connect(
        host=HOST, port=mariadb_server().port, user=USER, password=PASSWORD, database=DATABASE, ssl_disabled=True
    )


@pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES)
def test_a_client_of_either_colour_is_made_from_an_engine(make: Callable[[], Any]) -> None:
    mariadb_server()  # here, not on the thread that calls a creator
    engine = make()
    prefix = f"{id(engine)}:"
    with gripfast.connect(engine, prefix=prefix) as client, client.lock("job") as lease:
        assert lease.held

    async def use() -> None:
        async with gripfast.connect_async(engine, prefix=prefix) as client, client.lock("job") as lease:
            assert lease.held

    asyncio.run(use())


def test_an_engine_that_can_not_connect_is_told_without_its_password() -> None:
    url = engine_url("mysql+pymysql").set(password=SECRET, query={"connect_timeout": "3"})
    with pytest.raises(LinkDown, match="refuses the login") as told:
        dialect_of(sqlalchemy.create_engine(url)).dial(5.0, True)
    assert told.value.fault.kind == "login"
    assert SECRET not in f"{told.value} {told.value.fault}"
    gone = sqlalchemy.create_engine(url.set(port=1))
    with pytest.raises(LinkDown, match="can't be reached: Connection refused; check that the server runs") as down:
        dialect_of(gone).dial(5.0, True)
    assert down.value.fault.kind == "down"


def test_no_connection_of_an_engine_stays_behind(engine: sqlalchemy.Engine) -> None:
    server = mariadb_server()
    with server.fresh_database() as url:
        database = urlsplit(url).path.strip("/")
        engine = sqlalchemy.create_engine(engine.url.set(database=database))
        with gripfast.connect(engine) as client, client.lock("job"):
            assert server.sessions(database)
        until(lambda: not server.sessions(database))
