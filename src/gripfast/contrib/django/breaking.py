"""A break that is recorded, for the page of the admin and for `manage.py locks --break`.

It is recorded in the admin's history before it happens: what can't be recorded is not done. A project without the admin
has no history: there the log gets a WARNING. Only the holders that somebody was shown are hit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from django.apps import apps

from gripfast.api.rows import Holder, Row, break_holders
from gripfast.cli.text import occupant
from gripfast.contrib.django.clients import locks
from gripfast.errors import visible

if TYPE_CHECKING:
    from django.contrib.admin.models import LogEntry

_log = logging.getLogger("gripfast.django")

REASON_MOST = 500
"""Characters."""
REASON_BYTES = 1000
"""With the user's name; a store takes a little more."""

Conclude = Callable[[str], None]


def has_history() -> bool:
    return bool(apps.is_installed("django.contrib.admin"))


def break_recorded(
    user: Any, using: str, row: Row, holders: tuple[Holder, ...], reason: str, where: str
) -> tuple[Holder, ...]:
    """Those that still had it. `user`: of the project, or the name of somebody if it has no history. `where`: in words,
    what to say to the holder if there is no reason."""
    reason = reason.strip()[:REASON_MOST]
    name = user if isinstance(user, str) else user.get_username()
    conclude = _record(user, using, row, _told("is about to break", row, holders, reason))
    by = f"{reason or f'released by force {where}'} ({name})".encode()[:REASON_BYTES].decode(errors="ignore")
    broken = break_holders(locks[using], Row(row.kind, row.name, holders, row.waiters, row.limit), by)
    conclude(_told("broke" if broken else "broke nothing of", row, broken or row.holders, reason))
    return broken


def _record(user: Any, using: str, row: Row, told: str) -> Conclude:
    if has_history():
        return _conclude(_entry(user, using, row, told))

    def log(told: str) -> None:
        which = f"{visible(row.name)!r} of the store {using!r}"
        _log.warning("%s", f"{visible(user)} {told.replace(':', f' {which}:', 1)}")

    log(told)
    return log


def _entry(user: Any, using: str, row: Row, told: str) -> LogEntry:
    from django.contrib.admin.models import DELETION, LogEntry
    from django.contrib.contenttypes.models import ContentType

    from gripfast.contrib.django.models import HeldLock

    entry: LogEntry = LogEntry.objects.create(
        user_id=user.pk,
        content_type_id=ContentType.objects.get_for_model(HeldLock).pk,
        object_id=visible(row.name),
        object_repr=visible(f"{using}: {row.name}")[:200],
        action_flag=DELETION,
        change_message=told,
    )
    return entry


def _conclude(entry: LogEntry) -> Conclude:
    def save(told: str) -> None:
        entry.change_message = told
        entry.save(update_fields=["change_message"])

    return save


def _told(done: str, row: Row, holders: Sequence[Holder], reason: str) -> str:
    who = "; ".join(f"{occupant(each)}, label {visible(each.label or '-')}, token {each.token}" for each in holders)
    return f"{done} the {row.kind}: {who}. Reason: {visible(reason) or '-'}"
