"""What to do about a package that is not installed: one text for all messages.

Gripfast is installed from a package index or from a clone. Only a reader knows which, so the text has both.
"""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """The line that adds an extra, for both ways."""
    from_a_clone, from_an_index = f"pip install '.[{extra}]'", f"pip install 'gripfast[{extra}]'"
    return f"in a clone of Gripfast run {from_a_clone} (once it is published: {from_an_index})"
