"""`sqlite:///relative.db`, `sqlite:////absolute.db`; without any URL, the file in the user's state directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, unquote

from gripfast.errors import ConfigurationError
from gripfast.stores import AioStores, StoreFactory
from gripfast.stores.local import BlockingLocalStore, LocalStore, on_a_thread
from gripfast.stores.sqlite.engine import SqliteEngine, capabilities
from gripfast.stores.sqlite.files import default_path


class SqliteFactory(StoreFactory):
    def __init__(self, path: Path, synchronous: str) -> None:
        self.where = str(path)
        self.capabilities = capabilities(synchronous)
        self._path = path
        self._synchronous = synchronous

    def blocking(self, request_timeout: float) -> LocalStore:
        return BlockingLocalStore(self._engine(request_timeout))

    def aio(self, request_timeout: float) -> AioStores:
        return on_a_thread(self._engine(request_timeout), "gripfast-sqlite", request_timeout)

    def _engine(self, request_timeout: float) -> SqliteEngine:
        return SqliteEngine(self._path, self._synchronous, request_timeout)


def factory(url: SplitResult, options: dict[str, Any]) -> SqliteFactory:
    if url.netloc or not url.path.strip("/"):
        raise ConfigurationError(
            "a sqlite URL names a file with three or four slashes: sqlite:///relative.db or sqlite:////absolute/path.db"
        )
    if url.path == "/:memory:":
        raise ConfigurationError("a sqlite URL names a file: for locks in memory write memory://name")
    synchronous = options.pop("synchronous", "normal")
    # Absolute from the start: the process may change its folder later.
    path = Path(os.path.abspath(unquote(url.path[1:])))
    return SqliteFactory(path, synchronous)


def default_url() -> str:
    return f"sqlite:///{quote(default_path().as_posix())}"
