"""What both clients, for threads (`api/client.py`) and for tasks (`api/aio/client.py`), have in common."""

from __future__ import annotations

import logging
import sys
from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from gripfast.api import keeping, misuse
from gripfast.api.config import Config
from gripfast.api.misuse import NotLikeOthers, made_by_hand, refuse_to_pickle
from gripfast.api.settings import LockSettings
from gripfast.api.words import OF_CLIENTS
from gripfast.core import rules
from gripfast.core.ports import (
    RW_LIMIT,
    Capabilities,
    Hold,
    Keep,
    Kind,
    LockInfo,
    Loss,
    PermitInfo,
    Share,
    Store,
    Unreachable,
    permits_of,
    to_raise,
)
from gripfast.errors import ClientClosed, ConfigurationError, quoted
from gripfast.interrupts.guard import Guard
from gripfast.interrupts.living import Living

if TYPE_CHECKING:
    from gripfast.runtime.observers import Observers

_log = logging.getLogger("gripfast.client")

T = TypeVar("T")


class AnyClient(NotLikeOthers, lacks=OF_CLIENTS):
    _how_to_make = "gripfast.connect(url)"
    __reduce_ex__ = refuse_to_pickle

    def __init__(self, config: Config = None) -> None:  # type: ignore[assignment]
        if not isinstance(config, Config):
            raise made_by_hand(type(self), self._how_to_make)
        self._config = config
        self._making = Guard()
        self._is_closed = False
        clients.add(self)

    @property
    def where(self) -> str:
        """The engine's address, without a password."""
        return self._config.factory.where

    @property
    def capabilities(self) -> Capabilities:
        """What the store can do. Does no I/O."""
        return self._config.factory.capabilities

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed

    def _settings(self, name: str, ttl: float | None, **others: Any) -> LockSettings:
        ttl = self._config.ttl if ttl is None else ttl
        if others.get("min_hold") is not None:
            keeping.check_keeps(self, "min_hold")
        if others.get("lazy_release"):
            self._check_lazy()
        return LockSettings(name, self._config.prefix, ttl=ttl, max_ttl=self._config.factory.max_ttl, **others)

    def _check_lazy(self) -> None:
        if not self.capabilities.lazy_release:
            raise ConfigurationError(
                f"lazy_release does not work on {self.where}, only on Redis and Redlock: elsewhere release() waits for "
                "the store. Leave it out, or write lazy_release=client.capabilities.lazy_release"
            )

    def _settings_of_several(self, names: tuple[str, ...], ttl: float | None, **others: Any) -> list[LockSettings]:
        return [
            self._settings(name, ttl, renew=True, max_hold=None, reentrant=False, **others)
            for name in misuse.checked_names(names)
        ]

    def _settings_of_semaphore(self, name: str, limit: int, ttl: float | None, **others: Any) -> LockSettings:
        self._check_kind("semaphore")
        share = Share("semaphore", 1, rules.checked_limit(misuse.given("limit", limit)))
        return self._settings(name, ttl, reentrant=False, share=share, **others)

    def _settings_of_rwlock(self, name: str, ttl: float | None, **others: Any) -> tuple[LockSettings, LockSettings]:
        """To read, and to write."""
        self._check_kind("rwlock")
        shares = [Share("rwlock", n, RW_LIMIT) for n in (1, RW_LIMIT)]
        read, write = [self._settings(name, ttl, reentrant=False, share=share, **others) for share in shares]
        return read, write

    def _check_kind(self, kind: Kind) -> Kind:
        from gripfast.api.permits import check_kind

        return check_kind(kind, self.capabilities, self.where)

    def _forced_permits(
        self,
        key: str,
        kind: Literal["lock", "semaphore", "rwlock"],
        owner: str | None,
        slot: int | None,
        note: str | None,
    ) -> Coroutine[Any, Any, bool | Unreachable]:
        from gripfast.api.permits import check_whom

        check_whom(kind, owner, slot)
        assert kind != "lock"
        told = note if self.capabilities.tells_reason else None
        return permits_of(self._store()).force_release_permits(key, self._check_kind(kind), owner, slot, told)

    def _shown_permits(self, info: PermitInfo) -> PermitInfo:
        return replace(info, name=info.name.removeprefix(self._config.prefix))

    def _checked_ttl(self, ttl: float) -> float:
        return rules.checked_ttl(ttl, self._config.factory.max_ttl)

    def _key(self, name: str) -> str:
        """What the engine calls it."""
        return self._config.prefix + rules.checked_name(name)

    def _shown(self, info: LockInfo) -> LockInfo:
        """By the name that callers use."""
        return replace(info, name=info.name.removeprefix(self._config.prefix))

    def _observers(self) -> Observers | None:
        """For a runtime that is being made: one of a forked child has nothing of its parent's."""
        if not self._config.observers:
            return None
        from gripfast.runtime.observers import Observers

        return Observers(self._config.observers, self.where, _engine(self._config))

    def _tell_if_apart(self, is_forked: bool) -> None:
        """A forked or multiprocessing child may believe that it shares the locks of its parent."""
        if not self.capabilities.processes and (is_forked or _is_started_by_multiprocessing()):
            _log.warning(
                "this process has locks of its own in %s, because its memory is not shared with the process that "
                "started it. Use a store that processes share, such as sqlite:///locks.db",
                self.where,
            )

    def _store(self) -> Store:
        raise NotImplementedError

    async def _free(self, name: str, owner: str, keep: Keep | None = None) -> Loss | None:
        """Release by its owner id what was acquired elsewhere; None, or why it was not that owner's."""
        hold = Hold(self._config.prefix + name, owner, self._config.ttl, keep=keep)
        return reached(await self._store().release(hold))

    async def _renew(self, name: str, owner: str, ttl: float) -> Loss | None:
        """Renew by its owner id what was acquired elsewhere; None, or why it is not that owner's."""
        hold = Hold(self._config.prefix + name, owner, self._checked_ttl(ttl), shortens=True)
        return reached(reached(await self._store().renew([hold]))[0])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.where}>"


clients: Living[AnyClient] = Living()
"""All of this process."""


def _engine(config: Config) -> str:
    """For observers. An engine of SQLAlchemy is that of its dialect, which the address tells."""
    kind = config.factory.where.partition("://")[0] if config.kind == "sql" else config.kind
    return "postgresql" if kind == "postgres" else kind


def _is_started_by_multiprocessing() -> bool:
    """If so, it is loaded."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    return multiprocessing is not None and multiprocessing.parent_process() is not None


def reached(answer: T | Unreachable) -> T:
    if isinstance(answer, Unreachable):
        raise to_raise(answer.error)
    return answer


def forced(store: Store, key: str, note: str | None) -> Coroutine[Any, Any, bool | Unreachable]:
    """A note goes only to stores that can pass it on: others need not know of it."""
    if note is None or not store.capabilities.tells_reason:
        return store.force_release(key)
    return store.force_release(key, note)


def was_forced(name: str, note: str | None, was_held: bool, is_done: bool = False) -> bool:
    """Logs it."""
    if is_done:
        what = "%r is recorded as done, and a force release leaves that alone: write client.forget(%r)"
        _log.warning(what, name, name, extra={"gripfast_name": name})
    elif was_held:
        because = "" if note is None else f" ({quoted(note)})"
        what = "released %r by force%s; its holder may still be at work"
        _log.warning(what, name, because, extra={"gripfast_name": name})
    else:
        _log.info("%r was already free; nothing to release by force", name, extra={"gripfast_name": name})
    return was_held
