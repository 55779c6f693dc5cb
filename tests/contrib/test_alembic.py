"""Real `alembic` processes that migrate one database at the same time, with the two lines of the page in env.py."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy

import gripfast
from contrib.alembic_stage import IMPORT, PATIENCE, Project
from support.pgbouncer import pgbouncer
from support.sql_servers import mariadb_server, postgres_server
from support.waiting import until

CREATE = 'op.create_table("carts", sa.Column("id", sa.Integer, primary_key=True))'


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    """An empty one, as a URL of SQLAlchemy."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/shop.db"
    elif kind == "pymysql":
        with mariadb_server().fresh_database() as url:
            yield url.replace("mysql://", "mysql+pymysql://")
    else:
        with postgres_server().fresh_database() as url:
            yield url.replace("postgresql://", f"postgresql+{kind}://")


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[str]:
    with database("psycopg", tmp_path) as url:
        yield url


def scalar(url: str, query: str) -> object:
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.pool.NullPool)
    with engine.connect() as connection:
        return connection.scalar(sqlalchemy.text(query))


def revisions(url: str) -> list[str]:
    """What the database has, by its own account."""
    engine = sqlalchemy.create_engine(url.replace("asyncpg", "psycopg"), poolclass=sqlalchemy.pool.NullPool)
    with engine.connect() as connection:
        has_table = sqlalchemy.inspect(connection).has_table("alembic_version")
        return list(connection.scalars(sqlalchemy.text("SELECT * FROM alembic_version"))) if has_table else []


def locks_in(url: str) -> gripfast.Client:
    """Those of the migrations."""
    return gripfast.connect(url.replace("+psycopg", "").replace("+pymysql", ""), mode="advisory")


# -- two at once -------------------------------------------------------------------------------------------------------


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("kind", "template"),
    [
        ("psycopg", "generic"),
        ("pymysql", "generic"),
        ("sqlite", "generic"),
        ("asyncpg", "async"),
        ("psycopg2", "generic"),
    ],
)
def test_of_two_upgrades_at_once_one_migrates_and_the_other_finds_nothing_to_do(
    kind: str, template: str, tmp_path: Path
) -> None:
    with database(kind, tmp_path) as url:
        project = Project(tmp_path, url, template).lock()
        project.revise(f'ran("r1")\n{CREATE}\ngate("slow")')
        project.revise('ran("r2")\nop.add_column("carts", sa.Column("total", sa.Integer))')
        with project.started("upgrade", "head") as first:
            until(lambda: project.has_run("at slow"), within=PATIENCE)
            with project.started("upgrade", "head") as second:
                second.says(f"held by pid {first.pid} on ")
                project.open("slow")
                assert (first.ended(), second.ended()) == (0, 0), first.log + second.log
        assert project.diary == [f"r1 {first.pid}", f"at slow {first.pid}", f"r2 {first.pid}"]
        assert "(alembic upgrade)" in second.log
        assert revisions(url) == ["r2"]


def test_without_the_lock_both_migrate(postgres: str, tmp_path: Path) -> None:
    """What the tests above would see: each begins the same revision, and one of them breaks on the other's table."""
    project = Project(tmp_path, postgres)
    assert project.run("ensure_version").ended() == 0  # or one waits for the other to create that table
    project.revise(f'ran("r1")\ngate("slow")\n{CREATE}')
    with project.started("upgrade", "head") as first, project.started("upgrade", "head") as second:
        until(lambda: project.has_run("at slow") == 2, within=PATIENCE)
        project.open("slow")
        assert sorted([first.ended() == 0, second.ended() == 0]) == [False, True]


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("kind", ["psycopg", "pymysql", "sqlite"])
def test_when_the_process_that_migrates_is_killed_the_next_one_goes_on(kind: str, tmp_path: Path) -> None:
    with database(kind, tmp_path) as url:
        project = Project(tmp_path, url).lock()
        project.revise(f'ran("r1")\n{CREATE}')
        project.revise('ran("r2")\ngate("slow")')
        with project.started("upgrade", "head") as first:
            until(lambda: project.has_run("at slow"), within=PATIENCE)
            with project.started("upgrade", "head") as second:
                second.says(f"held by pid {first.pid} on ")
                first.kill()
                until(lambda: project.has_run("at slow") == 2, within=PATIENCE)
                project.open("slow")
                assert second.ended() == 0, second.log
        assert project.diary[-1] == f"at slow {second.pid}"
        assert revisions(url) == ["r2"]


# -- CREATE INDEX CONCURRENTLY -----------------------------------------------------------------------------------------


def waits_for_locks(url: str) -> list[object]:
    """Who waits in the server's own queue for an advisory lock."""
    name = sqlalchemy.make_url(url).database
    query = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND wait_event = 'advisory'"
    return [row[0] for row in postgres_server().execute(query, name)]


def test_an_index_that_is_created_concurrently_neither_ends_the_lock_nor_waits_for_a_waiter(
    postgres: str, tmp_path: Path
) -> None:
    """A transaction lock would end at the index. A waiter in the server's queue would have a snapshot, for whose end
    the index waits."""
    project = Project(tmp_path, postgres).lock()
    project.revise(f'{CREATE}\ngate("before")')
    index = 'op.create_index("by_id", "carts", ["id"], postgresql_concurrently=True)'
    project.revise(f'with op.get_context().autocommit_block():\n    {index}\ngate("after")')
    project.revise('ran("r3")')
    with project.started("upgrade", "head") as first:
        until(lambda: project.has_run("at before"), within=PATIENCE)
        with project.started("upgrade", "head") as second:
            second.says(f"held by pid {first.pid} on ")
            project.open("before")
            queued: list[object] = []
            until(lambda: queued.extend(waits_for_locks(postgres)) or project.has_run("at after"), within=PATIENCE)
            assert queued == [], "a waiter in the server's queue stops the index"
            with locks_in(postgres) as client:
                assert client.inspect("alembic").pid == first.pid
            assert second.runs
            project.open("after")
            assert (first.ended(), second.ended()) == (0, 0), first.log + second.log
    assert [line.split()[-1] for line in project.diary] == [str(first.pid)] * 3
    assert scalar(postgres, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'by_id'::regclass") is True


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_migration", [False, True])
def test_when_the_lock_is_lost_the_revision_is_rolled_back_and_no_other_is_begun(
    per_migration: bool, postgres: str, tmp_path: Path
) -> None:
    project = Project(tmp_path, postgres).lock()
    if per_migration:
        project.edit("connection=connection,", "connection=connection, transaction_per_migration=True,")
    project.revise(CREATE)
    project.revise('op.add_column("carts", sa.Column("total", sa.Integer))\ngate("slow")')
    project.revise('ran("r3")')
    with project.started("upgrade", "head") as command:
        until(lambda: project.has_run("at slow"), within=PATIENCE)
        with locks_in(postgres) as client:
            assert client.force_release("alembic")
        command.says("Lost the migration lock 'alembic' (session)")
        project.open("slow")
        assert command.ended() != 0
        assert "FAILED: the migration lock 'alembic': lease on 'alembic' lost (session)" in command.log
        assert "Traceback" not in command.log
    assert not project.has_run("r3")
    assert revisions(postgres) == (["r1"] if per_migration else [])
    assert scalar(postgres, "SELECT count(*) FROM information_schema.columns WHERE column_name = 'total'") == 0


def test_who_has_waited_long_enough_fails_and_says_who_migrates(postgres: str, tmp_path: Path) -> None:
    project = Project(tmp_path, postgres).lock("wait=0")
    project.revise('gate("slow")')
    with project.started("upgrade", "head") as first:
        until(lambda: project.has_run("at slow"), within=PATIENCE)
        second = project.run("upgrade", "head")
        assert second.ended() != 0
        assert f"held by pid {first.pid} on " in second.log
        assert "migration_lock(wait=SECONDS)" in second.log
        assert "Traceback" not in second.log


def test_a_proxy_that_pools_transactions_is_refused(tmp_path: Path) -> None:
    with pgbouncer(postgres_server()) as url:
        project = Project(tmp_path, url.replace("postgresql://", "postgresql+psycopg://")).lock()
        project.revise('ran("r1")')
        command = project.run("upgrade", "head")
    assert command.ended() != 0
    assert "FAILED: the migration lock 'alembic': postgresql://" in command.log
    assert "is reached through a proxy that pools connections, such as pgbouncer" in command.log
    assert not project.has_run("r1")


def test_behind_such_a_proxy_the_lock_can_have_the_servers_own_address(postgres: str, tmp_path: Path) -> None:
    table = f"t{uuid.uuid4().hex}"
    with pgbouncer(postgres_server()) as url:
        project = Project(tmp_path, url.replace("postgresql://", "postgresql+psycopg://")).lock(repr(postgres))
        project.revise(f'op.create_table({table!r}, sa.Column("id", sa.Integer))\nop.drop_table({table!r})\nran("r1")')
        project.edit("connection=connection,", f"connection=connection, version_table='v{table}',")
        assert project.run("upgrade", "head").ended() == 0
    assert project.has_run("r1") == 1


def test_env_py_that_migrates_another_database_than_it_locks_is_refused(postgres: str, tmp_path: Path) -> None:
    project = Project(tmp_path, f"sqlite:///{tmp_path}/other.db").lock()
    project.revise('ran("r1")')
    there = f'connectable = __import__("sqlalchemy").create_engine({postgres!r})\n    with connectable.connect()'
    project.edit("with connectable.connect()", there)
    command = project.run("upgrade", "head")
    assert command.ended() != 0
    assert "pass it the engine that env.py uses" in command.log
    assert "***" in command.log, "a password is nobody's business"
    assert not project.has_run("r1")


@pytest.mark.parametrize(
    ("url", "argument"), [("driver://user:pass@localhost/dbname", ""), ("", ""), ("", "'redis://localhost'")]
)
def test_an_address_without_a_database_is_refused(url: str, argument: str, tmp_path: Path) -> None:
    project = Project(tmp_path, url).lock(argument)
    project.revise('ran("r1")')
    where = "its argument" if argument else "sqlalchemy.url of Alembic's configuration"
    assert f"FAILED: migration_lock() found no database in {where}" in " ".join(
        project.run("upgrade", "head").log.split()
    )


def test_the_lock_can_be_in_another_store(tmp_path: Path, sqlite_url: str) -> None:
    project = Project(tmp_path, f"sqlite:///{tmp_path}/shop.db").lock(f"__import__('gripfast').connect({sqlite_url!r})")
    project.revise('gate("slow")')
    with project.started("upgrade", "head") as command, gripfast.connect(sqlite_url) as client:
        until(lambda: project.has_run("at slow"), within=PATIENCE)
        assert client.inspect("alembic").pid == command.pid
        project.open("slow")
        assert command.ended() == 0, command.log


def test_a_lock_after_the_context_was_configured_is_refused(tmp_path: Path) -> None:
    project = Project(tmp_path, f"sqlite:///{tmp_path}/shop.db")
    project.revise('ran("r1")')
    project.edit("from alembic import context\n", f"from alembic import context\n{IMPORT}")
    project.edit("with context.begin_transaction():", "with migration_lock(), context.begin_transaction():")
    assert "FAILED: migration_lock() comes too late" in project.run("upgrade", "head").log
    assert not project.has_run("r1")


@pytest.mark.parametrize("shop", ["a%23b.db", "link.db"])
def test_a_file_has_one_lock_whatever_its_name_looks_like(shop: str, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    project = Project(tmp_path, f"sqlite:///{tmp_path}/{shop}").lock("wait=0")
    project.revise('ran("r1")')
    assert project.run("upgrade", "head").ended() == 0
    file = "real.db" if shop == "link.db" else Path(sqlalchemy.make_url(f"sqlite:///{shop}").database or "").name
    assert [each.name for each in tmp_path.glob("*.locks")] == [f"{file}.locks"]


@pytest.mark.parametrize(
    ("target", "told"), [("create_engine(url).connect()", ""), ("{'url': url}", "takes a URL, an engine, a connection")]
)
def test_a_connection_says_where_the_database_is_and_other_things_do_not(
    target: str, told: str, tmp_path: Path
) -> None:
    project = Project(tmp_path, "").lock(target)
    project.revise('ran("r1")')
    there = f"from sqlalchemy import create_engine\nurl = 'sqlite:///{tmp_path}/shop.db'\n"
    project.edit("\nfrom alembic import context\n", f"\nfrom alembic import context\n{there}")
    project.edit("with connectable.connect()", "connectable = create_engine(url)\n    with connectable.connect()")
    project.edit("connectable = engine_from_config(", "dict(")
    project.edit("config.get_section(config.config_ini_section, {}),", "")
    command = project.run("upgrade", "head")
    assert (command.ended() == 0) is (told == ""), command.log
    assert told in " ".join(command.log.split())
    assert "Traceback" not in command.log


# -- commands that need no lock ----------------------------------------------------------------------------------------


def test_offline_mode_takes_no_lock(tmp_path: Path) -> None:
    project = Project(tmp_path, "postgresql+psycopg://nobody@127.0.0.1:1/nowhere").lock()
    project.revise(CREATE)
    command = project.run("upgrade", "head", "--sql")
    assert command.ended() == 0, command.log
    assert "CREATE TABLE carts" in command.log


def test_alembic_current_answers_while_another_process_migrates(postgres: str, tmp_path: Path) -> None:
    project = Project(tmp_path, postgres).lock("wait=0")
    project.revise(f'{CREATE}\nwith op.get_context().autocommit_block():\n    gate("slow")')
    with project.started("upgrade", "head") as first:
        until(lambda: project.has_run("at slow"), within=PATIENCE)
        assert project.run("current").ended() == 0
        project.open("slow")
        assert first.ended() == 0


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("kind", ["psycopg", "pymysql"])
def test_autogenerate_does_not_drop_the_tables_of_the_lock(kind: str, tmp_path: Path) -> None:
    with database(kind, tmp_path) as url:
        project = Project(tmp_path, url).lock()
        described = "target_metadata = __import__('sqlalchemy').MetaData()"
        project.edit("target_metadata = None", described)
        project.revise('op.create_table("stray", sa.Column("id", sa.Integer))')
        assert project.run("upgrade", "head").ended() == 0
        assert scalar(url, "SELECT count(*) FROM gripfast_grant") != 0
        checked = project.run("check")
        assert "stray" in checked.log
        assert "gripfast" not in checked.log.replace(str(tmp_path), "")
