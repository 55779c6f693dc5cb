"""What the guard promises on PostgreSQL and MariaDB, with every driver that it knows, in both colours."""

from collections.abc import Iterator

import pytest

from fencing.sql_databases import database, fenced_database, new_resource
from gripfast.errors import ConfigurationError, StaleToken
from gripfast.fencing import async_guard, guard, schema
from support.both_colours import staged
from support.callers import KINDS, Application, opened

pytestmark = pytest.mark.in_turn(2)

Kind = type[Application]


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    with fenced_database("postgresql") as url:
        yield url


@pytest.fixture(scope="module")
def mysql() -> Iterator[str]:
    with fenced_database("mysql") as url:
        yield url


@pytest.fixture(scope="module")
def bare_postgresql() -> Iterator[str]:
    with database("postgresql") as url:
        yield url


@pytest.fixture(scope="module")
def bare_mysql() -> Iterator[str]:
    with database("mysql") as url:
        yield url


@pytest.fixture(params=KINDS, ids=lambda kind: kind.kind)
def kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


@pytest.fixture
def url(request: pytest.FixtureRequest, kind: Kind) -> str:
    return str(request.getfixturevalue(kind.engine))


@pytest.fixture
def bare_url(request: pytest.FixtureRequest, kind: Kind) -> str:
    return str(request.getfixturevalue(f"bare_{kind.engine}"))


async def remembered(application: Application, resource: str) -> int | None:
    column = "resource" if application.engine == "postgresql" else "CONVERT(resource USING utf8mb4)"
    rows = await application.execute(f"SELECT token FROM gripfast_fence WHERE {column} = '{resource}'")
    return rows[0][0] if rows else None


@staged
async def test_a_smaller_token_is_refused_and_told_what_was_seen(kind: Kind, url: str) -> None:
    resource = new_resource()
    async with opened(kind, url) as application:
        await application.begin()
        await application.guard(resource, 34)
        with pytest.raises(StaleToken) as refusal:
            await application.guard(resource, 33)
        assert (refusal.value.resource, refusal.value.token, refusal.value.seen) == (resource, 33, 34)
        assert await remembered(application, resource) == 34


@staged
async def test_equal_and_larger_tokens_pass(kind: Kind, url: str) -> None:
    resource = new_resource()
    async with opened(kind, url) as application:
        await application.begin()
        for token in (0, 34, 34, 2**31, 2**53 + 1, 2**63 - 2, 2**63 - 2):
            await application.guard(resource, token)
            assert await remembered(application, resource) == token
        with pytest.raises(StaleToken) as refusal:
            await application.guard(resource, 2**63 - 3)
        assert refusal.value.seen == 2**63 - 2


@staged
async def test_resources_are_compared_byte_by_byte(kind: Kind, url: str) -> None:
    async with opened(kind, url) as application:
        await application.begin()
        await application.guard("Job", 34)
        for other in ("job", "Job ", "Jöb", "Jo\u0308b", "J:o%b\\'\"", "Job\n", "\U0001f512", "x" * 512, "ö" * 256):
            await application.guard(other, 1)
            await application.guard(other, 2)
            with pytest.raises(StaleToken):
                await application.guard(other, 1)
        await application.rollback()


@staged
async def test_a_commit_keeps_the_token_and_a_rollback_forgets_it_with_the_write(kind: Kind, url: str) -> None:
    resource = new_resource()
    async with opened(kind, url) as application, opened(kind, url) as other:
        await application.begin()
        await application.guard(resource, 34)
        await application.commit()
        await application.begin()
        await application.guard(resource, 35)
        await application.rollback()
        await other.begin()
        await other.guard(resource, 34)
        with pytest.raises(StaleToken):
            await other.guard(resource, 33)


@staged
async def test_a_refusal_leaves_the_transaction_to_the_caller(kind: Kind, url: str) -> None:
    resource, other = new_resource(), new_resource()
    async with opened(kind, url) as application:
        await application.begin()
        await application.guard(resource, 34)
        await application.guard(other, 1)
        with pytest.raises(StaleToken):
            await application.guard(resource, 33)
        await application.commit()
        assert await remembered(application, resource) == 34
        assert await remembered(application, other) == 1


@staged
async def test_a_savepoint_that_is_rolled_back_forgets_too(kind: Kind, url: str) -> None:
    resource = new_resource()
    async with opened(kind, url) as application:
        await application.begin()
        await application.guard(resource, 1)
        await application.execute("SAVEPOINT inner_part")
        await application.guard(resource, 34)
        await application.execute("ROLLBACK TO SAVEPOINT inner_part")
        await application.guard(resource, 2)


@staged
async def test_a_connection_that_commits_every_statement_is_refused(kind: Kind, url: str) -> None:
    resource = new_resource()
    async with opened(kind, url, autocommit=True) as application:
        with pytest.raises(ConfigurationError, match=r"is in autocommit mode. Before the guard, "):
            await application.guard(resource, 1)
        assert await remembered(application, resource) is None
        await application.execute("BEGIN")
        await application.guard(resource, 34)
        await application.execute("ROLLBACK")
        assert await remembered(application, resource) is None


@staged
async def test_the_missing_table_is_answered_with_its_ddl(kind: Kind, bare_url: str) -> None:
    async with opened(kind, bare_url) as application:
        await application.begin()
        with pytest.raises(ConfigurationError) as refusal:
            await application.guard("stock", 1)
        assert schema(kind.engine) in str(refusal.value)
        await application.rollback()


@staged
async def test_the_other_colour_is_refused_with_the_name_of_the_right_call(kind: Kind, url: str) -> None:
    async with opened(kind, url) as application:
        if kind.is_async:
            with pytest.raises(ConfigurationError, match=r"await gripfast\.fencing\.async_guard"):
                guard(application.given, "stock", 1)
        else:
            with pytest.raises(ConfigurationError, match=r"use gripfast\.fencing\.guard"):
                await async_guard(application.given, "stock", 1)


@staged
async def test_an_error_of_the_database_passes_as_it_is(kind: Kind, url: str) -> None:
    async with opened(kind, url) as application:
        await application.begin()
        await application.execute("SET TRANSACTION READ ONLY" if kind.engine == "postgresql" else "COMMIT")
        if kind.engine == "mysql":
            await application.execute("START TRANSACTION READ ONLY")
        with pytest.raises(Exception, match=r"(?i)read.only") as refusal:
            await application.guard("stock", 1)
        assert not isinstance(refusal.value, ConfigurationError)
        await application.rollback()
