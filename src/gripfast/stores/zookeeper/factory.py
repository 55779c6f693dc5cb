"""From a URL, or a caller's KazooClient, to stores, sync and async; no I/O."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote

from kazoo.client import KazooClient

from gripfast.core.ports import Store
from gripfast.errors import ConfigurationError
from gripfast.stores import AioStores, StoreFactory
from gripfast.stores.zookeeper.aio import AioLink
from gripfast.stores.zookeeper.blocking import BlockingLink
from gripfast.stores.zookeeper.driver import is_stopped, new_client
from gripfast.stores.zookeeper.session import SHARE, Session, Sessions
from gripfast.stores.zookeeper.spec import CAPABILITIES, OF_THE_DRIVER
from gripfast.stores.zookeeper.store import ZooKeeperStore

PORT = 2181
ROOT = "/gripfast"
ROUNDING = 0.002
"""Seconds: time-outs are whole milliseconds, and what is given must not be less than was requested."""
PATH_MOST = 1000
"""Characters: far below what one request may have."""
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")


class Probes(NamedTuple):
    """How to connect to one of the servers, to look at it; None for a caller's own client."""

    servers: Sequence[str]
    connect: Callable[[str, float], KazooClient]
    """To these servers, for this ttl; not started yet."""
    settings: Mapping[str, Any]


class ZooKeeperFactory(StoreFactory):
    capabilities = CAPABILITIES

    def __init__(
        self, where: str, make: Callable[[float], Session], is_one: bool, chroot: str, options: dict[str, Any]
    ) -> None:
        """Takes the options it knows out of `options`."""
        self.where = where
        self.probes: Probes | None = None
        self._sessions = functools.partial(Sessions, make, is_one)
        self.root = chroot + _checked_path("root", options.pop("root", ROOT))

    def blocking(self, request_timeout: float) -> Store:
        return ZooKeeperStore(BlockingLink(request_timeout), self._sessions(), self.root)

    def aio(self, request_timeout: float) -> AioStores:
        """The cleanup store ends the sessions: it has a thread of its own to wait for that."""
        sessions = self._sessions()
        store = ZooKeeperStore(AioLink(request_timeout), sessions, self.root, ends_sessions=False)
        cleanup = ZooKeeperStore(BlockingLink(request_timeout), sessions, self.root, store.nodes)
        return AioStores(store, cleanup)


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

    def connect(servers: str, ttl: float) -> KazooClient:
        return new_client(servers, ttl / SHARE + ROUNDING, settings)

    made = ZooKeeperFactory(
        where, lambda ttl: Session(where, connect(hosts, ttl), is_ours=True), False, chroot, options
    )
    made.probes = Probes(hosts.split(","), connect, settings)
    return made


def factory_of(client: KazooClient, options: dict[str, Any]) -> ZooKeeperFactory:
    """With the caller's own session, identity and ACLs."""
    chroot = client.chroot or ""
    where = "zookeeper://" + ",".join(f"{host}:{port}" for host, port in client.hosts) + chroot
    pid = os.getpid()

    def make(_: float) -> Session:
        if os.getpid() != pid:
            raise ConfigurationError(
                "this KazooClient belongs to the parent process: after a fork, connect() with a new KazooClient"
            )
        return Session(where, client, is_ours=is_stopped(client))

    return ZooKeeperFactory(where, make, True, chroot, options)


def _checked_hosts(hosts: str) -> str:
    each = [host for host in hosts.split(",") if host]
    if not each:
        raise ConfigurationError("the URL has no servers: write zookeeper://host:2181,host:2181/chroot")
    for host in each:
        port = host.rpartition("]")[2].rpartition(":")[2] if ":" in host.rpartition("]")[2] else str(PORT)
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigurationError(f"{host!r} is not a server's address: write host:port, and commas between servers")
    return ",".join(host if ":" in host.rpartition("]")[2] else f"{host}:{PORT}" for host in each)


def _checked_path(what: str, path: object) -> str:
    """By the rules of ZooKeeper: what breaks them is refused by kazoo or by the server, each in its own way."""
    if not isinstance(path, str) or not path.startswith("/") or len(path) > PATH_MOST:
        raise ConfigurationError(
            f"{what} must be a path such as {ROOT} with at most {PATH_MOST} characters, not {_short(path)}"
        )
    if any(step in ("", ".", "..") for step in path.split("/")[1:]):
        raise ConfigurationError(f"{what} must not have empty parts, '.' or '..': {path!r}")
    if found := _UNFIT.search(path):
        raise ConfigurationError(f"{what} has {found[0]!r} in it, which ZooKeeper does not allow: {path!r}")
    return path


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
