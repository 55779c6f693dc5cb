"""Waits for a lock, and meanwhile tells who has it: in one line, which on a terminal is kept up to date."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import click

import gripfast
from gripfast.cli.failure import redacted, say
from gripfast.cli.kinds import AnyKind, words_of
from gripfast.cli.signals import Signals
from gripfast.columns import clipped
from gripfast.durations import shown
from gripfast.errors import visible
from gripfast.interrupts.threads import Background

SILENT_FOR = 0.2
REFRESH = 1.0
_ERASE = "\r\x1b[K"


@contextmanager
def campaigning(
    client: gripfast.Client, name: str, signals: Signals, quiet: bool, kind: AnyKind = "lock", *, once: bool = False
) -> Iterator[None]:
    """Inside, the main thread waits for the lock. A signal that asks to end raises Interrupted there, so that it leaves
    the queue."""
    with nullcontext() if quiet else Telling(client, name, kind, once), signals.interrupting():
        yield


def obtain(client: gripfast.Client, lock: gripfast.Lock, wait: float | None, signals: Signals) -> gripfast.Lease:
    """The lease, or LockTimeout; Interrupted after it has left the queue."""
    with campaigning(client, lock.name, signals, quiet=False):
        return lock.acquire(wait=wait)


class Telling:
    """Speaks from a thread of its own while the main thread waits."""

    def __init__(self, client: gripfast.Client, name: str, kind: AnyKind = "lock", once: bool = False) -> None:
        self._client = client
        self._name = name
        self._kind = kind
        self._once = once
        self._began = time.monotonic()
        self._over = threading.Event()
        self._drawn = False
        self._thread = Background(self._tell, "gripfast-telling")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(REFRESH)  # it may be asking a store that does not answer
        if self._drawn:
            click.echo(_ERASE, err=True, nl=False)

    def _tell(self) -> None:
        if self._over.wait(SILENT_FOR):
            return
        if not sys.stderr.isatty():
            self._tell_once()
            return
        while not self._over.is_set():
            self._draw()
            self._over.wait(REFRESH)

    def _tell_once(self) -> None:
        """When somebody is seen to have it: that a free lock takes its time is not worth a line in a log."""
        while not (who := self._who()):
            if self._over.wait(REFRESH):
                return
        if not self._over.is_set():
            say(f"waiting for {self._name!r}, {who}")

    def _draw(self) -> None:
        waited = shown(time.monotonic() - self._began)
        who = self._who()
        line = f"gripfast: waiting {waited} for {self._name!r}, {who or 'which nobody seems to hold now'}"
        if (who or self._drawn) and not self._over.is_set():
            self._drawn = True
            click.echo(_ERASE + clipped(line, _width()), err=True, nl=False)

    def _who(self) -> str:
        """Or why nobody knows; empty if nobody is in the way."""
        try:
            info = self._client.inspect(self._name, self._kind)
        except gripfast.GripfastError as error:
            return redacted(visible(str(error)))
        words = words_of(self._kind)
        if info is None or words.has_room(info):
            return ""
        if self._once and isinstance(info, gripfast.LockInfo) and info.kept == "done":
            return ""  # once() does not wait for what is done
        return str(words.holder(info))


def _width() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns - 1
    except OSError:
        return 79
