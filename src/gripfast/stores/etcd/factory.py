"""`etcd://`, and `etcds://` with TLS: from a URL to stores, sync and async; no I/O."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote

from gripfast.errors import ConfigurationError
from gripfast.stores import AioStores, StoreFactory
from gripfast.stores.etcd.blocking import BlockingLink
from gripfast.stores.etcd.dial import PORT, Dialer, tls_context
from gripfast.stores.etcd.keys import Keys
from gripfast.stores.etcd.meeting import Cluster
from gripfast.stores.etcd.requests import Requests
from gripfast.stores.etcd.spec import CAPABILITIES, OF_TLS
from gripfast.stores.etcd.store import EtcdStore

if TYPE_CHECKING:
    import ssl

ROOT = "gripfast/"
ROOT_MOST = 1000
"""Bytes."""
PORT_MOST = 65535
_HOST = re.compile(r"(\[[^\[\]@]+\]|[^\[\]:@,/]+)(?::([0-9]{1,5}))?")


class EtcdFactory(StoreFactory):
    capabilities = CAPABILITIES

    def __init__(
        self, endpoints: list[str], login: tuple[str, str] | None, tls: ssl.SSLContext | None, root: str = ROOT
    ) -> None:
        self.endpoints = endpoints
        self.login = login
        self.tls = tls
        self.keys = Keys(root)
        self.where = self.dialer(self.request_timeout).where

    def blocking(self, request_timeout: float) -> EtcdStore:
        return EtcdStore(self._requests(BlockingLink(self.dialer(request_timeout))))

    def aio(self, request_timeout: float) -> AioStores:
        """Clean-ups have a connection of their own, opened when needed and closed again."""
        from gripfast.stores.etcd.aio import AioLink  # asyncio, which a lock for threads does not need

        link = AioLink(self.dialer(request_timeout))
        requests = self._requests(link)
        store = EtcdStore(requests)
        aside = BlockingLink(self.dialer(request_timeout), idle_most=0, at_end=link.close_soon)
        return AioStores(store, EtcdStore(Requests(aside, requests.cluster, self.keys), store.records))

    def _requests(self, link: Any) -> Requests:
        return Requests(link, Cluster(self.where), self.keys)

    def dialer(self, request_timeout: float) -> Dialer:
        return Dialer(self.endpoints, request_timeout, self.login, self.tls)


def factory(url: SplitResult, options: dict[str, Any]) -> EtcdFactory:
    login, endpoints = _login_and_endpoints(url)
    if url.path.strip("/"):
        raise ConfigurationError(
            f"an etcd URL has no path: write ?root={url.path.strip('/')}/ if its locks are to have keys that begin so"
        )
    given = {name: options.pop(name) for name in list(options) if name in OF_TLS}
    if url.scheme == "etcd" and given:
        raise ConfigurationError(f"{', '.join(sorted(given))}: these are for TLS, so write etcds:// instead of etcd://")
    root = _checked_root(options.pop("root", ROOT))
    return EtcdFactory(endpoints, login, _tls(given) if url.scheme == "etcds" else None, root)


def _checked_root(root: object) -> str:
    is_text = isinstance(root, str) and root.isprintable() and len(root.encode(errors="replace")) <= ROOT_MOST
    if not is_text or (root and not str(root).endswith("/")) or "%" in str(root):
        raise ConfigurationError(
            f"root must be empty, or a text that ends with a slash, such as {ROOT}, without % and with at most "
            f"{ROOT_MOST} bytes, not {root!r:.80}"
        )
    return str(root)


def _tls(given: dict[str, Any]) -> ssl.SSLContext:
    if "keyfile" in given and "certfile" not in given:
        raise ConfigurationError("keyfile is the private key of a certificate: write certfile=…, too")
    return tls_context(given.get("ca"), given.get("certfile"), given.get("keyfile"), given.get("check_hostname", True))


def _login_and_endpoints(url: SplitResult) -> tuple[tuple[str, str] | None, list[str]]:
    login, _, netloc = url.netloc.rpartition("@")
    found = [_HOST.fullmatch(host) for host in netloc.split(",")]
    endpoints = [f"{each[1]}:{each[2] or PORT}" for each in found if each is not None]
    is_wrong = len(endpoints) < len(found) or any(int(each.rpartition(":")[2]) > PORT_MOST for each in endpoints)
    if is_wrong or "," in login:
        raise ConfigurationError(
            f"the URL can't be read: write it as {url.scheme}://host:{PORT},host,[::1]:{PORT}, with user:password@ "
            "before the first host (it applies to all); write a comma in these two as %2C"
        )
    user, _, password = login.partition(":")
    once = list(dict.fromkeys(endpoints))  # to leave a member leads to another one
    return ((unquote(user), unquote(password)) if user else None), once
