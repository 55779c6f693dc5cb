"""Thread switches where they are wanted: another thread's work is done at one opcode of this one's, after the other.

Python may switch threads between any two opcodes. A test that waits for it to happen at the wrong one waits long; here
`meanwhile` runs right there, on the same thread, once for each opcode that the action has in files below `target`.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

MOST = 5000
"""Opcodes that an action may have."""


def at_every_opcode(
    target: Path, begin: Callable[[], tuple[Callable[[], object], Callable[[], object]]]
) -> Iterator[str]:
    """`begin` sets up a new scene and gives (action, meanwhile). Yields after each run: where the switch was."""
    for point in range(MOST):
        action, meanwhile = begin()
        where = _run(target, action, meanwhile, point)
        if where is None:
            return
        yield where
    raise AssertionError(f"more than {MOST} opcodes")


def _run(target: Path, action: Callable[[], object], meanwhile: Callable[[], object], point: int) -> str | None:
    """Where the switch was; None if the action ended before."""
    left, switched, below = point, None, f"{target}/"

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left, switched
        if switched is not None or not frame.f_code.co_filename.startswith(below):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            left -= 1
            if left < 0:
                switched = f"{frame.f_code.co_qualname}:{frame.f_lineno} +{frame.f_lasti}"
                sys.settrace(None)
                meanwhile()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return switched
