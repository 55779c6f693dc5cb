"""Waiting for descriptors, for whatever blocks."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable

from gripfast.machine import boottime
from gripfast.stores.sql.ports import Answer, Wire

ENDED = getattr(select, "POLLRDHUP", 0) | getattr(select, "POLLHUP", 0) | getattr(select, "POLLERR", 0)


def is_ready(fd: int, seconds: float, to_write: bool = False) -> bool:
    """Whether it can be read (or written) within so many seconds."""
    return fd < 0 or bool(new_poll(fd, to_write)(max(0.0, seconds) * 1000))


def new_poll(fd: int, to_write: bool = False) -> Callable[[float], object]:
    """Made once for a descriptor: takes milliseconds, and is true if the descriptor can be read by then."""
    if not hasattr(select, "poll"):
        return lambda ms: any(select.select([fd], [fd] if to_write else [], [], ms / 1000))
    poll = select.poll()
    poll.register(fd, select.POLLIN | (select.POLLOUT if to_write else 0))
    return poll.poll


def await_answer(wire: Wire, is_written: bool, until: float) -> Answer | None:
    """To what was just sent; None if there is none by then. OSError if the connection has ended."""
    while (answer := wire.receive()) is None:
        if not is_ready(wire.fileno(), until - boottime(), not is_written):
            return None
        is_written = is_written or wire.flush()
    return answer


def ended(descriptors: Iterable[int]) -> set[int]:
    """Those whose other side has ended."""
    known = [fd for fd in descriptors if fd >= 0]
    if not known or not hasattr(select, "poll"):
        return set()
    poller = select.poll()
    for fd in known:
        poller.register(fd, ENDED)
    return {fd for fd, event in poller.poll(0) if event & (ENDED | select.POLLNVAL)}
