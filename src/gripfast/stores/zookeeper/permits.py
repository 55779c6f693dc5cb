"""Semaphores and read/write locks, loaded when the first one is used (`permit_protocol.py` has the nodes).

- All contenders of a name are in one queue. A reader goes in if there is no writer before it, a writer if there is
  nobody before it. For that a read is enough, as for locks, and the token is that of the contender's node.
- A waiter for permits of a semaphore goes in if the holders', those of the waiters before it, and its own are no more
  than the limit. It takes them by a transaction. That replaces its node by one that names the numbers, and checks and
  changes the version of the name. So nobody else has taken permits meanwhile, and the limit is still the same:
  whatever the order of the queue was, there are never more than the limit, and no number is taken twice. The
  transaction's number is the token.
- Nobody is woken in vain: a reader watches the last writer before it, a writer the contender before it, a waiter of a
  semaphore the waiter before it. Only the first waiter of a semaphore watches the list of children, because the end of
  any holder may be enough.
- A try looks before it makes a node: one that is hopeless would keep out, for a moment, whoever comes after it.
- A transaction without an answer may have been done, or may still be. Until that is known, `Node.moving` is the other
  path that the owner's node may have, and it is looked for by the owner's id.
- A writer becomes a reader by a transaction that replaces its node, at the same position in the queue.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.protocol.serialization import Create, Create2, Delete, Exists, GetChildren, GetData, SetData, Transaction

from gripfast.core.ports import RW_LIMIT, Claim, Granted, Hold, Loss, Share, Taken, Unreachable
from gripfast.machine import boottime
from gripfast.stores.zookeeper import permit_protocol, protocol
from gripfast.stores.zookeeper.meeting import meet
from gripfast.stores.zookeeper.node import Node
from gripfast.stores.zookeeper.permit_protocol import ANY, Permit, View
from gripfast.stores.zookeeper.requests import Call, Link, failed, not_connected, retried
from gripfast.stores.zookeeper.session import Session, Sessions
from gripfast.stores.zookeeper.store import EPHEMERAL_SEQUENTIAL, SLOW_PACE, ZooKeeperStore, first_cause, guard

if TYPE_CHECKING:
    from collections.abc import Callable

EPHEMERAL = 1
AGAIN_AFTER_RACE = 1.0
"""Seconds after which a waiter that was overtaken by others looks again, if it is not notified before."""


@dataclass(slots=True, eq=False)
class PermitNode(Node):
    parse: ClassVar[Callable[..., Any]] = staticmethod(permit_protocol.newest_first)
    read_note: ClassVar[Callable[..., str | None]] = staticmethod(permit_protocol.read_note)

    is_admitted: bool = False
    """It came with the limit in force."""


class ZooKeeperPermits:
    """A part of `ZooKeeperStore`."""

    def __init__(self, store: ZooKeeperStore, link: Link, sessions: Sessions, root: str) -> None:
        self._store = store
        self._link = link
        self._sessions = sessions
        self._root = root

    # Claims -----------------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim, session: Session, until: float) -> Granted | Taken | Unreachable:
        """In a session that is connected."""
        store, share = self._store, _share(claim)
        node = store.nodes.get(claim.owner)
        if node is None or node.epoch != session.epoch:
            parent = permit_protocol.parent(self._root, share.kind, claim.name)
            node = store.new_node(claim, session, session.acl, node, parent, PermitNode)
        assert isinstance(node, PermitNode)
        if claim.inbox is None and not node.details:
            refused = await self._refused(node, claim, until)
            if refused is not None:
                store.forget(claim.owner)
                return refused
        was_beaten = False
        while True:
            sent = boottime()
            view = await self._join(node, claim, until)
            if isinstance(view, BaseException):
                return failed(session, view, may_raise=True)
            if session.deleted.before:
                view = view._replace(queue=session.without_deleted(node.parent, view.queue))
            mine = view.find(node.path)
            if mine is None:  # somebody has deleted it, or a late transaction has replaced it
                session.guardian.until.pop(node.path, None)
                node.path = ""
                continue
            if not mine.slots and _is_refused(node, share, view.limit):
                return await self._give_up(node, claim, Taken(None, 0, limit_in_force=view.limit), until)
            node.is_admitted = True
            session.guardian.believe(node.path, sent + max(session.share, 2 * SLOW_PACE))
            before = permit_protocol.waits_for(view.queue, mine, view.limit)
            if before is None and was_beaten and claim.inbox is not None:
                before = _waiter_before(view.queue, mine)
            answer: Granted | Taken | Unreachable | None
            if before is not None:
                answer = await self._wait(node, claim, view, mine, before, until)
                if was_beaten and isinstance(answer, Taken):
                    answer = answer._replace(again_in=AGAIN_AFTER_RACE)
            elif share.kind == "rwlock" or mine.slots:
                answer = await self._granted(node, claim, mine.slots, until)
            else:
                answer = await self._take(node, claim, view, mine, until)
                was_beaten = answer is None
            if answer is not None:
                return answer

    async def _refused(self, node: PermitNode, claim: Claim, until: float) -> Taken | Unreachable | None:
        """What a try sees that would get nothing. Nothing is made."""
        share = _share(claim)
        view = await self._look(node, until)
        if isinstance(view, BaseException):
            return failed(node.session, view, may_raise=True)
        if share.kind == "semaphore" and view.version >= 0 and view.limit != share.limit:
            return Taken(None, 0, limit_in_force=view.limit)
        if node.session.deleted.before:
            view = view._replace(queue=node.session.without_deleted(node.parent, view.queue))
        if permit_protocol.waits_for(view.queue, permit_protocol.newcomer(share), share.limit) is None:
            return None
        calls = _look_at_holder(node, view, share)
        answers = await self._link.request(calls, until) if calls else []
        return _taken(claim, view, answers)

    async def _join(self, node: PermitNode, claim: Claim, until: float) -> View | BaseException:
        """The name, with the own node in its queue."""
        if not node.path or node.moving:
            if not node.details:
                return await self._create(node, claim, until)
            known = node.path
            found = await self._store.find(node, claim.owner, until)
            if isinstance(found, BaseException):
                return found
            path, node.path = node.path if found else "", known
            self._has_arrived(node, path)
            node.connection = -1  # there was a new one since
            if not found:
                node.is_admitted = False
                return await self._create(node, claim, until)
        return await self._look(node, until)

    async def _create(self, node: PermitNode, claim: Claim, until: float) -> View | BaseException:
        session, acl, share = node.session, node.acl, _share(claim)
        node.details = self._store.details(claim.told, min(claim.ttl, session.share))
        path = f"{node.parent}/{permit_protocol.new_contender(claim.owner, share)}"
        calls: list[Call] = [(session, Create2(path, node.details, acl, EPHEMERAL_SEQUENTIAL)), *_look(node)]
        sent = boottime()
        guards = functools.partial(guard, session, sent + max(session.share, 2 * SLOW_PACE))
        created, *seen = await self._link.request(calls, until, guards)
        if isinstance(created, NoNodeError):
            above = _creates(node, self._root, share)
            sent = boottime()
            answers = await self._link.request([*above, *calls], until, guards)
            created, *seen = answers[len(above) :]
            created = first_cause(answers[: len(above)], created)
        if isinstance(created, BaseException):
            if not isinstance(created, protocol.UNSURE):
                node.details = b""  # answered: nothing was made
            return created
        node.path, node.token, session.proved = created[0], created[1].czxid, sent
        return _view(seen)

    async def _look(self, node: PermitNode, until: float) -> View | BaseException:
        return _view(await self._link.request(_look(node), until))

    async def _give_up(self, node: PermitNode, claim: Claim, answer: Taken, until: float) -> Taken | Unreachable:
        error = await self._store.remove(node, claim.owner, until)
        return answer if error is None else failed(node.session, error)

    async def _granted(
        self, node: PermitNode, claim: Claim, slots: tuple[int, ...], until: float
    ) -> Granted | Unreachable | None:
        answer = await self._store.granted(node, claim, until)
        return answer._replace(slots=slots) if isinstance(answer, Granted) else answer

    async def _take(
        self, node: PermitNode, claim: Claim, view: View, mine: Permit, until: float
    ) -> Granted | Unreachable | None:
        """None if others were faster, or the own node is gone."""
        session, slots = node.session, permit_protocol.free_slots(view, mine.n)
        path = f"{node.parent}/{permit_protocol.as_holder(mine, slots)}"
        data = permit_protocol.without_old_notes(view.data, time.time())
        steps = [
            SetData(node.parent, data, view.version),
            Delete(node.path, -1),
            Create(path, node.details, node.acl, EPHEMERAL),
        ]
        sent = boottime()
        session.guardian.believe(path, sent + max(session.share, 2 * SLOW_PACE))
        node.moving = path
        (answer,) = await self._link.request([(session, Transaction(steps))], until)
        error = permit_protocol.first_error(answer)
        if isinstance(error, protocol.UNSURE):
            return failed(session, error)
        if error is not None:
            self._has_arrived(node, node.path)
            return None if isinstance(error, BadVersionError | NoNodeError) else failed(session, error, may_raise=True)
        session.proved = max(session.proved, sent)
        node.token = answer[0].mzxid
        self._has_arrived(node, path)
        return await self._granted(node, claim, slots, until)

    def _has_arrived(self, node: Node, path: str) -> None:
        """Its path is known, after a transaction that may have changed it."""
        for other in {node.path, node.moving} - {path}:
            node.session.guardian.until.pop(other, None)
        if path != node.path:
            node.former, node.connection = node.path, node.session.connections
            node.path = path
        node.moving = ""

    async def _wait(
        self, node: PermitNode, claim: Claim, view: View, mine: Permit, before: str, until: float
    ) -> Taken | Unreachable | None:
        """Who is one of the holders. With an inbox, that is notified when it is worth to look again. None if it is
        worth it now."""
        session, share, inbox = node.session, _share(claim), claim.inbox
        looks = _look_at_holder(node, view, share)
        if inbox is None:
            answers = await self._link.request(looks, until) if looks else []
            return await self._give_up(node, claim, _taken(claim, view, answers), until)
        watched = node.parent if before == ANY else f"{node.parent}/{before}"
        calls: list[Call] = [(session, GetData(node.parent, None))] if before == ANY else []
        calls.append((session, GetChildren(watched, session.watches.join(watched, inbox))))
        if share.kind == "semaphore":  # it may be deleted by a resize
            calls.append((session, GetChildren(node.path, session.watches.join(node.path, inbox))))
        answers = await self._link.request([*looks, *calls], until)
        seen = answers[len(looks) :]
        for (_, request), answer in zip(calls, seen, strict=True):
            if isinstance(answer, NoNodeError):
                session.watches.leave(request.path, inbox)
                return None
            if isinstance(answer, BaseException):
                return failed(session, answer)
        if before == ANY and _can_go_on(seen[:2], mine):
            return None
        return _taken(claim, view, answers[: len(looks)])

    # Changes ----------------------------------------------------------------------------------------------------------

    async def downgrade(self, hold: Hold) -> Loss | Unreachable | None:
        node = self._store.nodes.get(hold.owner)
        if node is None or node.is_over:
            return "session"
        session, until, path = node.session, boottime() + self._link.timeout, permit_protocol.as_reader(node.path)
        if path == node.path:
            self._has_arrived(node, path)
            return None
        details = permit_protocol.with_token(node.details, node.token)
        session.guardian.believe(path, session.guardian.until.get(node.path, boottime() + hold.ttl))
        node.moving = path
        steps = [Delete(node.path, -1), Create(path, details, node.acl, EPHEMERAL)]
        (answer,) = await retried(self._link, [(session, Transaction(steps))], until)
        error = permit_protocol.first_error(answer)
        if isinstance(error, NoNodeError):  # it was done before; or its node is gone
            (stat,) = await self._link.request([(session, Exists(path, None))], until)
            if stat is None:
                self._has_arrived(node, node.path)
                return (await self._store.broken([hold.owner], until))[0]
            error = stat if isinstance(stat, BaseException) else None
        if error is not None:
            return failed(session, error)
        node.details = details
        self._has_arrived(node, path)
        return None

    async def resize(self, name: str, limit: int) -> Unreachable | None:
        session, until = self._sessions(0.0), boottime() + self._link.timeout
        if not session.is_connected and not await self._link.connected(session, until, or_refused=True):
            return not_connected(session)
        if session.met != session.life and (refused := await meet(self._link, session, self._root, until)) is not None:
            return refused
        parent = permit_protocol.parent(self._root, "semaphore", name)
        node = PermitNode(parent, session, session.acl, session.epoch, session.life)
        while True:
            view = _view(await retried(self._link, _look(node), until))
            if isinstance(view, BaseException):
                return failed(session, view, may_raise=True)
            error = await self._set_limit(node, view, limit, until)
            if error is None:
                break
            if not isinstance(error, NoNodeError | BadVersionError | NodeExistsError):
                return failed(session, error, may_raise=True)
        unfit = [each for each in view.queue if not each.slots and each.n > limit]
        if unfit:  # each watches its own node; if one is not notified, it looks by itself, later
            await self._link.request([(session, Delete(f"{parent}/{each.node}", -1)) for each in unfit], until)
        return None

    async def _set_limit(self, node: PermitNode, view: View, limit: int, until: float) -> BaseException | None:
        session = node.session
        if view.version < 0:
            *made, created = await retried(self._link, _creates(node, self._root, Share("semaphore", 1, limit)), until)
            created = first_cause(made, created)
            return created if isinstance(created, BaseException) else None
        bell = f"{node.parent}/bell"
        steps = [  # the bell wakes the first waiter, which watches the children
            SetData(node.parent, permit_protocol.with_limit(view.data, limit), view.version),
            Create(bell, b"", node.acl, 0),
            Delete(bell, -1),
        ]
        (answer,) = await retried(self._link, [(session, Transaction(steps))], until)
        return permit_protocol.first_error(answer)


def _share(claim: Claim) -> Share:
    assert claim.share is not None
    return claim.share


def _is_refused(node: PermitNode, share: Share, limit: int) -> bool:
    """A newcomer with another limit; or a waiter that wants more than the limit in force."""
    return limit != RW_LIMIT and (share.n > limit or (not node.is_admitted and share.limit != limit))


def _waiter_before(queue: Sequence[Permit], mine: Permit) -> str | None:
    """Whoever lost a race waits for the one before it, so that a crowd comes in one by one."""
    before = queue[: queue.index(mine)]
    return next((each.node for each in reversed(before) if not each.slots), None)


def _look(node: PermitNode) -> list[Call]:
    """The data before the children: see `View`."""
    return [(node.session, GetData(node.parent, None)), (node.session, GetChildren(node.parent, None))]


def _view(seen: Sequence[Any]) -> View | BaseException:
    got, children = seen
    if isinstance(got, NoNodeError) or isinstance(children, NoNodeError):
        return View(0, -1, b"", [])
    for each in seen:
        if isinstance(each, BaseException):
            return each
    data, stat = got
    return View(permit_protocol.read_limit(data), stat.version, data, permit_protocol.in_order(children))


def _can_go_on(seen: Sequence[Any], mine: Permit) -> bool:
    """The first waiter of a semaphore, by the look with which it began to watch."""
    view = _view(seen)
    if isinstance(view, BaseException) or mine.n > view.limit:
        return True
    return permit_protocol.waits_for(view.queue, mine, view.limit) != ANY


def _creates(node: PermitNode, root: str, share: Share) -> list[Call]:
    """The name, and all above it."""
    session, acl = node.session, node.acl
    above = protocol.steps(permit_protocol.above(root, share.kind))
    data = permit_protocol.write_name(share.limit)
    return [*((session, Create(step, b"", acl, 0)) for step in above), (session, Create(node.parent, data, acl, 0))]


def _look_at_holder(node: PermitNode, view: View, share: Share) -> list[Call]:
    """Messages name it."""
    first = permit_protocol.holders(view.queue, share.kind)[:1]
    return [(node.session, GetData(f"{node.parent}/{each.node}", None)) for each in first]


def _taken(claim: Claim, view: View, answers: Sequence[Any]) -> Taken:
    holders = permit_protocol.holders(view.queue, _share(claim).kind)
    if not holders or not answers or isinstance(answers[0], BaseException):
        return Taken(None, 0, SLOW_PACE)
    info = protocol.lock_info(claim.name, holders[0].owner, answers[0], len(view.queue) - len(holders))
    return Taken(info, info.token, SLOW_PACE)
