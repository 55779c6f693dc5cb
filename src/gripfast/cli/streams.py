"""Standard streams that were closed before we began (`gripfast run … >&-`).

Their numbers are free, so the next file or socket would get one, and what is meant for the user would be written into
it. So they are opened on nothing, before anything else is. The command does not inherit that: what was closed for us is
closed for it, as if it had been started without us.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO


def open_closed_streams() -> None:
    # In this order: the system gives out the lowest free number.
    for number, name, mode in ((0, "stdin", os.O_RDONLY), (1, "stdout", os.O_WRONLY), (2, "stderr", os.O_WRONLY)):
        if not _is_open(number):
            os.open(os.devnull, mode)
        if getattr(sys, name) is None:
            setattr(sys, name, _text(number, mode))


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _text(number: int, mode: int) -> TextIO:
    return open(number, "r" if mode == os.O_RDONLY else "w", encoding="utf-8", closefd=False)
