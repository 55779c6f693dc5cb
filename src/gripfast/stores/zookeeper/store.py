"""The lock is held by the owner of the lowest of the ephemeral, sequential nodes of a name; the others are its queue.

- An uncontended acquire is one round trip: the create and a look at the children leave together. A session's requests
  are answered in order, so that look has the own node in it, and everybody before it.
- A waiter watches the node before its own, and nothing else. It watches that node's children: a watch on its data would
  fire with every proof that is written into it, and wake the whole queue, one by one.
- A node is made under the owner's id, so a create whose answer was lost is found again.
- A read is enough to learn that a node is the first: those before it do not come back. Only a write proves that its
  session lives (`session.py`). So waiters write nothing; a grant is dated by the last write of its session, or by a new
  one if that is old.
- The nodes above a contender are made in one batch with it: callers of one client are served in the order they came.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import ConnectionClosedError, ConnectionLoss, NodeExistsError, NoNodeError, SessionExpiredError
from kazoo.protocol.serialization import Create, Create2, Delete, Exists, GetChildren, GetData, SetData, Sync

from gripfast import machine
from gripfast.core.ports import (
    Broken,
    Claim,
    Granted,
    Hold,
    Label,
    Loss,
    Taken,
    Unreachable,
)
from gripfast.errors import Reason
from gripfast.machine import boottime
from gripfast.stores.with_permits import WithPermits
from gripfast.stores.zookeeper import protocol
from gripfast.stores.zookeeper.driver import NO_ANSWER, Reply, send, session_id
from gripfast.stores.zookeeper.inspection import Inspection
from gripfast.stores.zookeeper.meeting import meet
from gripfast.stores.zookeeper.node import Node
from gripfast.stores.zookeeper.protocol import Contender
from gripfast.stores.zookeeper.requests import Call, Link, failed, not_connected
from gripfast.stores.zookeeper.session import Session, Sessions
from gripfast.stores.zookeeper.spec import CAPABILITIES

if TYPE_CHECKING:
    from gripfast.stores.zookeeper.permit_inspection import PermitInspection
    from gripfast.stores.zookeeper.permits import ZooKeeperPermits

SLOW_PACE = 10.0
"""Seconds after which a waiter looks at the queue although its watch was silent."""
EPHEMERAL_SEQUENTIAL = 3
ENDED = (SessionExpiredError, ConnectionClosedError)
"""Answers after which a session has no nodes any more."""


Group = list[tuple[Hold, Node]]
"""Leases of one session."""
Results = dict[str, Loss | Unreachable | None]
"""Of renewals, by owner."""


class ZooKeeperStore(WithPermits):
    capabilities = CAPABILITIES

    def __init__(
        self,
        link: Link,
        sessions: Sessions,
        root: str,
        nodes: dict[str, Node] | None = None,
        ends_sessions: bool = True,
    ) -> None:
        """`nodes`: those of another store of the same client, after which this one cleans up."""
        self._link = link
        self._ends_sessions = ends_sessions
        self._sessions = sessions
        self._root = root
        self.nodes: dict[str, Node] = {} if nodes is None else nodes
        self.inbox = link.inbox
        self._parent = functools.lru_cache(maxsize=256)(functools.partial(protocol.parent, root))
        self.details = functools.lru_cache(maxsize=256)(_details_of_this_process)
        inspection = Inspection(link, sessions, root)
        self.inspect, self.page, self.force_release = inspection.inspect, inspection.page, inspection.force_release

    # Claims -----------------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Granted | Taken | Unreachable:
        session, until = self._sessions(claim.ttl), boottime() + self._link.timeout
        if not session.lets_pass and not await self._link.connected(session, until, or_refused=claim.inbox is None):
            return not_connected(session)
        if session.met != session.life and (refused := await meet(self._link, session, self._root, until)) is not None:
            return refused
        if claim.share is not None:
            return await self._permits.claim(claim, session, until)
        node = self.nodes.get(claim.owner)
        if node is None or node.epoch != session.epoch:
            node = self.new_node(claim, session, session.acl, node, self._parent(claim.name))
        while True:
            sent = boottime()
            queue = await self._join(node, claim, until)
            if isinstance(queue, BaseException):
                return failed(session, queue, may_raise=True)
            if session.deleted.before:
                queue = session.without_deleted(node.parent, queue)
            position = protocol.position(queue, node.path)
            if position is None:  # somebody has deleted it
                session.guardian.until.pop(node.path, None)
                node.path = ""
                continue
            if position == 0:
                answer: Granted | Taken | Unreachable | None = await self.granted(node, claim, until)
            else:
                session.guardian.believe(node.path, sent + max(session.share, 2 * SLOW_PACE))
                answer = await self._wait_behind(node, queue, position, claim, until)
            if answer is not None:
                return answer

    def new_node(
        self, claim: Claim, session: Session, acl: Any, before: Node | None, parent: str, make: type[Node] = Node
    ) -> Node:
        if claim.owner in session.deleted.parents:
            session.deleted.remove(claim.owner)
        node = self.nodes[claim.owner] = make(parent, session, acl, session.epoch, session.life)
        if before is not None and before.life == node.life:
            node.details = before.details  # what it may have in the queue, in a session that goes on, is looked for
        return node

    async def _join(self, node: Node, claim: Claim, until: float) -> list[Contender] | BaseException:
        """The queue, with the own node in it."""
        if not node.path:
            if not node.details:
                return await self._create(node, claim, until)
            found = await self.find(node, claim.owner, until)
            if isinstance(found, BaseException):
                return found
            if not found:
                return await self._create(node, claim, until)
        (children,) = await self._link.request([(node.session, GetChildren(node.parent, None))], until)
        if isinstance(children, NoNodeError):
            return []
        return children if isinstance(children, BaseException) else protocol.in_order(children)

    async def _create(self, node: Node, claim: Claim, until: float) -> list[Contender] | BaseException:
        session, acl = node.session, node.acl
        node.details = self.details(claim.told, min(claim.ttl, session.share))
        path = f"{node.parent}/{claim.owner}{protocol.LOCK}"
        calls: list[Call] = [
            (session, Create2(path, node.details, acl, EPHEMERAL_SEQUENTIAL)),
            (session, GetChildren(node.parent, None)),
        ]
        sent = boottime()
        guards = functools.partial(guard, session, sent + max(session.share, 2 * SLOW_PACE))
        created, children = await self._link.request(calls, until, guards)
        if isinstance(created, NoNodeError):
            # The name has a mark: what others have made, they may rely on.
            above = [(session, Create(step, b"", acl, 0)) for step in protocol.steps(self._root)]
            above.append((session, Create(node.parent, protocol.MARK, acl, 0)))
            sent = boottime()
            *made, created, children = await self._link.request([*above, *calls], until, guards)
            created = first_cause(made, created)
        if isinstance(created, BaseException):
            if not isinstance(created, protocol.UNSURE):
                node.details = b""  # answered: nothing was made
            return created
        node.path, node.token, session.proved = created[0], created[1].czxid, sent
        return children if isinstance(children, BaseException) else protocol.in_order(children)

    async def find(self, node: Node, owner: str, until: float) -> bool | BaseException:
        """Whether there is a node whose create was not answered."""
        paths = await self._own(node, owner, until)
        if isinstance(paths, BaseException):
            return paths
        if not paths:
            return False
        (stat,) = await self._link.request([(node.session, Exists(paths[0], None))], until)
        if isinstance(stat, BaseException):
            return stat
        if stat is None or stat.ephemeralOwner != session_id(node.session.client):
            return False
        node.path, node.token = paths[0], stat.czxid
        node.session.guardian.believe(node.path, boottime() + max(node.session.share, 2 * SLOW_PACE))
        return True

    async def _own(self, node: Node, owner: str, until: float) -> list[str] | BaseException:
        """Whatever this owner has in the queue. Another server may be behind the one that the create was sent to."""
        if not node.details:
            return []
        calls: list[Call] = [(node.session, Sync(node.parent)), (node.session, GetChildren(node.parent, None))]
        synced, children = await self._link.request(calls, until)
        if isinstance(children, NoNodeError):
            return []
        for answer in (synced, children):
            if isinstance(answer, BaseException):
                return answer
        return [f"{node.parent}/{each.node}" for each in node.parse(children) if each.owner == owner]

    async def granted(self, node: Node, claim: Claim, until: float) -> Granted | Unreachable | None:
        """None if its node is gone."""
        session, ttl = node.session, min(claim.ttl, node.session.share)
        sent = boottime()
        if sent - session.proved > ttl / 10:
            session.guardian.believe(node.path, sent + max(session.share, 2 * SLOW_PACE))
            (written,) = await self._link.request([(session, self._proof(node))], until)
            if isinstance(written, NoNodeError):
                node.path = ""
                return None
            if isinstance(written, BaseException):
                return failed(session, written)
            session.proved = sent
        if node.epoch != session.epoch:
            return failed(session, SessionExpiredError("the session ended while the lock was acquired: try again"))
        node.is_first = True
        session.guardian.until[node.path] = session.proved + ttl
        return Granted(node.token, ttl, session.proved, most=session.share)

    def _proof(self, node: Node) -> Any:
        """It changes nothing, but it is a write."""
        return SetData(node.path, node.details, -1)

    async def _wait_behind(
        self, node: Node, queue: Sequence[Contender], position: int, claim: Claim, until: float
    ) -> Taken | Unreachable | None:
        """Who is the first of all. With an inbox, that is notified of the end of the node before the own one. None if
        that node is gone by now."""
        session, before = node.session, f"{node.parent}/{queue[position - 1].node}"
        calls: list[Call] = [(session, GetData(f"{node.parent}/{queue[0].node}", None))]
        if claim.inbox is not None:
            calls.append((session, GetChildren(before, session.watches.join(before, claim.inbox))))
        got, *watched = await self._link.request(calls, until)
        if watched and isinstance(watched[0], NoNodeError):
            session.watches.leave(before, claim.inbox)
            return None
        if watched and isinstance(watched[0], BaseException):
            return failed(session, watched[0])
        if claim.inbox is None and (error := await self.remove(node, claim.owner, until)) is not None:
            return failed(session, error)
        if isinstance(got, BaseException):
            return Taken(None, 0, SLOW_PACE)
        holder = protocol.lock_info(claim.name, queue[0].owner, got, len(queue) - 1)
        return Taken(holder, holder.token, SLOW_PACE)

    # Renewals ---------------------------------------------------------------------------------------------------------

    async def renew(self, holds: Sequence[Hold], within: float = math.inf) -> Sequence[Loss | Unreachable | None]:
        results: Results = {}
        sessions: dict[Session, Group] = {}
        for hold in holds:
            node = self.nodes.get(hold.owner)
            if node is None or node.is_over:
                results[hold.owner] = "session"
            elif node.moving and (trouble := await self._permits.downgrade(hold)) is not None:
                results[hold.owner] = trouble
            else:
                sessions.setdefault(node.session, []).append((hold, node))
        until = boottime() + min([self._link.timeout, within, *(max(0.05, hold.ttl / 3) for hold in holds)])
        lost = await self._renew(list(sessions.values()), results, until)
        back = [group for group in lost if await self._link.connected(group[0][1].session, until)]
        await self._renew(back, results, until)
        broken = [owner for owner, result in results.items() if result == "broken"]
        if broken:
            results.update(zip(broken, await self.broken(broken, until), strict=True))
        return [results[hold.owner] for hold in holds]

    async def _renew(self, groups: list[Group], results: Results, until: float) -> list[Group]:
        """One write proves all leases of a session; behind it goes a look at each of the other nodes. Returns those
        whose connection broke meanwhile: they may be retried."""
        lost: list[Group] = []
        while groups:
            sent = boottime()
            answers = iter(await self._link.request([call for group in groups for call in self._proofs(group)], until))
            answered = [(group, [next(answers) for _ in group]) for group in groups]
            groups = []
            for group, replies in answered:
                if isinstance(replies[0], NoNodeError):  # no proof for the others
                    results[group[0][0].owner] = "broken"
                    groups += [group[1:]] if group[1:] else []
                else:
                    self._note_renewal(group, replies, sent, results)
                    lost += [group] if isinstance(replies[0], ConnectionLoss) else []
        return lost

    def _proofs(self, group: Group) -> list[Call]:
        (_, first), *others = group
        return [(first.session, self._proof(first)), *((node.session, Exists(node.path, None)) for _, node in others)]

    def _note_renewal(self, group: Group, answers: Sequence[Any], sent: float, results: Results) -> None:
        written, session = answers[0], group[0][1].session
        if not isinstance(written, BaseException):
            session.proved = max(session.proved, sent)
        if written is NO_ANSWER:
            session.leave_if_silent(sent)
        for (hold, node), answer in zip(group, answers, strict=True):
            trouble = written if isinstance(written, BaseException) else answer
            if isinstance(trouble, ENDED) or node.is_over:
                results[hold.owner] = "session"
            elif isinstance(trouble, BaseException):
                results[hold.owner] = failed(session, trouble)
            else:
                results[hold.owner] = "broken" if answer is None else None
                session.guardian.believe(node.path, sent + min(hold.ttl, session.share))

    async def broken(self, owners: Sequence[str], until: float) -> list[Loss]:
        """With what the operator wrote, if that is there. It was written before the node was deleted, so a server that
        does not have the node any more has the note."""
        nodes = [self.nodes.get(owner) for owner in owners]  # it may be forgotten meanwhile
        calls: list[Call] = [(node.session, GetData(node.parent, None)) for node in nodes if node is not None]
        answers = iter(await self._link.request(calls, until) if calls else [])
        return [
            "broken" if node is None else _loss(node, owner, next(answers))
            for owner, node in zip(owners, nodes, strict=True)
        ]

    def look(self) -> Sequence[tuple[str, Reason]]:
        return [(owner, "session") for owner, node in self.nodes.copy().items() if node.is_first and node.is_over]

    # Releases ---------------------------------------------------------------------------------------------------------

    async def release(self, hold: Hold) -> Loss | Unreachable | None:
        node = self.nodes.get(hold.owner)
        if node is None:
            return "session"
        if node.moving and (trouble := await self._permits.downgrade(hold)) is not None:
            if not isinstance(trouble, Unreachable):
                self.forget(hold.owner)
            return trouble
        session, until = node.session, boottime() + self._link.timeout
        delete = [(session, Delete(node.path, -1))]
        if node.former:
            delete = [(session, Delete(path, -1)) for path in node.paths()]
        *_, deleted = await self._link.request(delete, until)
        was_lost = isinstance(deleted, ConnectionLoss)
        if was_lost and await self._link.connected(session, until):
            *_, deleted = await self._link.request(delete, until)
        if node.epoch != session.epoch or isinstance(deleted, ENDED):
            self.forget(hold.owner)
            return "session"
        if isinstance(deleted, BaseException) and not isinstance(deleted, NoNodeError):
            return failed(session, deleted)
        is_broken = isinstance(deleted, NoNodeError) and not was_lost
        answer = (await self.broken([hold.owner], until))[0] if is_broken else None
        self.forget(hold.owner)
        session.guardian.until.pop(node.path, None)
        return answer

    async def abandon(self, holds: Sequence[Hold]) -> Sequence[Unreachable | None]:
        until = boottime() + self._link.timeout
        return [await self._abandon(hold.owner, until) for hold in holds]

    async def _abandon(self, owner: str, until: float) -> Unreachable | None:
        node = self.nodes.get(owner)
        error = None if node is None else await self.remove(node, owner, until)
        return None if node is None or error is None else failed(node.session, error)

    async def remove(self, node: Node, owner: str, until: float) -> BaseException | None:
        """None once nothing of this owner is left."""
        error = await self._delete(node, owner, until) if node.life == node.session.life else None
        if error is not None and not isinstance(error, ENDED):
            return error
        self.forget(owner)
        return None

    async def _delete(self, node: Node, owner: str, until: float) -> BaseException | None:
        is_known = node.path and not node.moving
        paths = node.paths() if is_known else await self._own(node, owner, until)
        if isinstance(paths, BaseException):
            return paths
        calls = [(node.session, Delete(path, -1)) for path in paths]
        for path, deleted in zip(paths, await self._link.request(calls, until) if calls else [], strict=True):
            if isinstance(deleted, BaseException) and not isinstance(deleted, NoNodeError):
                return deleted
            node.session.guardian.until.pop(path, None)
        node.session.guardian.until.pop(node.moving, None)
        return None

    def forget(self, owner: str) -> None:
        node = self.nodes.pop(owner, None)
        if node is None or not node.details:
            return
        if node.noted is not None:  # nobody else reads it
            send([(node.session, SetData(node.parent, protocol.MARK, node.noted))])
        node.session.janitor.used.put((node.parent, boottime()))
        if node.life == node.session.life:
            node.session.deleted.add(owner, node.parent)

    # Permits ----------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _permits(self) -> ZooKeeperPermits:
        from gripfast.stores.zookeeper.permits import ZooKeeperPermits  # which a lock does not need

        return ZooKeeperPermits(self, self._link, self._sessions, self._root)

    @functools.cached_property
    def _permit_inspection(self) -> PermitInspection:
        from gripfast.stores.zookeeper.permit_inspection import PermitInspection

        return PermitInspection(self._link, self._sessions, self._root)

    # ------------------------------------------------------------------------------------------------------------------

    async def vouch(self, hold: Hold, pid: int) -> None:
        """The ensemble does not look at processes."""

    def stop_waiting(self) -> None:
        for node in list(self.nodes.values()):
            node.session.watches.notify_all()

    async def close(self) -> None:
        if self._ends_sessions:
            self._sessions.stop()


def _loss(node: Node, owner: str, got: Any) -> Loss:
    note = None if isinstance(got, BaseException) else node.read_note(got[0], owner)
    if note is None:
        return "broken"
    if protocol.is_marked(got[0]):
        node.noted = got[1].version
    return Broken(note)


def guard(session: Session, until: float, reply: Reply) -> None:
    """A created node is known to the guardian at once, on kazoo's thread: the caller may never learn of it."""
    if isinstance(reply.request, Create2) and not isinstance(reply.answer, BaseException):
        session.guardian.believe(reply.answer[0], until)


def first_cause(made: Sequence[Any], created: Any) -> Any:
    """What was created, or why not: a node can't be made if the one above it could not."""
    for above in reversed(made):
        is_there = not isinstance(above, BaseException) or isinstance(above, NodeExistsError)
        if is_there or not isinstance(created, NoNodeError):
            break
        created = above
    return created


def _details_of_this_process(label: Label, ttl: float) -> bytes:
    return protocol.write_details(label, machine.hostname(), os.getpid(), ttl)
