"""From `files:///folder` and options to stores, sync and async; no I/O."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote

from gripfast.core import rules
from gripfast.errors import ConfigurationError
from gripfast.stores import AioStores
from gripfast.stores.local import BlockingLocalStore, LocalStore, on_a_thread
from gripfast_files.engine import FilesEngine
from gripfast_files.spec import CAPABILITIES

PACE = 0.02


class FilesFactory:
    capabilities = CAPABILITIES
    request_timeout = 5.0
    max_ttl = rules.TTL_MAX
    prefix = ""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self.where = f"files://{folder}"
        self._folder = folder
        self._pace = rules.checked_patience("pace", options.pop("pace", PACE))

    def blocking(self, request_timeout: float) -> LocalStore:
        return BlockingLocalStore(self._engine(request_timeout))

    def aio(self, request_timeout: float) -> AioStores:
        return on_a_thread(self._engine(request_timeout), "gripfast-files", request_timeout)

    def _engine(self, request_timeout: float) -> FilesEngine:
        return FilesEngine(self._folder, self._pace, request_timeout)


def factory(url: SplitResult, options: dict[str, Any]) -> FilesFactory:
    if url.netloc or not url.path.strip("/"):
        raise ConfigurationError("a URL of this store names a folder with three slashes: files:///var/lib/app/locks")
    return FilesFactory(Path(unquote(url.path)), options)
