"""A database with one row to fight for: a primary key that can be inserted once, and a row that can be locked.

Who asks for a row that is locked waits, as databases do. A lock belongs to a session, and ends with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gripfast_lab.engines.port import Answer, Happening
from gripfast_lab.moves import Ask

INSERT = "INSERT INTO locks VALUES ('job')"
DELETE = "DELETE FROM locks WHERE name = 'job'"
SELECT = "SELECT … WHERE name = 'job' FOR UPDATE"
COMMIT = "COMMIT"

DUPLICATE = "duplicate key"
ENDED = "the server has ended this session"


class Has(NamedTuple):
    is_inserted: bool = False
    locked_by: str = ""
    ended: tuple[str, ...] = ()
    """Sessions that the server has ended."""


class Database:
    nodes = ("database",)

    def start(self) -> Has:
        return Has()

    def asked(self, has: Has, who: str, what: Ask) -> tuple[str, ...]:
        return self.nodes

    def ask(self, has: Has, who: str, what: Ask, missing: str = "") -> Answer | None:
        (command,) = what.commands
        if who in has.ended:
            return Answer(has, ENDED)
        if command == INSERT:
            return Answer(has, DUPLICATE) if has.is_inserted else Answer(has._replace(is_inserted=True), 1)
        if command == DELETE:
            return Answer(has._replace(is_inserted=False), int(has.is_inserted))
        if command == SELECT:
            return None if has.locked_by not in ("", who) else Answer(has._replace(locked_by=who), 1)
        if command == COMMIT:
            return Answer(self._unlocked(has, who), "OK")
        raise NotImplementedError(command)

    def passes(self, has: Has, seconds: int, silent: frozenset[str]) -> Has:
        return has

    def lapsed(self, before: Has, after: Has) -> str:
        return ""

    def next(self, has: Has, silent: frozenset[str]) -> int | None:
        return None

    def closed(self, has: Has, who: str) -> Has:
        return self._unlocked(has, who)

    def happenings(self, has: Has) -> Iterator[Happening]:
        if has.locked_by:
            ended = self._unlocked(has, has.locked_by)._replace(ended=(*has.ended, has.locked_by))
            yield Happening("session", "database", f"the database ends {has.locked_by}'s session", ended, "ends it")

    def _unlocked(self, has: Has, who: str) -> Has:
        return has._replace(locked_by="") if has.locked_by == who else has
