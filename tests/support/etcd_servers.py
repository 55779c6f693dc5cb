"""Real etcd servers for tests. `support/server_process.py` tells how they start and end.

`etcd_server()` is the one that most tests use, all workers of a run the same, each test with a `lock_space()` of its
own. A test that stops, kills or configures its server starts one for itself, with flags of etcd's:

    with EtcdServer("--auth-token-ttl=2") as server:

A `Trio` is a cluster of three. With `cuts=True`, its members talk to each other through proxies (`etcd_peers.py`), and
one of them can be cut off from the others, while its clients still reach it.
"""

import contextlib
import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlencode

from support.etcd_peers import PeerProxy, has_open
from support.ports import give_back_port, reserved_port
from support.run_wide import workers_in
from support.server_process import HOST, ServerProcess, shared
from support.waiting import until

BIN = Path(shutil.which("etcd") or "/usr/bin/etcd").parent
"""Where `etcd` and `etcdctl` are: `make doctor-next` puts those of a newer version before the others."""
MEMBERS = 3
INNER_PORTS = range(14000, 20000)
"""Between members; none that any other server or proxy of the tests would take meanwhile."""
SETTINGS = ("--heartbeat-interval=50", "--election-timeout=500", "--auto-compaction-retention=0")


class Peers(NamedTuple):
    """What a member knows of its cluster."""

    number: int
    ports: tuple[int, ...]
    """Where the members find each other."""
    listens: int = 0
    """Where this one is itself, if there is a proxy before it."""


class EtcdServer(ServerProcess):
    package_user = None
    program = "etcd"
    ends_at = signal.SIGTERM

    def __init__(
        self,
        *settings: str,
        peers: Peers | None = None,
        certificate: Path | None = None,
        shared_folder: Path | None = None,
    ) -> None:
        """`certificate`: it speaks TLS with this one, whose key is beside it."""
        self._own_port = 0 if peers else _free_port()
        self._peers = peers or Peers(0, (self._own_port,))
        self.certificate = certificate
        super().__init__(*settings, shared_folder=shared_folder)

    # Who it is --------------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def url_with(self, **options: object) -> str:
        """For `gripfast.connect`, with these options in its query."""
        if self.certificate is not None:
            options = {"ca": self.certificate, **options}
        return url_of([self.address], **options)

    def lock_space(self, **options: object) -> str:
        """The URL of locks that nobody else uses."""
        return self.url_with(prefix=new_prefix(), **options)

    @property
    def etcd(self) -> int:
        """Its process: the one that was started may only have started it (`scripts/next-servers`)."""
        return next(each for each in workers_in(self.folder) if _program_of(each) == "etcd")

    @property
    def wal(self) -> list[Path]:
        """The files of its log of writes."""
        return [*(self.folder / "data").rglob("*.wal")]

    # What is asked of it ----------------------------------------------------------------------------------------------

    def ctl(self, *words: str, user: str = "") -> str:
        """What etcdctl prints. `user`: as `name:password`."""
        return ctl([self.address], *words, user=user, certificate=self.certificate)

    def is_leader(self) -> bool:
        """False also if it does not answer, or knows of no leader."""
        with contextlib.suppress(subprocess.SubprocessError):
            fields = self.ctl("endpoint", "status", "--command-timeout=2s").split(", ")
            return fields[4] == "true"
        return False

    def member_id(self) -> str:
        return self.ctl("endpoint", "status").split(", ")[1]

    def is_healthy(self) -> bool:
        """It serves, and a majority agrees with it."""
        with contextlib.suppress(subprocess.SubprocessError):
            self.ctl("endpoint", "health", "--command-timeout=2s")
            return True
        return False

    # Starting ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        super().close()
        give_back_port(self._own_port)

    def _make_data(self) -> None:
        self.folder.mkdir(exist_ok=True)
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        (self.folder / "data").mkdir(mode=0o700)

    def _command_line(self) -> list[str]:
        scheme = "http" if self.certificate is None else "https"
        client, peer = f"{scheme}://{self.address}", f"http://{HOST}:{self._peers.ports[self._peers.number]}"
        listens = f"http://{HOST}:{self._peers.listens}" if self._peers.listens else peer
        cluster = ",".join(f"m{number}=http://{HOST}:{port}" for number, port in enumerate(self._peers.ports))
        return [
            str(BIN / "etcd"), f"--name=m{self._peers.number}", f"--data-dir={self.folder / 'data'}",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={listens}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster={cluster}",
            *SETTINGS, *self._tls(), *self._settings,
        ]  # fmt: skip

    def _tls(self) -> Sequence[str]:
        made = self.certificate
        return () if made is None else (f"--cert-file={made}", f"--key-file={made.with_suffix('.key')}")

    def _answers(self) -> bool:
        """Its own log tells: whoever answers at that port might be someone else's server. One that has no leader does
        not serve yet."""
        return bool(re.search(rf"serving (\w+ )?client (requests|traffic)[^\n]*{HOST}:{self.port}", self.log))


def _program_of(process: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/exe").readlink().name
    return ""


def ctl(addresses: Sequence[str], *words: str, user: str = "", certificate: Path | None = None) -> str:
    flags = [f"--endpoints={','.join(addresses)}"]
    if user:
        flags.append(f"--user={user}")
    if certificate is not None:
        key = certificate.with_suffix(".key")
        flags += [f"--cacert={certificate}", f"--cert={certificate}", f"--key={key}"]
    ran = subprocess.run(
        [str(BIN / "etcdctl"), *flags, *words],
        env=os.environ | {"ETCDCTL_API": "3"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if ran.returncode:
        raise subprocess.SubprocessError(ran.stderr)
    return ran.stdout


def version() -> tuple[int, ...]:
    """Of the servers that are started here."""
    printed = subprocess.run([str(BIN / "etcd"), "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(map(int, printed.split()[2].split(".")))


def url_of(addresses: Sequence[str], **options: object) -> str:
    query = urlencode(options, safe="/:")
    scheme = "etcds" if "ca" in options else "etcd"
    return f"{scheme}://{','.join(addresses)}" + (f"?{query}" if query else "")


def new_prefix() -> str:
    return f"locks-{uuid.uuid4().hex}/"


@functools.cache
def etcd_server() -> EtcdServer:
    """The server of this test run, started when it is first asked for. Never stop, pause or configure it."""
    return shared(EtcdServer)


class Trio:
    """Three members, one of them the leader, from the moment this is made."""

    def __init__(self, *settings: str, cuts: bool = False) -> None:
        self._closing = contextlib.ExitStack()
        self._proxies: list[PeerProxy] = []
        self.servers: list[EtcdServer] = []
        try:
            self._start(settings, cuts)
        except BaseException:
            self.close()
            raise

    @property
    def addresses(self) -> list[str]:
        return [server.address for server in self.servers]

    def lock_space(self, **options: object) -> str:
        """The URL of locks that nobody else uses, by way of any of the members."""
        return url_of(self.addresses, prefix=new_prefix(), **options)

    def leader(self, within: float = 20.0) -> EtcdServer:
        """Once there is one."""
        until(lambda: any(server.is_leader() for server in self.running()), within=within)
        return next(server for server in self.running() if server.is_leader())

    def followers(self) -> list[EtcdServer]:
        leader = self.leader()
        return [server for server in self.servers if server is not leader]

    def running(self) -> list[EtcdServer]:
        return [server for server in self.servers if server.running]

    def ctl(self, *words: str, user: str = "") -> str:
        return ctl(self.addresses, *words, user=user)

    def all_serve(self, within: float = 30.0) -> None:
        """On return each of them does."""
        for server in self.servers:
            until(server.is_healthy, within=within)

    def restart_all(self) -> None:
        """At the same time: one alone would wait for another."""
        with ThreadPoolExecutor(MEMBERS) as starters:
            list(starters.map(EtcdServer.restart, self.servers))

    def revision(self) -> int:
        """After one more write."""
        fields = self.ctl("put", "padding", "", "--write-out=fields").splitlines()
        return next(int(line.rpartition(" ")[2]) for line in fields if line.startswith('"Revision"'))

    def cut_off(self, server: EtcdServer) -> None:
        """From the other members, in both directions: nothing comes through, and there are no new connections."""
        process = server.etcd
        for each, proxy in zip(self.servers, self._proxies, strict=True):
            proxy.cut_off(lambda port, is_its=each is server: is_its or has_open(process, port))

    def join(self) -> None:
        """The end of being cut off: what was held arrives after all."""
        for proxy in self._proxies:
            proxy.join()

    def add_learner(self) -> EtcdServer:
        """One more member, which has no vote; gone with the others."""
        port = self._free_port()
        words = ("member", "add", f"m{MEMBERS}", "--learner", f"--peer-urls=http://{HOST}:{port}")
        until(lambda: self._accepts(*words), within=20)
        peers = Peers(MEMBERS, (*self._ports, port))
        return self._closing.enter_context(EtcdServer("--initial-cluster-state=existing", peers=peers))

    def _accepts(self, *words: str) -> bool:
        """A new cluster takes no members before all have been connected for a while."""
        with contextlib.suppress(subprocess.SubprocessError):
            return bool(self.ctl(*words))
        return False

    def close(self) -> None:
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _start(self, settings: Sequence[str], cuts: bool) -> None:
        ports = self._ports = tuple(self._free_port() for _ in range(MEMBERS))
        peers = [Peers(number, ports) for number in range(MEMBERS)]
        if cuts:
            self._proxies = [self._closing.enter_context(PeerProxy((HOST, port))) for port in ports]
            before = tuple(proxy.port for proxy in self._proxies)
            peers = [Peers(number, before, ports[number]) for number in range(MEMBERS)]
        with ThreadPoolExecutor(MEMBERS) as starters:
            starting = [starters.submit(EtcdServer, *settings, peers=each) for each in peers]
        self.servers = [self._closing.enter_context(each.result()) for each in starting if not each.exception()]
        for each in starting:
            each.result()
        self.leader()

    def _free_port(self) -> int:
        port = _free_port()
        self._closing.callback(give_back_port, port)
        return port


def _free_port() -> int:
    """One that nobody uses now; a server takes it some moments later."""
    while True:
        port = reserved_port(INNER_PORTS)
        with contextlib.suppress(OSError), socket.socket() as trial:
            trial.bind((HOST, port))
            return port
