"""What `gripfast doctor` finds at the servers of a ZooKeeper ensemble.

Each server is looked at by a session of its own, and by two of its four-letter words. These may be forbidden
(`4lw.commands.whitelist`): then only what a session shows is judged.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from gripfast.stores.doctor import Examination, Finding, Terms, advice, is_this_machine, judged, problem, version_in
from gripfast.stores.zookeeper.driver import Attempts
from gripfast.stores.zookeeper.session import SHARE, TTL_LEAST

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from gripfast.stores.zookeeper.factory import ZooKeeperFactory

MANY_NAMES = 5000
CROWDED = 0.8
TICKS_LEAST = 2
"""Of a session's time-out."""
CLOSE = 0.05
"""Seconds: time-outs are rounded."""

Version = tuple[int, ...]

_FORGETS = "ZOOKEEPER-4643, ZOOKEEPER-4646 and ZOOKEEPER-4685", "servers forget writes that were confirmed"
FAULTS: Sequence[tuple[Version, Version, str, str]] = (
    ((0,), (3, 8, 5), "ZOOKEEPER-4643, ZOOKEEPER-4646 and ZOOKEEPER-4685", "servers forget writes that were confirmed"),
    (
        (3, 9, 0),
        (3, 9, 2),
        "ZOOKEEPER-4643, ZOOKEEPER-4646 and ZOOKEEPER-4685",
        "servers forget writes that were confirmed",
    ),
    ((3, 9, 3), (3, 9, 4), "ZOOKEEPER-4925", "a server that was behind and becomes the leader loses writes"),
)
"""Of ensembles: from this version, before that one; which they are; what happens."""

FAULTY = problem(
    "zookeeper-faulty-version",
    "this is ZooKeeper {version}, which has {faults}",
    why="After a change of the leader, {effect}. A lock that was released may stay taken although nobody holds it, "
    "and one that was granted may be granted again.",
    todo="Upgrade all servers, to 3.9.4 or newer",
)
DOWN = problem(
    "zookeeper-server-down",
    "this server can't be used: {said}",
    why="Sessions need a majority of the servers, and each server that is missing leaves fewer that may fail.",
    todo="Look at the server's log, and start or repair it",
)
NO_LEADER = problem(
    "zookeeper-no-leader",
    "this server runs, but it serves nobody: it has no leader",
    why="It is cut off from the others, or there is no majority. Clients that reach only it lose their leases.",
    todo="Look at the server's log, and check that it can connect to the quorum and election ports of the others",
)
SHORT_SESSIONS = advice(
    "zookeeper-short-sessions",
    "the server gives a session {given} s at most, and a ttl of {ttl} s needs {wanted} s (maxSessionTimeout)",
    why="A lease lasts for three quarters of its session's time-out: here {lasts} s instead of {ttl} s.",
    todo="Set maxSessionTimeout={milliseconds} on every server, or ?ttl={lasts} in the URL",
)
LONG_SESSIONS = advice(
    "zookeeper-long-sessions",
    "the server gives a session {given} s at least, and a ttl of {ttl} s needs {wanted} s (minSessionTimeout)",
    why="If a holder is killed, its lock is free only after {given} s.",
    todo="Set a smaller minSessionTimeout (two ticks at least) and tickTime on every server, if that is too long",
)
FEW_TICKS = problem(
    "zookeeper-ticks",
    "minSessionTimeout is {minimum} ms, which is less than two ticks (tickTime is {tick} ms), and sessions last "
    "{given} ms",
    why="Followers tell the leader only twice per tick which sessions live. The leader may end the session of a living "
    "holder, or keep a session for longer than its holder believes.",
    todo="Set minSessionTimeout={needed} or remove it, or set a smaller tickTime, on every server",
)
SINGLE = advice(
    "zookeeper-single",
    "this is a single server",
    why="While it is down, no lock can be acquired or renewed. If its disk is lost, so are the tokens.",
    todo="Run three or five servers, each on a machine of its own",
)
EVEN = advice(
    "zookeeper-even",
    "the ensemble has {count} voting servers, and {spare} of them may fail, as with {fewer}",
    why="The last server makes each write slower, but the ensemble survives no further failure.",
    todo="Add a server, or remove one",
)
NOT_NAMED = advice(
    "zookeeper-not-named",
    "the ensemble has {count} servers, and the URL names {named}",
    why="When the named servers are down, clients can't connect, though the others could serve them.",
    todo="Name all servers in the URL: zookeeper://host1:2181,host2:2181,host3:2181",
)
DIFFERENT = advice(
    "zookeeper-different",
    "the servers differ: {differences}",
    why="A session that moves to another server may get another time-out; a shorter one ends all its leases.",
    todo="Give all servers the same version and settings",
)
CONNECTIONS = advice(
    "zookeeper-connections",
    "the server has {used} connections, and maxClientCnxns allows {limit} for one address",
    why="A client has a connection for each different ttl. When the limit is reached, clients from that address "
    "can't connect, and lose their leases.",
    todo="Set maxClientCnxns to a larger number, or to 0 (no limit), on every server",
)
SILENT = advice(
    "zookeeper-4lw",
    "the server does not answer {words}",
    why="So its version, its role and its limits could not be judged.",
    todo="Set 4lw.commands.whitelist=srvr,conf on every server. Locks do not need it",
)
OPEN = advice(
    "zookeeper-open",
    "everybody may change the nodes below {root}",
    why="Whoever can reach a server can break locks.",
    todo="Use a login, zookeeper://user:password@…, and a new root (?root=/locks): docs/zookeeper.md. Or keep "
    "strangers away by a firewall",
)
PLAIN_TEXT = advice(
    "zookeeper-plain-text",
    "the connection to {host} is not encrypted, and the URL has a login",
    why="Whoever can read the network reads the password, and can break locks with it.",
    todo="Use ?use_ssl=true and a server with secureClientPort, unless the network is private",
)
NAMES = advice(
    "zookeeper-many-names",
    "there are {names} names below {root}",
    why="They are listed in one answer, and a server limits its size (jute.maxbuffer). If there are too many, "
    "listing fails, and unused names are not deleted any more.",
    todo="Use fewer names, or let a client run for some minutes: it deletes names that nobody uses",
)


class Server(NamedTuple):
    where: str
    trouble: str = ""
    """Why there is no session; empty if there is one."""
    given: float = 0.0
    """The session's time-out, in seconds."""
    srvr: Mapping[str, str] = {}
    conf: Mapping[str, str] = {}
    """Of the two words; empty if it does not tell."""
    serves: bool = True
    """False if it says that it does not."""

    @property
    def version(self) -> Version:
        return version_in(self.srvr.get("Zookeeper version", ""))

    @property
    def mode(self) -> str:
        return self.srvr.get("Mode", "")

    def number(self, name: str) -> int | None:
        text = self.conf.get(name, "")
        return int(text) if text.lstrip("-").isdecimal() else None


class Ensemble(NamedTuple):
    servers: Sequence[Server]
    ttl: float
    root: str
    is_open: bool = False
    names: int = 0
    has_login: bool = False
    encrypted: bool = False

    @property
    def up(self) -> list[Server]:
        return [server for server in self.servers if not server.trouble]

    @property
    def voters(self) -> int:
        """As the servers have it in their configuration; 0 if they do not tell."""
        return max((_voters_in(server.conf) for server in self.servers), default=0)


def _voters_in(conf: Mapping[str, str]) -> int:
    return sum(name.startswith("server.") and "observer" not in line for name, line in conf.items())


def examine(factory: ZooKeeperFactory, terms: Terms) -> Examination:
    if factory.probes is None:
        return Examination("ZooKeeper")
    ensemble = gather(factory, terms)
    return Examination(summary(ensemble), [*judge(ensemble)])


# -- facts ---------------------------------------------------------------------------------------------------------


def gather(factory: ZooKeeperFactory, terms: Terms) -> Ensemble:
    probes = factory.probes
    assert probes is not None
    settings = probes.settings
    ensemble = Ensemble((), terms.ttl, factory.root, False, 0, "auth_data" in settings, bool(settings.get("use_ssl")))
    for where in probes.servers:
        client = probes.connect(where, max(terms.ttl, TTL_LEAST))
        attempts = Attempts.of(client)
        try:
            client.start(timeout=terms.request_timeout)
            server = Server(where, given=attempts.negotiated / 1000)
            ensemble = _with_root(ensemble, client)
        except KazooTimeoutError:
            server = Server(where, attempts.errors.get(where) or "it does not answer")
        finally:
            client.stop()
            client.close()
        words = {} if ensemble.encrypted else _words(where, terms.request_timeout)
        ensemble = ensemble._replace(servers=[*ensemble.servers, read(server, words)])
    return ensemble


def _with_root(ensemble: Ensemble, client: KazooClient) -> Ensemble:
    with contextlib.suppress(KazooException):
        acls, stat = client.get_acls(ensemble.root)
        is_open = any(acl.id.scheme == "world" and acl.perms & _CHANGES for acl in acls)
        return ensemble._replace(is_open=is_open, names=stat.numChildren)
    return ensemble


_CHANGES = 0b01110
"""Write, create or delete."""


def _words(server: str, timeout: float) -> dict[str, str]:
    return {word: _answer(server, word, timeout) for word in ("srvr", "conf")}


def _answer(server: str, word: str, timeout: float) -> str:
    host, _, port = server.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), timeout) as connection:
        connection.sendall(word.encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace")
    return ""


def read(server: Server, words: Mapping[str, str]) -> Server:
    """From the answers to the two words."""
    srvr, conf = words.get("srvr", ""), words.get("conf", "")
    return server._replace(
        srvr=dict(re.findall(r"(?m)^([^:\n]+): (.*)$", srvr)),
        conf=dict(re.findall(r"(?m)^([\w.]+)=(.*)$", conf)),
        serves="not currently serving" not in srvr,
    )


def summary(ensemble: Ensemble) -> str:
    versions = sorted({".".join(map(str, server.version)) for server in ensemble.servers if server.version})
    modes = [server.mode for server in ensemble.servers if server.mode]
    return ", ".join([f"ZooKeeper {' and '.join(versions)}".strip(), *modes])


# -- judging -------------------------------------------------------------------------------------------------------


def judge(ensemble: Ensemble) -> Iterator[Finding]:
    yield from judged(ensemble, (_judge_servers, _judge_count, _judge_versions, _judge_differences, _judge_access))
    for server in ensemble.up:
        yield from _judge_sessions(server, ensemble.ttl)
        yield from _judge_limits(server)


def _judge_servers(ensemble: Ensemble) -> Iterator[Finding]:
    for server in ensemble.servers:
        if not server.serves:
            yield NO_LEADER(server.where)
        elif server.trouble:
            yield DOWN(server.where, said=server.trouble)


def _judge_count(ensemble: Ensemble) -> Iterator[Finding]:
    voters, named = ensemble.voters, len(ensemble.servers)
    if any(server.mode == "standalone" for server in ensemble.servers):
        yield SINGLE()
    elif voters and voters % 2 == 0:
        yield EVEN(count=voters, spare=voters - voters // 2 - 1, fewer=voters - 1)
    if voters > named:
        yield NOT_NAMED(count=voters, named=named)


def _judge_versions(ensemble: Ensemble) -> Iterator[Finding]:
    """A server alone has no leader that could change."""
    for server in ensemble.servers:
        for since, fixed, faults, effect in FAULTS:
            if server.version and since <= server.version < fixed and server.mode != "standalone":
                yield FAULTY(server.where, version=".".join(map(str, server.version)), faults=faults, effect=effect)


def _judge_differences(ensemble: Ensemble) -> Iterator[Finding]:
    found = {"version": {".".join(map(str, server.version)) for server in ensemble.servers}}
    for name in ("tickTime", "minSessionTimeout", "maxSessionTimeout"):
        found[name] = {server.conf.get(name, "") for server in ensemble.servers}
    told = {name: sorted(values - {""}) for name, values in found.items()}
    differences = [f"{name} ({', '.join(values)})" for name, values in told.items() if len(values) > 1]
    if differences:
        yield DIFFERENT(differences="; ".join(differences))


def _judge_access(ensemble: Ensemble) -> Iterator[Finding]:
    hosts = [server.where.rpartition(":")[0].strip("[]") for server in ensemble.servers]
    far = [host for host in hosts if not is_this_machine(host)]
    if ensemble.is_open:
        yield OPEN(root=ensemble.root)
    if ensemble.has_login and not ensemble.encrypted and far:
        yield PLAIN_TEXT(host=far[0])
    if ensemble.names > MANY_NAMES:
        yield NAMES(names=f"{ensemble.names:,}", root=ensemble.root)


def _judge_sessions(server: Server, ttl: float) -> Iterator[Finding]:
    wanted, given = max(ttl, TTL_LEAST) / SHARE, server.given
    values = {"given": f"{given:.3g}", "ttl": f"{ttl:g}", "wanted": f"{wanted:.3g}", "lasts": f"{given * SHARE:.3g}"}
    if given < wanted - CLOSE:
        yield SHORT_SESSIONS(server.where, milliseconds=int(wanted * 1000) + 1, **values)
    elif given > wanted + CLOSE:
        yield LONG_SESSIONS(server.where, **values)
    tick, minimum = server.number("tickTime"), server.number("minSessionTimeout")
    if tick and minimum is not None and minimum < TICKS_LEAST * tick and given * 1000 < TICKS_LEAST * tick:
        yield FEW_TICKS(server.where, minimum=minimum, tick=tick, given=round(given * 1000), needed=TICKS_LEAST * tick)


def _judge_limits(server: Server) -> Iterator[Finding]:
    limit, used = server.number("maxClientCnxns"), int(server.srvr.get("Connections", "0"))
    if limit and used >= CROWDED * limit:
        yield CONNECTIONS(server.where, used=used, limit=limit)
    silent = [word for word, told in (("srvr", server.srvr), ("conf", server.conf)) if not told]
    if silent:
        yield SILENT(server.where, words=" and ".join(silent))
