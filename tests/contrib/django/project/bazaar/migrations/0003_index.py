"""CREATE INDEX CONCURRENTLY, which runs in no transaction, and waits for all that others have open."""

from typing import Any, ClassVar

from django.db import migrations


def create_index(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("CREATE INDEX CONCURRENTLY bazaar_note_text ON bazaar_note (text)")


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("bazaar", "0002_note")]
    atomic = False
    operations: ClassVar[list[Any]] = [migrations.RunPython(create_index, migrations.RunPython.noop)]
