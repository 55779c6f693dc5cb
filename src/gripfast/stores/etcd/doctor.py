"""What `gripfast doctor` finds at the members of an etcd cluster.

Each member that the URL names is asked for its status. What the cluster has in common is asked of any of them. A user
without rights for maintenance is told less: what is not known is not judged.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gripfast.machine import boottime
from gripfast.stores.doctor import Examination, Finding, Terms, advice, is_this_machine, judged, problem, version_in
from gripfast.stores.etcd.blocking import BlockingLink
from gripfast.stores.etcd.leases import whole
from gripfast.stores.etcd.link import Refusal
from gripfast.stores.etcd.maintenance import (
    CORRUPT,
    NOSPACE,
    AlarmRequest,
    MemberListRequest,
    StatusRequest,
)
from gripfast.stores.etcd.messages import LeaseGrantRequest, LeaseRevokeRequest, RangeRequest
from gripfast.stores.faults import Fault

if TYPE_CHECKING:
    from gripfast.stores.etcd.factory import EtcdFactory

T = TypeVar("T")
Version = tuple[int, ...]

LONG_HISTORY = 50_000
"""Revisions that were never compacted: some 10 MB, if they are renewals."""
LOOSE = 3
"""How many times its data a file may be large, and how many bytes at least."""
LOOSE_LEAST = 100 * 2**20

FAULTS: Sequence[tuple[tuple[Version, ...], str, str]] = (
    (
        ((3, 4, 31), (3, 5, 13)),
        "a leader that was replaced revokes leases later",
        "No lease of Gripfast is ended by that, because renewals use new leases; locks of other programs here may be",
    ),
    (
        ((3, 4, 34), (3, 5, 16)),
        "a watch may miss a deletion when the cluster compacts",
        "A waiter may learn up to ten seconds late that it is its turn",
    ),
    (
        ((3, 4, 38), (3, 5, 23), (3, 6, 5)),
        "a lease that is being revoked is reported as kept alive",
        "No lease of Gripfast is kept alive; locks of other programs on this cluster may have two holders",
    ),
    (
        ((3, 4, 42), (3, 5, 28), (3, 6, 9)),
        "reads may be stale after a change of the leader",
        "`gripfast ls` and `inspect()` may show what is over. No lock is granted by a read",
    ),
    (
        ((3, 4, 44), (3, 5, 30), (3, 6, 11)),
        "users may do more than their roles allow",
        "Whoever has a user name may be able to break locks",
    ),
)
"""Since which versions it is mended, one for each release series; what it is; what it means here. Series before the
first one have the fault, too."""

DOWN = problem(
    "etcd-member-down",
    "this member can't be used: {said}",
    why="Every write needs a majority of the members, and each one that is missing leaves fewer that may fail.",
    todo="Look at the member's log, and start or repair it",
)
NO_LEADER = problem(
    "etcd-no-leader",
    "this member knows of no leader",
    why="It is cut off from the others, or there is no majority. Clients that reach only it lose their leases.",
    todo="Look at the member's log, and check that it can connect to the peer ports of the others",
)
LEARNER = advice(
    "etcd-learner",
    "this member is a learner, which answers no clients",
    why="Clients that try it lose time.",
    todo="Promote it (etcdctl member promote), or leave it out of the URL",
)
SPACE = problem(
    "etcd-no-space",
    "the cluster has used up its space (alarm NOSPACE)",
    why="It takes no writes, so no lock can be acquired or renewed.",
    todo="Compact and defragment it, then run `etcdctl alarm disarm`; set --auto-compaction-retention, and perhaps a "
    "larger --quota-backend-bytes",
)
DAMAGED = problem(
    "etcd-corrupt",
    "the data of a member is damaged (alarm CORRUPT)",
    why="The members may disagree about who holds a lock.",
    todo="Remove the damaged member, and add it anew with empty data",
)
NOT_COMPACTED = advice(
    "etcd-not-compacted",
    "the cluster has kept all its {revisions} revisions",
    why="Every acquisition, renewal and release adds one, of about 200 bytes. When the quota is reached, the cluster "
    "takes no writes any more, and all leases are lost.",
    todo="Start the members with --auto-compaction-mode=periodic --auto-compaction-retention=1h",
)
LOOSE_FILE = advice(
    "etcd-not-defragmented",
    "the file of this member has {size} MB, of which {used} MB are used",
    why="The quota counts the whole file, also the part that is not used.",
    todo="Run `etcdctl defrag` on one member after the other",
)
FAULTY = advice(
    "etcd-faulty-version",
    "this is etcd {version}: {fault}",
    why="{effect}.",
    todo="Upgrade all members to {mended} or newer",
)
LONG_LEASES = advice(
    "etcd-long-leases",
    "leases last for {given} s at least, and the ttl is {ttl} s",
    why="etcd grants no lease shorter than one and a half election time-outs. If a holder is killed, its lock is free "
    "only after {given} s.",
    todo="Use a ttl of {given} s or more, or a smaller --election-timeout on every member",
)
SINGLE = advice(
    "etcd-single",
    "this is a single member",
    why="While it is down, no lock can be acquired or renewed. If its disk is lost, so are the tokens.",
    todo="Run three or five members, each on a machine of its own",
)
EVEN = advice(
    "etcd-even",
    "the cluster has {count} voting members, and {spare} of them may fail, as with {fewer}",
    why="The last member makes each write slower, but the cluster survives no further failure.",
    todo="Add a member, or remove one",
)
NOT_NAMED = advice(
    "etcd-not-named",
    "the cluster has {count} members, and the URL names {named}",
    why="When the named members are down, clients can't connect, though the others could serve them.",
    todo="Name all members in the URL: etcd://host1:2379,host2:2379,host3:2379",
)
DIFFERENT = advice(
    "etcd-different",
    "the members have different versions: {versions}",
    why="The cluster works as the oldest of them does, with its faults.",
    todo="Upgrade all members to the same version",
)
OPEN = advice(
    "etcd-open",
    "everybody may change the keys",
    why="Whoever can reach a member can break locks.",
    todo="Use users and roles (docs/etcd.md lists the rights that locks need), or keep strangers away by a firewall",
)
PLAIN_TEXT = advice(
    "etcd-plain-text",
    "the connection to {host} is not encrypted, and the URL has a login",
    why="Whoever can read the network reads the password, and can break locks with it.",
    todo="Use etcds:// and members with certificates, unless the network is private",
)


class Server(NamedTuple):
    where: str
    trouble: str = ""
    """Why it has no status; empty if it has."""
    version: str = ""
    has_leader: bool = True
    is_learner: bool = False
    size: int = 0
    used: int = 0


class Facts(NamedTuple):
    servers: Sequence[Server]
    ttl: float
    members: int = 0
    """Those that vote; 0 if that is not known."""
    alarms: Sequence[int] = ()
    revision: int = 0
    is_whole: bool = False
    """Nothing was ever compacted."""
    given: int = 0
    """Seconds that a lease lasts that is requested for the ttl; 0 if that is not known."""
    has_login: bool = False
    encrypted: bool = False

    @property
    def up(self) -> list[Server]:
        return [server for server in self.servers if not server.trouble]


def examine(factory: EtcdFactory, terms: Terms) -> Examination:
    link = BlockingLink(factory.dialer(terms.request_timeout))
    try:
        facts = run(gather(link, factory, terms))
    finally:
        run(link.close())
    return Examination(summary(facts), [*judge(facts)])


def run(recipe: Coroutine[Any, Any, T]) -> T:
    """The blocking link never suspends."""
    try:
        recipe.send(None)
    except StopIteration as over:
        result: T = over.value
        return result
    raise AssertionError("a request to etcd has suspended")


# -- facts ---------------------------------------------------------------------------------------------------------


async def gather(link: BlockingLink, factory: EtcdFactory, terms: Terms) -> Facts:
    servers = [await _server(link, endpoint, terms.request_timeout) for endpoint in factory.endpoints]
    facts = Facts(servers, terms.ttl, has_login=factory.login is not None, encrypted=factory.tls is not None)
    if not facts.up:
        return facts
    until = boottime() + terms.request_timeout
    lease = await link.call(LeaseGrantRequest(whole(terms.ttl)), until)
    members = await link.call(MemberListRequest(), until)
    alarms = await link.call(AlarmRequest(), until)
    first = await link.call(RangeRequest(factory.keys.layout, revision=2), until)
    if not _failed(lease):
        await link.call(LeaseRevokeRequest(lease.id), until)  # type: ignore[union-attr]
        facts = facts._replace(given=lease.ttl, revision=lease.header.revision)  # type: ignore[union-attr]
    if not _failed(members):
        facts = facts._replace(members=sum(not member.is_learner for member in members.members))  # type: ignore[union-attr]
    if not _failed(alarms):
        facts = facts._replace(alarms=[alarm.alarm for alarm in alarms.alarms])  # type: ignore[union-attr]
    return facts._replace(is_whole=not _failed(first))


async def _server(link: BlockingLink, endpoint: str, timeout: float) -> Server:
    status = await link.call_at(endpoint, StatusRequest(), boottime() + timeout)
    if isinstance(status, Refusal):
        return Server(endpoint)  # it answers, but tells this user nothing
    if isinstance(status, Fault):
        return Server(endpoint, next(iter(status.error.nodes.values()), str(status.error)))
    return Server(
        endpoint, "", status.version, bool(status.leader), status.is_learner, status.db_size, status.db_size_in_use
    )


def _failed(answer: object) -> bool:
    return isinstance(answer, Fault | Refusal)


def summary(facts: Facts) -> str:
    versions = sorted({server.version for server in facts.servers if server.version})
    count = f"{facts.members} members" if facts.members > 1 else "one member" if facts.members else ""
    return ", ".join(filter(None, [f"etcd {' and '.join(versions)}".strip(), count]))


# -- judging -------------------------------------------------------------------------------------------------------


def judge(facts: Facts) -> Iterator[Finding]:
    yield from judged(facts, (_judge_servers, _judge_count, _judge_alarms, _judge_space, _judge_terms, _judge_access))


def _judge_servers(facts: Facts) -> Iterator[Finding]:
    for server in facts.servers:
        if server.trouble:
            yield DOWN(server.where, said=server.trouble)
        elif server.is_learner:
            yield LEARNER(server.where)
        elif not server.has_leader:
            yield NO_LEADER(server.where)
        yield from _judge_version(server)


def _judge_version(server: Server) -> Iterator[Finding]:
    version = version_in(server.version)[:3]
    for mended, fault, effect in FAULTS:
        fixed = next((each for each in mended if each[:2] >= version[:2]), version)
        if () < version < fixed:
            in_words = ".".join(map(str, fixed))
            yield FAULTY(server.where, version=server.version, fault=fault, effect=effect, mended=in_words)


def _judge_count(facts: Facts) -> Iterator[Finding]:
    count, named = facts.members, len(facts.servers)
    if count == 1:
        yield SINGLE()
    elif count and count % 2 == 0:
        yield EVEN(count=count, spare=count - count // 2 - 1, fewer=count - 1)
    if count > named:
        yield NOT_NAMED(count=count, named=named)
    versions = sorted({server.version for server in facts.servers if server.version})
    if len(versions) > 1:
        yield DIFFERENT(versions=", ".join(versions))


def _judge_alarms(facts: Facts) -> Iterator[Finding]:
    if NOSPACE in facts.alarms:
        yield SPACE()
    if CORRUPT in facts.alarms:
        yield DAMAGED()


def _judge_space(facts: Facts) -> Iterator[Finding]:
    if facts.is_whole and facts.revision > LONG_HISTORY:
        yield NOT_COMPACTED(revisions=f"{facts.revision:,}")
    for server in facts.up:
        if server.used and server.size > max(LOOSE_LEAST, LOOSE * server.used):
            yield LOOSE_FILE(server.where, size=server.size >> 20, used=server.used >> 20)


def _judge_terms(facts: Facts) -> Iterator[Finding]:
    if facts.given > whole(facts.ttl):
        yield LONG_LEASES(given=facts.given, ttl=f"{facts.ttl:g}")


def _judge_access(facts: Facts) -> Iterator[Finding]:
    hosts = [server.where.rpartition(":")[0].strip("[]") for server in facts.servers]
    far = [host for host in hosts if not is_this_machine(host)]
    if facts.up and not facts.has_login and facts.given:
        yield OPEN()
    if facts.has_login and not facts.encrypted and far:
        yield PLAIN_TEXT(host=far[0])
