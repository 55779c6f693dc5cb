from typing import Any, ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations: ClassVar[list[Any]] = [
        migrations.CreateModel(
            "Stall",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=50, unique=True)),
                ("sold", models.IntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            "Note",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("text", models.CharField(max_length=200)),
            ],
        ),
    ]
