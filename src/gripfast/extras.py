"""What to do about a package that is not installed: one text for whoever finds out.

Gripfast is installed from a package index or from a clone. Only a reader knows which, so both lines are told.
"""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """The line that adds an extra, for both ways."""
    return f"pip install 'gripfast[{extra}]', or in a clone of Gripfast: pip install '.[{extra}]'"
