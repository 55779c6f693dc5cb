"""A migration that takes as long as the test wants: until the file $BAZAAR_GATE is there."""

import os
from pathlib import Path
from typing import Any, ClassVar

from django.db import migrations

from gripfast.testing.waiting import until


def write_note(apps: Any, schema_editor: Any) -> None:
    if gate := os.environ.get("BAZAAR_GATE"):
        print("in the middle", flush=True)
        until(Path(gate).exists, within=120)
    apps.get_model("bazaar", "Note").objects.using(schema_editor.connection.alias).create(text="migrated")


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("bazaar", "0001_initial")]
    atomic = False
    operations: ClassVar[list[Any]] = [migrations.RunPython(write_note, migrations.RunPython.noop)]
