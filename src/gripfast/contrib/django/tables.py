"""The tables of SQL stores and of fencing tokens, for migrations: one operation, with the statements of the vendor."""

from __future__ import annotations

import re
from typing import Any

from django.db import router
from django.db.migrations.operations.base import Operation

from gripfast.api import schema

_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS (\w+)")
_WITH_LOCKS = ("postgresql", "mysql")
_WITH_FENCES = (*_WITH_LOCKS, "sqlite")


def statements(vendor: str) -> list[str]:
    """What creates them in a database of this vendor; safe to run again."""
    texts = [schema.locks(vendor)] if vendor in _WITH_LOCKS else []
    texts += [schema.fences(vendor)] if vendor in _WITH_FENCES else []
    return [each.strip() for text in texts for each in re.split(r";\n", text) if each.strip()]


def names(vendor: str) -> list[str]:
    return [name for each in statements(vendor) for name in _TABLE.findall(each)]


class CreateTables(Operation):
    """In every database that the routers allow, whether its locks are used or not: the setting may change later, and
    this migration would not run again. The tables may be there: Gripfast creates its own on first use."""

    reversible = True
    reduces_to_sql = True
    elidable = False

    def state_forwards(self, app_label: str, state: Any) -> None:
        pass

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if self._is_allowed(app_label, schema_editor):
            for statement in statements(schema_editor.connection.vendor):
                schema_editor.execute(statement, params=None)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if self._is_allowed(app_label, schema_editor):
            for name in reversed(names(schema_editor.connection.vendor)):
                schema_editor.execute(f"DROP TABLE IF EXISTS {name}", params=None)

    def _is_allowed(self, app_label: str, schema_editor: Any) -> bool:
        return bool(router.allow_migrate(schema_editor.connection.alias, app_label))

    def describe(self) -> str:
        return "Create the tables of Gripfast's locks and fencing tokens"
