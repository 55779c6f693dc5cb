"""`manage.py check`: what it says about the setting, the deployment and the databases."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connections
from django.test import override_settings
from django.test.utils import modify_settings

from contrib.django.bazaar_processes import database_of
from support.pgbouncer import pgbouncer
from support.sql_servers import PostgresServer


def found(locks: Any, *, deploy: bool = False, databases: list[str] | None = None) -> dict[str, str]:
    with override_settings(GRIPFAST=locks):
        messages = run_checks(tags=["gripfast"], include_deployment_checks=deploy, databases=databases)
    return {message.id: f"{message.msg} {message.hint}" for message in messages}


def test_a_good_setting_has_nothing_to_be_said_of_it() -> None:
    locks = {
        "default": {"DATABASE": "pg"},
        "jobs": {"DATABASE": "pg", "MODE": "row"},
        "r": {"URL": "redis://localhost"},
    }
    assert found(locks, deploy=True, databases=["pg", "default"]) == {}


@pytest.mark.parametrize(
    ("locks", "id", "words"),
    [
        ({}, "gripfast.E001", "must be a dict with the key 'default'"),
        ({"default": {"URL": "redsi://localhost"}}, "gripfast.E002", "GRIPFAST['default'] does not describe a store"),
        ({"default": {"URL": "memory://", "OPTIONS": {"tll": 5}}}, "gripfast.E002", "did you mean ttl?"),
        ({"default": {"DATABASE": "nowhere"}}, "gripfast.E002", "DATABASES has no entry 'nowhere'"),
    ],
)
def test_a_setting_that_makes_no_store_is_an_error(locks: Any, id: str, words: str) -> None:
    assert words in found(locks, deploy=True, databases=["pg"])[id]


@pytest.mark.parametrize(
    ("url", "id", "words"),
    [
        ("sqlite:///locks.db", "gripfast.W001", "other machines"),
        ("memory://", "gripfast.E003", "do not see each other"),
    ],
)
def test_a_store_of_one_machine_is_told_before_a_deployment(url: str, id: str, words: str) -> None:
    assert found({"default": {"URL": url}}) == {}
    assert words in found({"default": {"URL": url}}, deploy=True)[id]


def test_an_isolation_level_that_is_none_does_not_stop_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["pg"].settings_dict, "OPTIONS", {"isolation_level": "serializable"})
    assert "gripfast.W002" not in found({"default": {"DATABASE": "pg", "MODE": "row"}})


def test_an_isolation_level_where_within_is_refused_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from psycopg import IsolationLevel

    monkeypatch.setitem(connections["pg"].settings_dict, "OPTIONS", {"isolation_level": IsolationLevel.SERIALIZABLE})
    assert found({"default": {"DATABASE": "pg", "MODE": "row"}}).keys() == {"gripfast.W002"}
    assert found({"default": {"DATABASE": "pg", "MODE": "lease"}}) == {}


def test_a_migrate_of_another_app_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from gripfast.contrib.django import checks

    monkeypatch.setattr(checks, "get_commands", lambda: {"migrate": "tenants"})
    assert "migrate is that of tenants, so it takes no lock" in found({"default": {}})["gripfast.W003"]


def test_missing_tables_are_told_and_not_while_migrate_is_about_to_create_them() -> None:
    from gripfast.contrib.django import checks

    with connections["pg"].cursor() as cursor:
        cursor.execute("ALTER TABLE gripfast_lock RENAME TO elsewhere")
        try:
            told = found({"default": {"DATABASE": "pg"}}, databases=["pg"])["gripfast.W005"]
            assert "lacks 1 of Gripfast's tables, such as gripfast_lock" in told
            assert "manage.py migrate gripfast --database pg" in told
            assert found({"default": {"DATABASE": "pg"}}) == {}  # who does not name a database is not connected to it
            with checks.without_tables():
                assert found({"default": {"DATABASE": "pg"}}, databases=["pg"]) == {}
        finally:
            cursor.execute("ALTER TABLE elsewhere RENAME TO gripfast_lock")


@pytest.fixture
def through_a_proxy() -> Iterator[None]:
    settings = connections["pg"].settings_dict
    before = dict(settings)
    with PostgresServer() as server, pgbouncer(server) as url:
        settings.update(database_of(url))
        connections["pg"].close()
        yield
        connections["pg"].close()
        settings.update(before)


def test_a_proxy_that_pools_sessions_is_told(through_a_proxy: None) -> None:
    sessions = found({"default": {"DATABASE": "pg", "MODE": "row"}}, databases=["pg"])
    assert "such locks need a session of their own" in sessions["gripfast.E004"]
    leases = found({"default": {"DATABASE": "pg"}}, databases=["pg"])
    assert "waiters are not notified, they poll" in leases["gripfast.W004"]


def test_nothing_of_it_needs_the_admin() -> None:
    with modify_settings(INSTALLED_APPS={"remove": ["django.contrib.admin"]}):
        assert found({"default": {"URL": "redis://localhost"}}) == {}
