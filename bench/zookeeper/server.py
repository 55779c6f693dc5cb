"""A ZooKeeper of the benchmarks' own: a free port of this machine, stopped and forgotten at the end."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bench.scenario import Sample
from bench.serving import HOST, running

JARS = Path("/usr/share/java")
CLASSES = ("zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-nop", "netty-all", "metrics-core", "snappy-java")
"""All that a server needs; a class path of everything that is installed takes longer to start with."""
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
HEAP = "-Xmx256m"
REQUESTS = "requests"

CONFIGURATION = f"""\
dataDir={{folder}}/data
clientPort={{port}}
clientPortAddress={HOST}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr,mntr
"""

AS_IT_IS = "forceSync=yes"
"""What it has answered is on disk."""
NOT_ON_DISK = "forceSync=no"


@contextmanager
def zookeeper_server(folder: Path, disk: str = AS_IT_IS) -> Iterator[str]:
    """Its URL. It runs on the cores that the caller may use."""
    configuration = folder / "zoo.cfg"

    def command(port: int) -> list[str]:
        configuration.write_text(CONFIGURATION.format(folder=folder, port=port) + disk, encoding="utf-8")
        classes = ":".join(str(JARS / f"{name}.jar") for name in CLASSES)
        return ["java", HEAP, "-cp", classes, MAIN, str(configuration)]

    # It has nothing to say goodbye to, and takes its time for SIGTERM.
    with running(command, folder / "zookeeper.log", lambda port, _: serves(port), signal.SIGKILL) as port:
        yield f"zookeeper://{HOST}:{port}"


@contextmanager
def hasty_server(folder: Path) -> Iterator[str]:
    """It waits for no disk: what that costs is the same for all, and would hide what differs."""
    with zookeeper_server(folder, NOT_ON_DISK) as url:
        yield url


def hosts(url: str) -> str:
    """As kazoo wants them."""
    return urlsplit(url).netloc


def told(port: int, word: str) -> str:
    """What the server answers to one of its four-letter words."""
    with socket.create_connection((HOST, port), 1.0) as connection:
        connection.sendall(word.encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


def serves(port: int) -> bool:
    try:
        return "Mode: standalone" in told(port, "srvr")
    except OSError:
        return False


@contextmanager
def counters(url: str) -> Iterator[Callable[[], Sample]]:
    """How many requests the server has received so far, this one included."""
    port = urlsplit(url).port or 0

    def counted() -> Sample:
        found = re.search(r"^zk_packets_received\t(\d+)$", told(port, "mntr"), re.MULTILINE)
        if found is None:
            raise LookupError("the server does not tell how many requests it has received")
        return {REQUESTS: float(found[1])}

    yield counted


def version() -> str:
    """Of the server that would be started; empty where there is none."""
    found = [re.fullmatch(r"zookeeper-(\d[\d.]*\d)\.jar", path.name) for path in JARS.glob("zookeeper-*.jar")]
    return max((each[1] for each in found if each), default="")
