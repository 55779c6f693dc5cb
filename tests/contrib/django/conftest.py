"""The project of `project/` in the process of the tests: a SQLite file, and, as `pg`, a database in PostgreSQL."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
import pytest
from django.core.management import call_command
from django.db import connections
from django.test.utils import setup_test_environment

from contrib.django.bazaar_processes import PROJECT, Database, database_of, sqlite_in
from support.sql_servers import postgres_server


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Set up, and migrated."""
    folder = tmp_path_factory.mktemp("bazaar")
    with postgres_server().fresh_database() as url, pytest.MonkeyPatch.context() as patch:
        databases = {"default": sqlite_in(folder), "pg": database_of(url)}
        _set_up(databases, {"default": {"URL": f"sqlite:///{folder}/locks.db"}})
        patch.syspath_prepend(PROJECT)
        for alias in databases:
            call_command("migrate", verbosity=0, database=alias)
        yield folder
        _close()


def _set_up(databases: dict[str, Database], locks: dict[str, Any]) -> None:
    """Processes that other tests start see nothing of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PROJECT)
        patch.setenv("BAZAAR_DATABASES", json.dumps(databases))
        patch.setenv("BAZAAR_LOCKS", json.dumps(locks))
        patch.setenv("DJANGO_SETTINGS_MODULE", "bazaar.settings")
        django.setup()
        setup_test_environment()


def _close() -> None:
    from gripfast.contrib.django import locks

    locks.close_all()
    connections.close_all()


@pytest.fixture(autouse=True)
def bazaar(project: Path) -> Iterator[Path]:
    """Nothing of a test is left for the next: neither connections nor clients."""
    yield project
    _close()
