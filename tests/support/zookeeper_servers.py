"""Real ZooKeeper servers for tests. `support/server_process.py` tells how they start and end.

`zookeeper_server()` is the one that most tests use, all workers of a run the same, each test with a `lock_space()` of
its own. A test that stops, kills or configures its server starts one for itself:

    with ZooKeeperServer("tickTime=500") as server:

An `Ensemble` is three servers that elect a leader. What they say to each other goes through proxies, one for each way
from one to another, so that one of them can be cut off from the others while its clients still reach it.
"""

import contextlib
import functools
import itertools
import os
import shutil
import signal
import socket
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Generic, NamedTuple, Self, TypeVar
from urllib.parse import urlencode

from kazoo.client import KazooClient

from support.ports import reserved_port
from support.proxy import Proxy
from support.server_process import HOST, ServerProcess, shared
from support.waiting import until

T = TypeVar("T")

JARS = Path(os.environ.get("ZOOKEEPER_JARS", "/usr/share/java"))
"""`make doctor-next` names those of a newer version."""
CLASSES = ("zookeeper-jute", "slf4j-api", "slf4j-simple", "netty-all", "metrics-core", "snappy-java", "zookeeper")
"""All that a server needs: a class path of everything there is takes the virtual machine longer to start with. Its own
jar comes last, because it names others by where Debian installs them, and these may be of another version."""
QUICK_START = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
MEMBERS = 3
INNER_PORTS = range(14000, 20000)
"""Between servers of an ensemble; none that any other server or proxy of the tests would take meanwhile."""
SETTINGS = {
    "tickTime": 100,
    "minSessionTimeout": 10,  # any ttl that a lock may have
    "maxSessionTimeout": 200_000_000,
    "initLimit": 50,
    "syncLimit": 10,
    "maxClientCnxns": 0,
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "*",
    "forceSync": "no",  # kill -9 leaves what the operating system has been given
    "preAllocSize": 1024,
}


class Member(NamedTuple):
    """What a server of an ensemble knows of it."""

    number: int
    servers: tuple[str, ...]
    """All, as they stand in its configuration."""


class ZooKeeperServer(ServerProcess):
    """`settings` as they stand in its configuration: `tickTime=500`."""

    package_user = None
    program = "zookeeper"
    ends_at = signal.SIGTERM

    def __init__(self, *settings: str, member: Member | None = None, shared_folder: Path | None = None) -> None:
        self._member = member
        super().__init__(*settings, shared_folder=shared_folder)

    # Who it is --------------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        return self.url_with()

    def url_with(self, **options: object) -> str:
        """For `gripfast.connect`, with these options in its query."""
        return url_of([self.address], **options)

    def lock_space(self, **options: object) -> str:
        """The URL of locks that nobody else uses, below a node of their own."""
        return self.url_with(root=new_root(), **options)

    # What is asked of it ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def client(self, timeout: float = 10.0) -> Iterator[KazooClient]:
        """A connected one, with this time-out of its session."""
        with connected(self.address, timeout) as client:
            yield client

    def four(self, word: str) -> str:
        """The answer to one of its words of four letters; nothing if it does not answer."""
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), timeout=1.0) as connection:
            connection.sendall(word.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        return ""

    @property
    def mode(self) -> str:
        """leader, follower or standalone; nothing while it serves nobody."""
        lines = (line.partition(": ") for line in self.four("srvr").splitlines())
        return next((value for name, _, value in lines if name == "Mode"), "")

    @property
    def connections(self) -> int:
        """Of clients, but the one who asks."""
        return sum(line.startswith(" /") for line in self.four("cons").splitlines()) - 1

    # Starting ---------------------------------------------------------------------------------------------------------

    def _make_data(self) -> None:
        self.folder.mkdir(exist_ok=True)
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        (self.folder / "data").mkdir()
        if self._member:
            (self.folder / "data" / "myid").write_text(str(self._member.number), encoding="utf-8")

    def _command_line(self) -> list[str]:
        configuration = self.folder / "configuration"
        configuration.write_text("\n".join([*self._lines(), *self._settings, ""]), encoding="utf-8")
        classes = ":".join(str(JARS / f"{name}.jar") for name in CLASSES)
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return ["java", *QUICK_START, "-cp", classes, main, str(configuration)]

    def _lines(self) -> list[str]:
        place = {"dataDir": self.folder / "data", "clientPort": self.port, "clientPortAddress": HOST}
        given = {setting.partition("=")[0] for setting in self._settings}
        return [
            *(f"{name}={value}" for name, value in (SETTINGS | place).items() if name not in given),
            *(self._member.servers if self._member else ()),
        ]

    def _answers(self) -> bool:
        """Of an ensemble, it need not serve anyone yet."""
        # Its own log first: whoever answers at that port might be someone else's server. And asked before it has read
        # its data, it stumbles, and leaves the connection open.
        if f"binding to port /{self.address}" not in self.log:
            return False
        return bool(self.four("ruok") if self._member else "PrepRequestProcessor" in self.log and self.mode)


@contextlib.contextmanager
def connected(addresses: str, timeout: float = 10.0) -> Iterator[KazooClient]:
    client = KazooClient(hosts=addresses, timeout=timeout)
    try:
        client.start(timeout=20)
        yield client
    finally:
        client.stop()
        client.close()


def url_of(addresses: Sequence[str], **options: object) -> str:
    query = urlencode(options, safe="/:")
    return f"zookeeper://{','.join(addresses)}" + (f"?{query}" if query else "")


def new_root() -> str:
    return f"/locks-{uuid.uuid4().hex}"


@functools.cache
def zookeeper_server() -> ZooKeeperServer:
    """The server of this test run, started when it is first asked for. Never stop, pause or configure it."""
    return shared(ZooKeeperServer)


# Ensembles ------------------------------------------------------------------------------------------------------------


class Ports(NamedTuple, Generic[T]):
    """Of a server, where the others find it; or the proxies before them."""

    quorum: T
    election: T


class Ensemble:
    """Three servers, all of them serving from the moment this is made."""

    def __init__(self, *settings: str) -> None:
        self._closing = contextlib.ExitStack()
        self._ways: dict[tuple[int, ...], Ports[Proxy]] = {}
        """By who goes to whom: numbers of servers, from 0."""
        self.servers: list[ZooKeeperServer] = []
        try:
            self._start(settings)
        except BaseException:
            self.close()
            raise

    def lock_space(self, **options: object) -> str:
        """The URL of locks that nobody else uses, by way of any of the servers."""
        return url_of([server.address for server in self.servers], root=new_root(), **options)

    @contextlib.contextmanager
    def client(self, timeout: float = 10.0) -> Iterator[KazooClient]:
        with connected(",".join(server.address for server in self.servers), timeout) as client:
            yield client

    # Who is what ------------------------------------------------------------------------------------------------------

    def leader(self, within: float = 20.0) -> ZooKeeperServer:
        """Once there is one, and another that follows it."""
        until(lambda: "follower" in self.modes() and "leader" in self.modes(), within=within)
        return next(server for server in self.servers if server.mode == "leader")

    def follower(self) -> ZooKeeperServer:
        """One of them."""
        return next(server for server in self.servers if server.mode == "follower")

    def modes(self) -> list[str]:
        return [server.mode for server in self.servers]

    def all_serve(self, within: float = 20.0) -> None:
        """On return one leads, and the others follow it."""
        wanted = ["follower"] * (MEMBERS - 1) + ["leader"]
        until(lambda: sorted(self.modes()) == wanted, within=within)

    # What is done to them ---------------------------------------------------------------------------------------------

    def cut_off(self, server: ZooKeeperServer) -> None:
        """From the other servers, in both directions: on connections that stand nothing comes through, and there are no
        new ones. Clients still reach it.
        """
        for proxy in self._proxies_of(server):
            proxy.refuse()
            proxy.black_hole()

    def join(self, server: ZooKeeperServer) -> None:
        """The end of being cut off: what was held arrives after all."""
        for proxy in self._proxies_of(server):
            proxy.let_go()
            proxy.accept()

    def close(self) -> None:
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # Starting ---------------------------------------------------------------------------------------------------------

    def _start(self, settings: Sequence[str]) -> None:
        ports = [Ports(_free_port(), _free_port()) for _ in range(MEMBERS)]
        for way in itertools.permutations(range(MEMBERS), 2):
            # Whoever is refused tries again until the leader listens; the proxy never refuses, so it has to do that.
            made = (Proxy((HOST, port), patience=2.0) for port in ports[way[1]])
            self._ways[way] = Ports(*map(self._closing.enter_context, made))
        for (one, other), proxies in self._ways.items():
            # A server tells another where elections find it. Left as it is, that would lead past the proxy.
            old, new = ports[one].election, self._ways[other, one].election.port
            proxies.election.replace(f"{HOST}:{old}".encode(), f"{HOST}:{new}".encode())
        members = [Member(number + 1, self._lines_for(number, ports[number])) for number in range(MEMBERS)]
        with ThreadPoolExecutor(MEMBERS) as starters:
            starting = [starters.submit(ZooKeeperServer, *settings, member=member) for member in members]
        self.servers = [self._closing.enter_context(each.result()) for each in starting if not each.exception()]
        for each in starting:
            each.result()
        self.all_serve(within=30)

    def _lines_for(self, number: int, own: "Ports[int]") -> tuple[str, ...]:
        """The others are where the proxies to them are."""
        return tuple(
            f"server.{other + 1}={HOST}:{ports.quorum}:{ports.election}"
            for other in range(MEMBERS)
            for ports in [own if other == number else Ports(*(proxy.port for proxy in self._ways[number, other]))]
        )

    def _proxies_of(self, server: ZooKeeperServer) -> list[Proxy]:
        number = self.servers.index(server)
        return [proxy for pair, proxies in self._ways.items() if number in pair for proxy in proxies]


def _free_port() -> int:
    """One that nobody uses now; a server takes it some moments later."""
    while True:
        port = reserved_port(INNER_PORTS)
        with contextlib.suppress(OSError), socket.socket() as trial:
            trial.bind((HOST, port))
            return port
