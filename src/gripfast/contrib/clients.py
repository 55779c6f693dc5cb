"""Where the locks of a framework are: in the store that its own settings name, or $GRIPFAST_URL.

Workers and schedulers run on several machines. So nothing falls back to the embedded file of one machine here: two
machines would both get the lock, and nobody would be told.
"""

from __future__ import annotations

import os
from typing import Any

import gripfast
from gripfast.errors import ConfigurationError


def client_at(url: Any, setting: str) -> gripfast.Client:
    """A client of this URL, or of $GRIPFAST_URL if there is none. `setting`: where the user writes the URL."""
    url = url or os.environ.get("GRIPFAST_URL")
    if not url:
        raise ConfigurationError(
            f"nothing says where the locks are: write {setting}, or set $GRIPFAST_URL. All machines have to reach it; "
            "a file, such as sqlite:////var/lib/locks.db, is enough for one machine"
        )
    return gripfast.connect(url)
