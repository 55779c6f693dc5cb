"""The part of a store below one prefix: whether something is there, and how it is removed, tokens and all.

Clients can't do that: they list and release what is held, and a token outlives its lock on purpose. So each kind of
engine is asked in its own words, on a connection as `gripfast doctor` makes it. What an engine needs for itself (the
number of its layout, the birth marker of a node of Redlock) stays. Tables and files that a run has made go, unless
somebody else uses them meanwhile.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gripfast.api import schema
from gripfast.api.client import Client
from gripfast.api.config import Config
from gripfast.errors import StoreUnavailable
from gripfast.machine import boottime
from gripfast.stores.faults import Fault, LinkDown

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from gripfast.stores.redis.dial import Dialer
    from gripfast.stores.zookeeper.factory import ZooKeeperFactory

PAGE = "1000"
SPECIAL = re.compile(rb"([\\*?\[\]^-])")
_CHECK = "check whether it is overloaded, stopped or cut off"
KINDS: Any = ("lock", "semaphore", "rwlock")


class Space:
    """Of a store that another package has added: what is held there."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.timeout = max(1.0, config.patience.request_timeout)

    def found(self) -> list[str]:
        """What there is."""
        return [name for _, name in self._held()]

    def clear(self) -> None:
        with Client(self.config) as client:
            for kind, name in self._held():
                client.force_release(name, "gripfast verify has ended", kind=kind)

    def _held(self) -> list[tuple[Any, str]]:
        with Client(self.config) as client:
            can = client.capabilities
            has = {"lock": can.lists, "semaphore": can.semaphores, "rwlock": can.rwlocks}
            return [(kind, info.name) for kind in KINDS if has[kind] for info in client.list(kind=kind)]


class RedisSpace(Space):
    def found(self) -> list[str]:
        return [key for dialer in self._dialers() for key in self._keys(dialer)]

    def clear(self) -> None:
        from gripfast.stores.redis.doctor import ask

        for dialer in self._dialers():
            if keys := self._keys(dialer):  # one by one: on a Cluster they are in different slots
                ask(dialer, [("UNLINK", key) for key in keys])

    def _dialers(self) -> Sequence[Dialer]:
        """Of all servers that have a part of the locks."""
        factory: Any = self.config.factory
        if self.config.kind == "redlock":
            return [*factory._dialers(self.timeout)]
        if self.config.kind != "cluster":
            return [factory.dialer(self.timeout)]
        from gripfast.stores.cluster.doctor import gather
        from gripfast.stores.doctor import Terms

        nodes = gather(factory, Terms(self.config.ttl, self.timeout)).primaries
        return [factory._dialer(self.timeout, node.address) for node in nodes]

    def _keys(self, dialer: Dialer) -> list[str]:
        from gripfast.stores.redis.doctor import ask

        prefix, cursor, keys = self.config.prefix.encode(), "0", set[str]()
        pattern = b"*" + SPECIAL.sub(rb"\\\1", prefix) + b"*"
        while True:
            (reply,) = ask(dialer, [("SCAN", cursor, "MATCH", pattern.decode(), "COUNT", PAGE)])
            if isinstance(reply, Exception):
                raise StoreUnavailable(f"{dialer.where} does not let this user look for keys: {reply}; allow SCAN")
            keys.update(key.decode() for key in reply[1] if is_below(prefix, key))
            if (cursor := reply[0].decode()) == "0":
                return sorted(keys)


def is_below(prefix: bytes, key: bytes) -> bool:
    """Whether it is the key of a lock with this prefix, or belongs to one."""
    from gripfast.stores.redis.keys import MARK, side_key

    tag, is_side, rest = key.partition(MARK)
    if not is_side:
        return key.startswith(prefix)
    ends = [found.start() for found in re.finditer(b":", rest)]
    parts = [(tag[1:-1], rest), *((rest[end + 1 :], rest[:end]) for end in ends)]
    return any(name.startswith(prefix) and side_key(name, kind) == key for name, kind in parts)


class _Watched:
    """The texts of an engine. It remembers whether somebody wanted those that make the tables."""

    def __init__(self, scripts: Any) -> None:
        self._scripts = scripts
        self.made = False

    def __getattr__(self, name: str) -> Any:
        self.made = self.made or name == "SCHEMA"
        return getattr(self._scripts, name)


class SqlSpace(Space):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        engine = "postgresql" if config.kind == "postgres" else "mysql"
        self._is_postgres = config.kind == "postgres"
        self._tables = re.findall(r"CREATE TABLE IF NOT EXISTS (\w+)", schema.locks(engine))
        factory: Any = config.factory
        factory.dialect.scripts = self._scripts = _Watched(factory.dialect.scripts)
        with self._asking():
            pass  # a connection makes the tables, if there are none

    def found(self) -> list[str]:
        with self._asking() as ask:
            rows = [ask(f"SELECT name FROM {table} WHERE {self._is_ours}") or () for table in self._tables]
        return sorted({bytes(row[0]).decode(errors="replace") for each in rows for row in each})

    def clear(self) -> None:
        with self._asking() as ask:
            for table in reversed(self._tables):
                ask(f"DELETE FROM {table} WHERE {self._is_ours}")
            counts = {table: ask(f"SELECT count(*) FROM {table}") or [(b"0",)] for table in self._tables}
            is_unused = all(int(rows[0][0]) <= LAYOUT_ROWS.get(table, 0) for table, rows in counts.items())
            if self._scripts.made and is_unused:
                ask(f"DROP TABLE IF EXISTS {', '.join(self._tables)}")

    @property
    def _is_ours(self) -> str:
        return "starts_with(name, :prefix)" if self._is_postgres else "LEFT(name, LENGTH(:prefix)) = :prefix"

    @contextmanager
    def _asking(self) -> Iterator[Any]:
        """A function that gives the rows of a statement; None if the server refuses it, because there is no such
        table."""
        from gripfast.machine import boottime
        from gripfast.stores.sql.descriptors import await_answer
        from gripfast.stores.sql.ports import Refusal
        from gripfast.stores.sql.statement import Query, Statement

        factory: Any = self.config.factory
        prefix = self.config.prefix if self._is_postgres else self.config.prefix.encode()
        with closing(factory.dialect.dial(self.timeout, is_shared=True)) as wire:

            def ask(sql: str) -> Sequence[Any] | None:
                sent = wire.send([Query(Statement(sql), {"prefix": prefix})])
                answer = await_answer(wire, sent, boottime() + self.timeout)
                if answer is None:
                    raise StoreUnavailable(f"{factory.where} did not answer in {self.timeout:g} s: {_CHECK}")
                return None if isinstance(answer, Refusal) else answer[-1].rows

            yield ask


LAYOUT_ROWS = {"gripfast_lock": 1, "gripfast_grant": 1}
"""The number of the layout is a row there."""


class SqliteSpace(Space):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._path = Path(config.factory.where)
        self._is_ours = not self._path.exists()

    def found(self) -> list[str]:
        with self._tables() as (file, tables):
            names = [file.execute(f"SELECT name FROM {table} WHERE {_STARTS}", self._prefix) for table in tables]
            return sorted({name for rows in names for (name,) in rows})

    def clear(self) -> None:
        with self._tables() as (file, tables):
            for table in tables:
                file.execute(f"DELETE FROM {table} WHERE {_STARTS}", self._prefix)
            file.commit()
            is_unused = not any(file.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() for table in tables)
        if self._is_ours and is_unused:
            self._remove()

    def _remove(self) -> None:
        from gripfast.stores.sqlite.mailbox import _folders

        for folder in _folders(self._path):
            for socket in folder.glob("*"):
                socket.unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                folder.rmdir()
        for ending in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + ending).unlink(missing_ok=True)

    @property
    def _prefix(self) -> dict[str, str]:
        return {"prefix": self.config.prefix}

    @contextmanager
    def _tables(self) -> Iterator[tuple[sqlite3.Connection, list[str]]]:
        """Those that have names; none if there is no file."""
        where = f"file:{self._path.as_posix()}?mode=rw" if self._path.exists() else ":memory:"
        with closing(sqlite3.connect(where, timeout=self.timeout, uri=True)) as file:
            tables = file.execute(
                "SELECT t.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c ON c.name = 'name' "
                "WHERE t.type = 'table' AND t.name LIKE 'gripfast~_%' ESCAPE '~'"
            )
            yield file, [name for (name,) in tables]


_STARTS = "substr(name, 1, length(:prefix)) = :prefix"


class ZooKeeperSpace(Space):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._factory = cast("ZooKeeperFactory", config.factory)
        with self._client() as client:
            self._is_ours = client.exists(self._factory.root) is None

    def found(self) -> list[str]:
        with self._client() as client:
            return self._paths(client)

    def clear(self) -> None:
        from kazoo.exceptions import NoNodeError

        with self._client() as client:
            for path in self._paths(client):
                with suppress(NoNodeError):
                    client.delete(path, recursive=True)
            if self._is_ours and not self._paths(client, ""):
                with suppress(NoNodeError):
                    client.delete(self._factory.root, recursive=True)

    def _paths(self, client: KazooClient, prefix: str | None = None) -> list[str]:
        """Of all names with the prefix."""
        from kazoo.exceptions import NoNodeError

        from gripfast.stores.zookeeper.permit_protocol import above
        from gripfast.stores.zookeeper.protocol import decoded

        root, prefix, paths = self._factory.root, self.config.prefix if prefix is None else prefix, list[str]()
        for parent in (root, above(root, "semaphore"), above(root, "rwlock")):
            with suppress(NoNodeError):
                names = [name for name in client.get_children(parent) if not re.match("%[^0-9A-F]", name)]
                paths += [f"{parent}/{name}" for name in names if decoded(name).startswith(prefix)]
        return sorted(paths)

    @contextmanager
    def _client(self) -> Iterator[KazooClient]:
        from kazoo.handlers.threading import KazooTimeoutError

        probes = self._factory.probes
        assert probes is not None  # there is a URL
        client = probes.connect(",".join(probes.servers), self.config.ttl)
        try:
            client.start(timeout=self.timeout)
            yield client
        except KazooTimeoutError:
            raise StoreUnavailable(f"{self._factory.where} did not answer: {_CHECK}") from None
        finally:
            client.stop()
            client.close()


class EtcdSpace(Space):
    def found(self) -> list[str]:
        from gripfast.stores.etcd.messages import RangeRequest

        kvs = self._ask(RangeRequest(*self._range, keys_only=True)).kvs
        return [kv.key.decode(errors="replace") for kv in kvs]

    def clear(self) -> None:
        from gripfast.stores.etcd.messages import DeleteRangeRequest

        self._ask(DeleteRangeRequest(*self._range))

    @property
    def _range(self) -> tuple[bytes, bytes]:
        from gripfast.stores.etcd.keys import after

        factory: Any = self.config.factory
        start = factory.keys.start(self.config.prefix)
        return start, after(start)

    def _ask(self, request: Any) -> Any:
        from gripfast.stores.etcd.blocking import BlockingLink
        from gripfast.stores.etcd.doctor import run
        from gripfast.stores.etcd.faults import fault_of
        from gripfast.stores.etcd.link import Refusal

        factory: Any = self.config.factory
        link = BlockingLink(factory.dialer(self.timeout))
        try:
            answer = run(link.call(request, boottime() + self.timeout))
        finally:
            run(link.close())
        fault = fault_of(answer) if isinstance(answer, Refusal) else answer
        if isinstance(fault, Fault):
            raise fault.error
        return answer


_SPACES: dict[str, type[Space]] = {
    **dict.fromkeys(("redis", "valkey", "sentinel", "cluster", "redlock"), RedisSpace),
    **dict.fromkeys(("postgres", "mysql"), SqlSpace),
    "sqlite": SqliteSpace,
    "zookeeper": ZooKeeperSpace,
    "etcd": EtcdSpace,
}


@contextmanager
def reaching() -> Iterator[None]:
    """An engine that can't be reached is told as clients tell it."""
    try:
        yield
    except LinkDown as error:
        raise error.fault.error from None


def space_of(config: Config) -> Space:
    """Of what is below the prefix of this configuration. It remembers what there was at first."""
    with reaching():
        return _SPACES.get(config.kind, Space)(config)
