"""What docs/sql.md shows works as printed, and what it says about the servers is what one finds there."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from click.testing import CliRunner

import gripfast
from gripfast.cli.app import cli
from gripfast.core import rules
from gripfast.fencing import guard
from gripfast.runtime.parts import Patience
from gripfast.stores.mysql import protocol as mysql_protocol
from gripfast.stores.mysql import scripts as mysql_scripts
from gripfast.stores.mysql.spec import OF_THE_DRIVER
from gripfast.stores.options import COMMON
from gripfast.stores.postgres import protocol as postgres_protocol
from gripfast.stores.postgres import scripts as postgres_scripts
from gripfast.stores.sql import conversation, link, pool, requests, session, store
from gripfast.stores.sql.factory import SESSIONS_MOST, SqlFactory
from gripfast.stores.sql.faults import all_in_use
from gripfast.stores.sql.ports import Refusal
from gripfast.stores.sql.spec import OPTIONS as SQL_OPTIONS
from support.pages import blocks, page, run_program
from support.sql_process import SqlServer
from support.sql_servers import MariaServer, PostgresServer
from support.waiting import until

MODES = SQL_OPTIONS["mode"].choices

PAGE = page("sql")
WORDS = " ".join(PAGE.split())
ENGINES = ("postgresql", "mysql")
SCRIPTS = {"postgresql": postgres_scripts, "mysql": mysql_scripts}
GUARDED_BY_TOKENS = "gripfast_fence"


def table(first_cell: str, after: str = "# ") -> list[list[str]]:
    """The cells of the table that begins so, behind these words; without its heading."""
    rows = PAGE.partition(after)[2].partition(f"\n| {first_cell} |")[2].partition("\n\n")[0].splitlines()[2:]
    assert rows
    return [[cell.strip(" ") for cell in row.strip("|").split(" | ")] for row in rows]


def named(cell: str) -> list[str]:
    return re.findall("`([^`]+)`", cell)


# -- servers -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, SqlServer]]:
    """With the user and the database of the page's examples."""
    with PostgresServer() as postgres, MariaServer() as maria:
        postgres.execute("CREATE ROLE me LOGIN PASSWORD 'secret'")
        postgres.execute("CREATE DATABASE shop OWNER me")
        maria.execute("CREATE DATABASE shop")
        maria.execute("GRANT ALL ON shop.* TO me IDENTIFIED BY 'secret'")
        yield {"postgresql": postgres, "mysql": maria}


def administer(servers: dict[str, SqlServer], engine: str, sql: str) -> None:
    for statement in sql.split(";\n"):
        if statement.strip():
            servers[engine].execute(statement, database="shop")


def address(servers: dict[str, SqlServer], engine: str, user: str) -> str:
    return f"{engine}://{user}:change-me@127.0.0.1:{servers[engine].port}/shop"


def at(servers: dict[str, SqlServer], text: str) -> str:
    text = text.replace("localhost:5432", f"127.0.0.1:{servers['postgresql'].port}")
    return text.replace("localhost:3306", f"127.0.0.1:{servers['mysql'].port}")


@pytest.fixture(scope="module")
def users(servers: dict[str, SqlServer]) -> dict[str, SqlServer]:
    """The page's tables, users and rights; `app` is the application's own user."""
    for engine in ENGINES:
        administer(servers, engine, printed_by(f"gripfast schema {engine}"))
    administer(servers, "postgresql", "CREATE ROLE app LOGIN PASSWORD 'change-me'")
    administer(servers, "mysql", "CREATE USER app IDENTIFIED BY 'change-me'")
    for engine in ENGINES:
        for block in blocks(PAGE, engine):
            administer(servers, engine, block)
    return servers


def printed_by(command: str) -> str:
    program, *words = command.split()
    assert program == "gripfast"
    ran = CliRunner().invoke(cli, words)
    assert ran.exit_code == 0, ran.output
    return ran.output


# -- examples and commands ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", blocks(PAGE, "python"))
def test_every_example_of_the_page_runs(servers: dict[str, SqlServer], code: str, tmp_path: Path) -> None:
    assert "localhost" in code
    assert run_program(at(servers, code), tmp_path)


@pytest.mark.parametrize("command", re.findall(r"^(gripfast schema .*?) \|", PAGE, re.MULTILINE))
def test_the_tables_that_are_printed_can_be_made_again(servers: dict[str, SqlServer], command: str) -> None:
    engine = command.split()[2]
    for _ in range(2):
        administer(servers, engine, printed_by(command))


# -- what the page says of the code ------------------------------------------------------------------------------------


def test_the_options_are_those_that_are_known() -> None:
    told = {named(option)[0] for option, *_ in table("option")}
    assert told == {*SQL_OPTIONS, *COMMON}


@pytest.mark.parametrize("url", ["postgresql://localhost/shop", "mysql://localhost/shop"])
def test_the_defaults_are_those_of_the_code(url: str) -> None:
    defaults = {named(option)[0]: default for option, default, *_ in table("option")}
    with gripfast.connect(url) as client:
        assert client.lock("nightly").ttl == float(defaults["ttl"])
        assert SqlFactory.request_timeout == float(defaults["request_timeout"])
    assert Patience(request_timeout=1.0).connect_patience == float(defaults["connect_patience"])
    assert float(defaults["max_connections"]) == SESSIONS_MOST
    assert named(defaults["mode"]) == [MODES[0]]


def test_the_options_of_pymysql_are_those_that_are_passed_on() -> None:
    told = [name for cell, *_ in table("option of PyMySQL") for name in named(cell)]
    assert sorted(told) == sorted(OF_THE_DRIVER)


def test_the_modes_are_all_there_are() -> None:
    (heading,) = re.findall(r"^\| \| `lease` \(the default\) \|.*$", PAGE, re.MULTILINE)
    assert tuple(named(heading)) == MODES


TABLES = ["gripfast_lock", "gripfast_row", "gripfast_grant", "gripfast_rw", "gripfast_rw_holder"]


@pytest.mark.parametrize(
    ("engine", "name"), [*((engine, name) for engine in ENGINES for name in TABLES), ("mysql", "gripfast_within")]
)
def test_the_columns_are_those_of_the_tables(engine: str, name: str) -> None:
    (ddl,) = [each.sql for each in SCRIPTS[engine].SCHEMA if f"TABLE IF NOT EXISTS {name} (" in each.sql]
    columns = re.findall(r"^ {4}([a-z_]+) ", ddl, re.MULTILINE)
    rows = table("column", f"\n`{name}`, for")
    there = [cell for cell, about in rows if engine == "postgresql" or "PostgreSQL only" not in about]
    assert [named(cell)[0] for cell in there] == columns


def test_the_figures_are_those_of_the_code() -> None:
    assert f"about every {store.SLOW_PACE:g} s" in WORDS
    assert f"some {1000 * store.poll_pause(1):g} ms" in WORDS
    assert (store.POLL_MOST, "down to once a second" in WORDS) == (1.0, True)
    assert f"After {session.WAIT_SLICE:g} s without an answer" in WORDS
    assert f"at most {link.SHARED_MOST} connections" in WORDS
    assert f"Up to {pool.IDLE_MOST} connections stay open" in WORDS
    assert f"retried, {conversation.TRIES} times at most" in WORDS
    assert f"up to {requests.SWEEP_MOST} names" in WORDS
    assert f"every {requests.SWEEP_AFTER}th release" in WORDS
    assert (rules.TOKEN_MEMORY_US, "free for a day" in WORDS) == (86_400_000_000, True)
    assert f"all {SESSIONS_MOST} connections are in use" in str(all_in_use("", SESSIONS_MOST).error)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_client_can_do_is_what_the_page_says(engine: str, mode: str) -> None:
    with gripfast.connect(f"{engine}://localhost/shop?mode={mode}") as client:
        can = client.capabilities
        assert (can.fair, can.waiters_seen, can.lists) == (False, False, True)
        assert can.durable_fence == (mode == "lease")
        assert can.session == can.sees_death == (mode != "lease")
        assert can.push == (mode != "lease" or engine == "postgresql")
        assert can.semaphores == (mode == "lease")
        assert can.rwlocks == can.downgrades == (mode != "advisory" or engine == "postgresql")


@pytest.mark.parametrize(
    ("phrase", "sqlstate", "number"),
    [
        ("takes no writes", "25006", 1290),
        ("has no tables for locks", "42P01", 1146),
        ("does not let this user do that", "42501", 1142),
        ("has no connection left", "53300", 1040),
    ],
)
def test_the_errors_are_in_these_words(phrase: str, sqlstate: str, number: int) -> None:
    assert f'"{phrase}"' in PAGE
    postgres = Refusal(postgres_protocol.kind_of(sqlstate), sqlstate, "")
    mysql = Refusal(mysql_protocol.kind_of(number), str(number), "")
    assert phrase in str(postgres_protocol.refused("", postgres).error)
    assert phrase in str(mysql_protocol.refused("", "", mysql).error)


def test_a_proxy_is_told_in_these_words() -> None:
    assert '"is reached through a proxy"' in PAGE
    assert "is reached through a proxy" in str(postgres_protocol.behind_proxy("").error)


# -- users of least privilege ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_user_of_the_page_may_do_all_that_a_client_does(
    users: dict[str, SqlServer], engine: str, mode: str
) -> None:
    url = address(users, engine, f"gripfast_{mode}") + f"?mode={mode}"
    with gripfast.connect(url) as client, gripfast.connect(url) as other, ThreadPoolExecutor(1) as pool:
        lease = client.lock("job").acquire()
        assert [info.name for info in other.list()] == ["job"]
        assert other.lock("job").try_acquire() is None
        waiter = pool.submit(lambda: other.lock("job").acquire(wait=20).release())
        lease.extend(20)
        lease.release()
        waiter.result()
        broken = client.lock("job", renew=False).acquire()
        assert other.force_release("job")
        with pytest.raises(gripfast.LeaseLost):
            broken.release()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_user_of_the_page_may_forget_old_names(users: dict[str, SqlServer], engine: str, mode: str) -> None:
    kept_in = "gripfast_lock" if mode == "lease" else "gripfast_grant"
    url = address(users, engine, f"gripfast_{mode}") + f"?mode={mode}"
    name = f"old {mode}"

    def is_known() -> bool:
        rows = users[engine].execute(f"SELECT 1 FROM {kept_in} WHERE name = %s", name, database="shop")
        return bool(rows)

    with gripfast.connect(url) as client:
        client.lock(name).acquire().release()
        assert is_known()
        administer(users, engine, f"UPDATE {kept_in} SET token = 1, since_us = 1, checked_us = 1 WHERE name = '{name}'")
        if (engine, mode) == ("postgresql", "row"):
            administer(users, engine, f"UPDATE gripfast_row SET checked_us = 1 WHERE name = '{name}'")
        client._runtime.env.store._sweeps.due_at = 0.0
        client.lock("young").acquire().release()
        until(lambda: not is_known())


@pytest.mark.parametrize(("engine", "mode"), [("postgresql", "row"), ("postgresql", "advisory"), ("mysql", "row")])
def test_the_application_may_lock_in_its_transaction(users: dict[str, SqlServer], engine: str, mode: str) -> None:
    url = address(users, engine, f"gripfast_{mode}") + f"?mode={mode}"
    with gripfast.connect(url) as client, closing(application(users, engine)) as connection:
        held = client.lock("books").within(connection, wait=5)
        guard(connection, "books", held.token)
        assert client.lock("books").try_acquire() is None
        connection.commit()
        with client.lock("books").acquire(wait=5) as lease:
            assert lease.token > held.token
        guard(connection, "books", lease.token)  # begins another transaction
        assert client.lock("books").within(connection, wait=5).token > lease.token
        with pytest.raises(gripfast.StaleToken):
            guard(connection, "books", held.token)


def application(servers: dict[str, SqlServer], engine: str) -> Any:
    if engine == "postgresql":
        return psycopg.connect(address(servers, engine, "app"))
    login = {"user": "app", "password": "change-me", "database": "shop"}
    return pymysql.connect(host="127.0.0.1", port=servers[engine].port, **login)  # type: ignore[call-overload]


def test_the_page_grants_no_more_than_it_says() -> None:
    """A right on a table that Gripfast does not have would be a mistake of the page's."""
    granted = {
        name for engine in ENGINES for block in blocks(PAGE, engine) for name in re.findall(r"gripfast_\w+", block)
    }
    tables = set(
        re.findall(r"TABLE IF NOT EXISTS (gripfast_\w+) \(", "".join(each.sql for each in mysql_scripts.SCHEMA))
    )
    assert granted == tables | {GUARDED_BY_TOKENS, *(f"gripfast_{mode}" for mode in MODES)}
