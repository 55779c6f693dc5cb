"""The second number of a resource that is shared: a guard with `shared=True` in SQL.

Those who share a resource (readers, holders of a semaphore's permits) have different tokens at the same time, and none
of them is late because of another. So two numbers decide: the largest token of all, which an exclusive token must
reach, and the largest exclusive one, which a shared token must reach.

The table of the plain guard has room for one. While the last token that was let in was exclusive, both numbers are the
same, and that table is all there is. A shared token puts both into a table of their own, and `SHARED` in the place of
the token. No token is larger, so whoever knows only the first table is refused: a guard of an older version, and the
one statement of an exclusive guard, which then looks here. The next exclusive token that is let in puts itself back in
its place. So nothing changes for a resource that nobody shares, nor for its table.

The row of the first table is locked from the first statement on until the caller's transaction ends. Whatever follows
has no rival, and is rolled back together with the write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gripfast.drivers import CallerConnection
from gripfast.errors import StaleToken
from gripfast.fencing.checks import SHARED
from gripfast.fencing.dialect import missing_table


@dataclass(frozen=True, slots=True)
class Texts:
    """What one engine brings. All of them have the parameter `:resource`, as `key` writes it."""

    ddl: str
    """Of the table with both numbers; safe to run again."""
    first_ddl: str
    lock: str
    """Locks the resource's row in the first table; makes one with the token 0 if there is none."""
    read: str
    """The token in the first table."""
    put: str
    """Sets it to `:token`."""
    recall: str
    """Both numbers: the largest of all, the largest exclusive one."""
    note: str
    """Sets them to `:seen` and `:exclusive`."""
    lacks_table: Callable[[Exception], bool]
    key: Callable[[str], str] = str


async def guard(caller: CallerConnection, texts: Texts, resource: str, token: int) -> None:
    """Of a shared token."""
    try:
        await caller.run(texts.lock, {"resource": texts.key(resource)})
        ((last,),), _ = await caller.run(texts.read, {"resource": texts.key(resource)})
    except Exception as error:
        if texts.lacks_table(error):
            raise missing_table(f"{texts.first_ddl}{texts.ddl}") from error
        raise
    await admit(caller, texts, resource, token, last, is_shared=True)


async def admit(
    caller: CallerConnection, texts: Texts, resource: str, token: int, last: int, *, is_shared: bool = False
) -> None:
    """With the resource's row locked, and its token read."""
    try:
        await _admit(caller, texts, resource, token, last, is_shared)
    except Exception as error:
        if texts.lacks_table(error):
            raise missing_table(texts.ddl) from error
        raise


async def _admit(caller: CallerConnection, texts: Texts, resource: str, token: int, last: int, is_shared: bool) -> None:
    key = texts.key(resource)
    seen = exclusive = last
    if last == SHARED:
        rows, _ = await caller.run(texts.recall, {"resource": key})
        seen, exclusive = rows[0] if rows else (SHARED, SHARED)  # somebody has deleted them: nobody is let in
    least = exclusive if is_shared else seen
    if token < least:
        raise StaleToken(resource, token, least)
    seen, exclusive = max(seen, token), exclusive if is_shared else token
    if seen == exclusive == last:
        return
    numbers: dict[str, Any] = {"resource": key, "seen": seen, "exclusive": exclusive}
    await caller.run(texts.note, numbers)
    await caller.run(texts.put, {"resource": key, "token": seen if seen == exclusive else SHARED})
