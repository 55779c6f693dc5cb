"""The setting `GRIPFAST`, the stores that its entries mean, and the clients that are made of them."""

import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.test import override_settings

import gripfast
from gripfast.contrib.django import lock, locks
from gripfast.contrib.django.databases import Place, place_of
from support.redis_server import shared_server


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({}, "must be a dict with the key 'default'"),
        (["redis://"], "must be a dict with the key 'default'"),
        ({"default": "redis://localhost"}, "must be a dict with some of the keys URL, DATABASE, MODE, OPTIONS"),
        ({"default": {"LOCATION": "x"}}, "unknown key 'LOCATION'"),
        ({"default": {"ttl": 5}}, "goes into OPTIONS"),
        ({"default": {"URL": "memory://", "DATABASE": "default"}}, "a URL and a DATABASE: leave one of them out"),
        ({"default": {"URL": "memory://", "MODE": "row"}}, "MODE goes with a DATABASE"),
        ({"default": {"DATABASE": "default", "MODE": "rows"}}, "one of lease, row, advisory"),
        ({"default": {"DATABASE": "nowhere"}}, "DATABASES has no entry 'nowhere': use one of default, pg"),
        ({"default": {"DATABASE": ["default"]}}, "DATABASE must be an alias of DATABASES"),
        ({"default": {"OPTIONS": 5}}, "OPTIONS must be a dict"),
        ({"default": {"URL": None}}, "has an empty URL, as from a variable of the environment that is not set"),
        ({"default": {"DATABASE": ""}}, "has an empty DATABASE"),
    ],
)
def test_what_is_wrong_with_the_setting_is_told(setting: Any, words: str) -> None:
    with override_settings(GRIPFAST=setting), pytest.raises(ImproperlyConfigured, match=words):
        locks["default"]


def test_an_alias_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(ImproperlyConfigured, match="no entry 'jobs': add it, or use one of default"):
        locks["jobs"]


def test_without_the_setting_the_default_is_what_connect_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIPFAST_URL", f"sqlite:///{tmp_path}/elsewhere.db")
    with override_settings(GRIPFAST=None):
        assert locks["default"].where == f"{tmp_path}/elsewhere.db"


def test_options_are_those_of_connect() -> None:
    entry = {"URL": shared_server().url, "OPTIONS": {"ttl": 7, "prefix": "bazaar:"}}
    with override_settings(GRIPFAST={"default": entry}):
        assert lock("a").ttl == 7
        with lock("a"), gripfast.connect(shared_server().url, prefix="bazaar:") as other:
            assert other.inspect("a") is not None


def test_threads_share_one_client() -> None:
    found: list[object] = []
    with override_settings(GRIPFAST={"default": {"URL": "memory://threads"}}):
        threads = [threading.Thread(target=lambda: found.append(locks["default"])) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert len(set(map(id, found))) == 1


def test_a_changed_setting_makes_another_client_and_closes_the_old_one() -> None:
    with override_settings(GRIPFAST={"default": {"URL": "memory://one"}}):
        old = locks["default"]
    with override_settings(GRIPFAST={"default": {"URL": "memory://two"}}):
        assert locks["default"].where == "memory://two"
        with pytest.raises(gripfast.ClientClosed):
            old.lock("a").acquire()


def test_a_forked_worker_goes_on_with_the_client_that_it_inherited() -> None:
    with lock("forked"):
        pid = os.fork()
        if not pid:
            os._exit(locks["default"].lock("forked").try_acquire() is not None)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_the_aliases_can_be_listed() -> None:
    with override_settings(GRIPFAST={"default": {}, "jobs": {"DATABASE": "pg"}}):
        assert list(locks) == ["default", "jobs"]


# -- databases ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["lease", "row", "advisory"])
def test_an_alias_of_databases_is_a_store_in_that_database(mode: str) -> None:
    with override_settings(GRIPFAST={"default": {"DATABASE": "pg", "MODE": mode}}):
        client = locks["default"]
        assert client.where.endswith(f"/{connections['pg'].settings_dict['NAME']}")
        assert client.capabilities.session == (mode != "lease")
        with lock("a") as lease:
            assert lease.token > 0
        assert client.inspect("a") is None


@pytest.fixture
def settings_of_pg() -> Iterator[dict[str, Any]]:
    """Which may be changed."""
    settings = connections["pg"].settings_dict
    before = {**settings, "OPTIONS": dict(settings["OPTIONS"])}
    yield settings
    settings.clear()
    settings.update(before)


def test_what_django_gives_to_its_driver_is_given_to_ours(settings_of_pg: dict[str, Any]) -> None:
    settings_of_pg["OPTIONS"] = {
        "sslmode": "prefer",
        "assume_role": r"a b\c",
        "pool": False,
        "server_side_binding": True,
    }
    settings_of_pg |= {"CONN_MAX_AGE": 600, "CONN_HEALTH_CHECKS": True}
    place = place_of("pg", "row")
    assert place.target == "postgresql://"
    assert place.options["options"] == r"-c role=a\ b\\c"
    assert (place.options["sslmode"], place.options["mode"]) == ("prefer", "row")
    assert {"dbname", "host", "port", "user", "password"} <= place.options.keys()


def test_the_role_of_djangos_connections_is_that_of_ours(settings_of_pg: dict[str, Any]) -> None:
    from support.sql_servers import postgres_server

    name = settings_of_pg["NAME"]
    for statement in (
        'CREATE ROLE "the owner"',
        'GRANT "the owner" TO gripfast',
        'GRANT ALL ON SCHEMA public TO "the owner"',
    ):
        postgres_server().execute(statement, database=name)
    try:
        settings_of_pg["OPTIONS"] = {"assume_role": "the owner", "options": "-c search_path=public"}
        place = place_of("pg")
        with (
            gripfast.connect(place.target, **place.options) as client,
            pytest.raises(gripfast.StoreUnavailable) as error,
        ):
            client.lock("a").acquire(wait=0)
        assert "does not let this user do that" in str(error.value)  # the tables are of another role
    finally:
        for statement in ('DROP OWNED BY "the owner"', 'DROP ROLE "the owner"'):
            postgres_server().execute(statement, database=name)


def test_an_option_that_can_not_be_translated_is_named(settings_of_pg: dict[str, Any]) -> None:
    settings_of_pg["OPTIONS"] = {"sslcontext": "x"}
    with pytest.raises(ImproperlyConfigured, match="has the option sslcontext, which Gripfast can't translate"):
        place_of("pg")


def test_the_client_moves_with_the_name_of_its_database(settings_of_pg: dict[str, Any]) -> None:
    """As a test runner changes it."""
    with override_settings(GRIPFAST={"default": {"DATABASE": "pg"}}):
        before = locks["default"]
        assert locks["default"] is before
        settings_of_pg["NAME"] = "test_elsewhere"
        assert locks["default"].where.endswith("/test_elsewhere")


def test_the_client_stays_if_each_connection_has_a_password_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As backends have it whose passwords are tokens of a cloud: a closed client would release what others hold."""
    passwords, params_of = itertools.count(), type(connections["pg"]).get_connection_params

    def params(connection: Any) -> Any:
        return {**params_of(connection), "password": str(next(passwords))}

    monkeypatch.setattr(type(connections["pg"]), "get_connection_params", params)
    with override_settings(GRIPFAST={"default": {"DATABASE": "pg"}}):
        assert locks["default"] is locks["default"]


def test_the_locks_of_a_sqlite_database_are_in_a_file_beside_it(bazaar: Path) -> None:
    with override_settings(GRIPFAST={"default": {"DATABASE": "default", "MODE": "row"}}):
        with lock("a"):
            assert (bazaar / "bazaar.sqlite3.locks").exists()
        assert locks["default"].where == str(bazaar / "bazaar.sqlite3.locks")


def test_the_locks_of_a_database_in_memory_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "NAME", ":memory:")
    assert place_of("default") == Place("memory://django-default")


@pytest.mark.parametrize(("name", "words"), [("file:bazaar.sqlite3?mode=rwc", "is a URI"), ("", "is empty")])
def test_what_is_no_path_of_a_sqlite_database_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    """The file of locks would be in the folder of each process."""
    monkeypatch.setitem(connections["default"].settings_dict, "NAME", name)
    with pytest.raises(ImproperlyConfigured, match=words):
        place_of("default")


@pytest.mark.parametrize(
    ("params", "address"),
    [
        ({"host": "::1", "port": 3307, "user": "joe", "password": "a@b"}, "mysql://joe:a%40b@[::1]:3307/bazaar"),
        ({"read_default_file": "my.cnf"}, "mysql:///bazaar"),  # which may name a host
    ],
)
def test_the_address_of_a_mysql_database(monkeypatch: pytest.MonkeyPatch, params: Any, address: str) -> None:
    monkeypatch.setattr(connections["default"], "vendor", "mysql")
    monkeypatch.setattr(connections["default"], "get_connection_params", lambda: {"database": "bazaar", **params})
    assert place_of("default").target == address


def test_a_database_of_another_vendor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["default"], "vendor", "oracle")
    with pytest.raises(ImproperlyConfigured, match="vendor 'oracle', where Gripfast can't keep locks"):
        place_of("default")
