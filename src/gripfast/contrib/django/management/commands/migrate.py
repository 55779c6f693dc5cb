"""`manage.py migrate`, in place of Django's own: the same under a lock (`migrating.py`)."""

from __future__ import annotations

from django.core.management.commands.migrate import Command as Migrate

from gripfast.contrib.django.migrating import UnderLock


class Command(UnderLock, Migrate):
    help = f"{Migrate.help} Waits while another migrate of the same database runs."
