"""`?prefix=…`: a name space within an engine. Names get the prefix on their way in and lose it on their way out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gripfast.core import rules
from gripfast.core.ports import Claim, Granted, Hold, LockInfo, Page, Taken
from gripfast.errors import Reason
from gripfast.stores.local import Engine


def checked_prefix(options: dict[str, Any]) -> str:
    """The prefix, taken out of the options."""
    return rules.checked_prefix(options.pop("prefix", ""))


def prefixed(engine: Engine, prefix: str) -> Engine:
    return _Prefixed(engine, prefix) if prefix else engine


class _Prefixed:
    def __init__(self, engine: Engine, prefix: str) -> None:
        self.capabilities = engine.capabilities
        self.inboxes = engine.inboxes
        self._engine = engine
        self._prefix = prefix

    def claim(self, claim: Claim) -> Granted | Taken:
        answer = self._engine.claim(claim._replace(name=self._prefix + claim.name))
        return answer._replace(holder=self._bare(answer.holder)) if isinstance(answer, Taken) else answer

    def renew(self, holds: Sequence[Hold]) -> Sequence[Reason | None]:
        return self._engine.renew([self._full(hold) for hold in holds])

    def release(self, hold: Hold) -> Reason | None:
        return self._engine.release(self._full(hold))

    def abandon(self, holds: Sequence[Hold]) -> None:
        self._engine.abandon([self._full(hold) for hold in holds])

    def inspect(self, name: str) -> LockInfo | None:
        return self._bare(self._engine.inspect(self._prefix + name))

    def page(self, prefix: str, after: str | None) -> Page:
        page = self._engine.page(self._prefix + prefix, None if after is None else self._prefix + after)
        after = None if page.after is None else page.after.removeprefix(self._prefix)
        return Page([info for each in page.infos if (info := self._bare(each)) is not None], after)

    def force_release(self, name: str) -> bool:
        return self._engine.force_release(self._prefix + name)

    def vouch(self, hold: Hold, pid: int) -> None:
        self._engine.vouch(self._full(hold), pid)

    def close(self) -> None:
        self._engine.close()

    def _full(self, hold: Hold) -> Hold:
        return hold._replace(name=self._prefix + hold.name)

    def _bare(self, info: LockInfo | None) -> LockInfo | None:
        return info and replace(info, name=info.name.removeprefix(self._prefix))
