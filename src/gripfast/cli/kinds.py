"""Locks, semaphores and read/write locks: which of them a command is about, and what follows from that."""

from __future__ import annotations

import shlex
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import gripfast

if TYPE_CHECKING:
    from collections.abc import Mapping

AnyKind = Literal["lock", "semaphore", "rwlock"]
ALL = "all"
"""What `ls` and `show` look for, unless they are told a kind."""

NAMES: dict[AnyKind, str] = {"lock": "lock", "semaphore": "semaphore", "rwlock": "read/write lock"}


def kind_in(params: Mapping[str, Any]) -> AnyKind:
    """By the options of a command: --kind, or those of `run`."""
    if params.get("limit") is not None:
        return "semaphore"
    if params.get("read") or params.get("write"):
        return "rwlock"
    kind: AnyKind = params.get("kind") or "lock"
    return kind


def kinds_of(client: gripfast.Client) -> list[AnyKind]:
    """What this store has."""
    able = client.capabilities
    has: dict[AnyKind, bool] = {"lock": True, "semaphore": able.semaphores, "rwlock": able.rwlocks}
    return [kind for kind, is_there in has.items() if is_there]


def words_of(kind: AnyKind) -> ModuleType:
    """Tables, JSON and sentences: `text` has them for a LockInfo, `permits` has the same names for a PermitInfo."""
    if kind == "lock":
        from gripfast.cli import text

        return text
    from gripfast.cli import permits

    return permits


def called(lease: gripfast.Lease) -> str:
    """What a lease is on, before its name."""
    share = lease._state.want.share
    if share is None:
        return "lock"
    if share.kind == "semaphore":
        return "permit of the semaphore"
    return "write lock" if share.n == share.limit else "read lock"


def to_show(name: str, kind: AnyKind = "lock") -> str:
    """The command that tells more."""
    return f"gripfast show {shlex.quote(name)}{_option(kind)}"


def to_list(kind: AnyKind) -> str:
    return f"gripfast ls{_option(kind)}"


def _option(kind: AnyKind) -> str:
    return "" if kind == "lock" else f" --kind {kind}"
