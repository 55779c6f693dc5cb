"""Durations as text: one grammar for the options of URLs and the flags of the command line. In Python, a duration is a
number of seconds."""

from __future__ import annotations

import re

EXAMPLES = "30 (seconds), 1.5s, 500ms, 2m, 1h or 7d"
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)?")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def read(text: str) -> float:
    """In seconds. Raises ValueError, whose message says what may be written."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"must be a duration like {EXAMPLES}, not {text!r}")
    number, unit = float(found[1]), found[2]
    return number / 1000 if unit == "ms" else number * _SECONDS[unit or "s"]


def shown(seconds: float) -> str:
    """For people, so two units at most: 0.4s, 12s, 3m 05s, 2h 10m, 3d 04h."""
    if seconds < 1:
        return f"{max(0.0, seconds):.1f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02}m"
    return f"{whole // 86400}d {whole % 86400 // 3600:02}h"
