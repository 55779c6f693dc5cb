"""A writer shows that it has read what it will add to, and has not written: by a file, which is there just as long.

It is made and removed at once, so it tells the truth of a process that is stopped. For the writers themselves.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def at_work(folder: str) -> Iterator[None]:
    sign = Path(folder, str(os.getpid()))
    sign.touch()
    try:
        yield
    finally:
        sign.unlink()
