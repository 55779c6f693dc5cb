"""Gripfast in Django: `"gripfast.contrib.django"` in `INSTALLED_APPS`, and stores in the setting `GRIPFAST`.

conf, databases       the setting; which store a database alias means
clients               one client for each alias
shortcuts             `lock`, `async_lock`, `within`
decorators            `@locked` for views and commands
transactions          what is inside of what: locks, `atomic()`, `ATOMIC_REQUESTS`
checks                `manage.py check`
migrations, tables    the tables of SQL stores
migrating             `manage.py migrate` under a lock
models, admin         the page that shows locks and breaks them
management            `manage.py locks`, `locked`, `migrate`
"""

from __future__ import annotations

from gripfast.contrib.django.clients import locks
from gripfast.contrib.django.decorators import locked
from gripfast.contrib.django.shortcuts import async_lock, lock, within

__all__ = ["async_lock", "lock", "locked", "locks", "within"]
