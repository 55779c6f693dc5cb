"""The tables of locks and of fencing tokens, as the installed version has them, and the model without a table.

A later layout of the tables comes with a later migration, whose statements must bear that this one has made it already.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models

from gripfast.contrib.django.tables import CreateTables


class Migration(migrations.Migration):
    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar[list[object]] = [
        migrations.CreateModel(
            name="HeldLock",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ],
            options={
                "verbose_name": "held lock",
                "verbose_name_plural": "held locks",
                "permissions": (("break_heldlock", "Can break held lock"),),
                "managed": False,
                "base_manager_name": "objects",
                "default_permissions": ("view",),
            },
        ),
        CreateTables(),
    ]
