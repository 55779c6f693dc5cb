"""From a URL, or somebody's KazooClient, to stores of either colour; no I/O."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, unquote

from kazoo.client import KazooClient
from kazoo.security import CREATOR_ALL_ACL

from gripfast.core import rules
from gripfast.core.ports import Store
from gripfast.errors import ConfigurationError
from gripfast.guard import Guard
from gripfast.stores import AioStores
from gripfast.stores.zookeeper.aio import AioLink
from gripfast.stores.zookeeper.blocking import BlockingLink
from gripfast.stores.zookeeper.driver import new_client
from gripfast.stores.zookeeper.session import SHARE, Session
from gripfast.stores.zookeeper.spec import CAPABILITIES, OF_THE_DRIVER
from gripfast.stores.zookeeper.store import ZooKeeperStore

PORT = 2181
ROOT = "/gripfast"
REQUEST_TIMEOUT = 5.0
ROUNDING = 0.002
"""Seconds: time-outs are whole milliseconds, and what is got must not be less than was asked for."""
TTL_LEAST = 0.75
"""Seconds: sessions for less are lost by a hiccup of the machine. Leases for less end by themselves, in time."""
SESSIONS_MOST = 8
"""Sessions of a client: one for each ttl that its locks have."""

PATH_MOST = 1000
"""Characters: far below what one request may have."""
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")


class Sessions:
    """By ttl: the time-out of a session is what a lock with that ttl asks for."""

    def __init__(self, make: Callable[[float], Session], is_one: bool) -> None:
        self._make = make
        self._is_one = is_one
        self._making = Guard()
        self._by_ttl: dict[float, Session] = {}

    def __call__(self, ttl: float) -> Session:
        if self._is_one or (not ttl and self._by_ttl):
            ttl = next(iter(self._by_ttl), ttl)
        ttl = max(ttl or rules.TTL_DEFAULT, TTL_LEAST)
        found = self._by_ttl.get(ttl)
        return self._making.run(self._add, ttl) if found is None else found

    def _add(self, ttl: float) -> Session:
        if ttl in self._by_ttl:
            return self._by_ttl[ttl]
        if len(self._by_ttl) >= SESSIONS_MOST:
            fitting = [each for each in self._by_ttl if each <= ttl] or list(self._by_ttl)
            return self._by_ttl[max(fitting)]
        session = self._by_ttl[ttl] = self._make(ttl)
        return session

    def stop(self) -> None:
        for session in list(self._by_ttl.values()):
            session.stop()


class ZooKeeperFactory:
    capabilities = CAPABILITIES
    request_timeout = REQUEST_TIMEOUT
    max_ttl = rules.TTL_MAX
    prefix = ""

    def __init__(
        self,
        where: str,
        make: Callable[[float], Session],
        is_one: bool,
        acl: Callable[[], Any],
        options: dict[str, Any],
    ):
        """Takes the options it knows out of `options`."""
        self.where = where
        self._make = make
        self._is_one = is_one
        self._acl = acl
        self._root = _checked_path("root", options.pop("root", ROOT))

    def blocking(self, request_timeout: float) -> Store:
        sessions = Sessions(self._make, self._is_one)
        link = BlockingLink(self.where, request_timeout)
        return _Closing(link, sessions, self._root, self._acl)

    def aio(self, request_timeout: float) -> AioStores:
        sessions = Sessions(self._make, self._is_one)
        aside_link = BlockingLink(self.where, request_timeout)
        store = ZooKeeperStore(AioLink(self.where, request_timeout), sessions, self._root, self._acl)
        aside = _Closing(aside_link, sessions, self._root, self._acl, store.nodes)
        return AioStores(store, aside)


class _Closing(ZooKeeperStore):
    """The one that ends the sessions: it has a thread of its own to wait for that."""

    async def close(self) -> None:
        self._sessions.stop()  # type: ignore[attr-defined]


def factory(url: SplitResult, options: dict[str, Any]) -> ZooKeeperFactory:
    login, _, hosts = url.netloc.rpartition("@")
    hosts = _checked_hosts(hosts)
    chroot = url.path.rstrip("/") and _checked_path("the path of the URL", url.path.rstrip("/"))
    where = f"zookeeper://{hosts}{chroot}"
    settings: dict[str, Any] = {name: options.pop(name) for name in list(options) if name in OF_THE_DRIVER}
    if settings.get("use_ssl") and settings.get("verify_certs", True):
        settings.setdefault("check_hostname", True)  # kazoo would take any name's certificate
    if login:
        settings["auth_data"] = [("digest", unquote(login))]

    def make(ttl: float) -> Session:
        return Session(where, lambda: new_client(hosts + chroot, ttl / SHARE + ROUNDING, settings), is_ours=True)

    return ZooKeeperFactory(where, make, False, lambda: CREATOR_ALL_ACL if login else None, options)


def factory_of(client: KazooClient, options: dict[str, Any]) -> ZooKeeperFactory:
    """With the caller's own session, identity and ACLs."""
    where = "zookeeper://" + ",".join(f"{host}:{port}" for host, port in client.hosts) + (client.chroot or "")
    pid = os.getpid()

    def make(_: float) -> Session:
        if os.getpid() != pid:
            raise ConfigurationError(
                "this KazooClient belongs to the process that was forked: connect() with a new one"
            )
        return Session(where, lambda: client, is_ours=client._stopped.is_set())  # otherwise it runs, connected or not

    def acl() -> Any:
        """As the client is when a node is made: an identity may be added later."""
        has_identity = client.auth_data or client._connection.sasl_options
        return client.default_acl or (CREATOR_ALL_ACL if has_identity else None)

    return ZooKeeperFactory(where, make, True, acl, options)


def _checked_hosts(hosts: str) -> str:
    each = [host for host in hosts.split(",") if host]
    if not each:
        raise ConfigurationError("a ZooKeeper URL names its servers: zookeeper://host:2181,host:2181/chroot")
    for host in each:
        port = host.rpartition("]")[2].rpartition(":")[2] if ":" in host.rpartition("]")[2] else str(PORT)
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigurationError(f"{host!r} is no server: write host:port, with commas between several")
    return ",".join(host if ":" in host.rpartition("]")[2] else f"{host}:{PORT}" for host in each)


def _checked_path(what: str, path: object) -> str:
    """By the rules of ZooKeeper: what breaks them is refused by kazoo or by the server, each in its own way."""
    if not isinstance(path, str) or not path.startswith("/") or len(path) > PATH_MOST:
        raise ConfigurationError(
            f"{what} must be a path such as {ROOT}, of {PATH_MOST} characters at most: {_short(path)}"
        )
    if any(step in ("", ".", "..") for step in path.split("/")[1:]):
        raise ConfigurationError(f"{what} must be a path without empty steps, '.' and '..': {path!r}")
    if found := _UNFIT.search(path):
        raise ConfigurationError(f"{what} has {found[0]!r} in it, which ZooKeeper does not allow: {path!r}")
    return path


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
