"""The store, without colour: who has the lowest of the ephemeral, sequential nodes of a name has the lock.

A claim is one round trip: the node is created, and the children are asked for in the same breath. Who is not the first
watches the one before it, and nobody else. A node is made under the owner's id, so a create whose answer was lost is
found again. Everything that dates a lease is a write: a quorum has seen it. A sync is not enough, let alone a read: a
leader that was paused answers both before it learns that it leads nobody any more.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from kazoo.protocol.serialization import Create
from kazoo.security import OPEN_ACL_UNSAFE

from gripfast import machine
from gripfast.core.ports import (
    Claim,
    Granted,
    Hold,
    Inbox,
    LockInfo,
    Taken,
    Unreachable,
)
from gripfast.errors import Reason
from gripfast.stores.zookeeper import protocol
from gripfast.stores.zookeeper.janitor import MARK
from gripfast.stores.zookeeper.looking import Call, Link, Looking
from gripfast.stores.zookeeper.protocol import Contender
from gripfast.stores.zookeeper.session import Session
from gripfast.stores.zookeeper.spec import CAPABILITIES

SLOW_PACE = 10.0
"""Seconds after which a waiter asks although its watch was silent."""


@dataclass(slots=True, eq=False)
class Node:
    """What an owner has in line."""

    parent: str
    session: Session
    epoch: int
    life: int
    path: str = ""
    """Empty until it is known."""
    token: int = 0
    card: bytes = b""
    """Written before it was asked for; empty until then."""
    is_first: bool = False


Group = list[tuple[Hold, Node]]
"""Leases of one session."""


class ZooKeeperStore(Looking):
    capabilities = CAPABILITIES

    def __init__(
        self,
        link: Link,
        sessions: Callable[[float], Session],
        root: str,
        acl: Callable[[], Any],
        nodes: dict[str, Node] | None = None,
    ) -> None:
        """With `nodes` it gives back what another store, of another colour, has."""
        super().__init__(link, sessions, root)
        self._acl = acl
        self.nodes: dict[str, Node] = {} if nodes is None else nodes
        self._card = functools.lru_cache(maxsize=256)(_card_of_this_process)

    def inbox(self) -> Inbox:
        return self._link.inbox()

    # -- claims --------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Granted | Taken | Unreachable:
        protocol.check_label(claim.label)
        session = self._sessions(claim.ttl)
        until = self._link.now() + self._link.timeout
        if not session.lets_pass and not await self._link.connected(session, until, or_refused=claim.inbox is None):
            return self._not_connected(session)
        node = self.nodes.get(claim.owner)
        if node is None or node.epoch != session.epoch:
            node = self._new_node(claim, session, node)
        while True:
            sent = self._link.now()
            line = await self._stand_in_line(node, claim, until)
            if isinstance(line, BaseException):
                return self._unreachable(line, may_raise=True)
            line = session.send_off(node.parent, line)
            place = _place(line, node.path)
            if place is None:  # somebody has taken it out of the line
                session.guardian.forget(node.path)
                node.path = ""
                continue
            session.guardian.believe(node.path, sent + max(session.share, 2 * SLOW_PACE))
            if place == 0:
                granted = await self._granted(node, claim, until)
                if granted is not None:
                    return granted
                continue
            told, holder = await self._watch(node, line, place, claim, until)
            if isinstance(told, BaseException):
                return self._unreachable(told)
            if told:
                if claim.inbox is None and (error := await self._leave(claim.owner, node, until)) is not None:
                    return self._unreachable(error)
                return Taken(holder, 0 if holder is None else holder.token, SLOW_PACE)

    def _new_node(self, claim: Claim, session: Session, before: Node | None) -> Node:
        session.departed.remove(claim.owner)
        node = self.nodes[claim.owner] = Node(self._parent(claim.name), session, session.epoch, session.life)
        if before is not None and before.life == node.life:
            node.card = before.card  # what it may have in line, in a session that goes on, is looked for
        return node

    async def _leave(self, owner: str, node: Node, until: float) -> BaseException | None:
        """A plain no leaves nothing."""
        error = await self._remove(node, owner, until)
        if error is None or isinstance(error, NoNodeError):
            self.forget(owner)
            return None
        return error

    async def _granted(self, node: Node, claim: Claim, until: float) -> Granted | Unreachable | None:
        """Dated by the last write of the session: that it is the first, a read may tell, for who was before it does not
        come back; that its session is there, only a write. None if its node is gone."""
        session, ttl = node.session, min(claim.ttl, node.session.share)
        if self._link.now() - session.proved > ttl / 10:
            sent = self._link.now()
            (written,) = await self._ask(session, [self._prove(node)], until)
            if isinstance(written, NoNodeError):
                node.path = ""
                return None
            if isinstance(written, BaseException):
                return self._unreachable(written)
            session.proved = sent
        if node.epoch != session.epoch:
            return self._unreachable(SessionExpiredError("the session ended meanwhile"))
        node.is_first = True
        session.guardian.believe(node.path, session.proved + ttl)
        return Granted(node.token, ttl, session.proved, most=session.share)

    async def _stand_in_line(self, node: Node, claim: Claim, until: float) -> list[Contender] | BaseException:
        """The line, with the own node in it."""
        children = functools.partial(node.session.client.get_children_async, node.parent)
        if not node.path:
            known = await self._found(node, claim.owner, until)
            if isinstance(known, BaseException):
                return known
            if known is None:
                return await self._create(node, claim, children, until)
        (found,) = await self._ask(node.session, [children], until)
        if isinstance(found, NoNodeError):
            return []
        return found if isinstance(found, BaseException) else protocol.in_order(found)

    def _prove(self, node: Node) -> Call:
        """Nothing is changed by it; but it is a write."""
        return functools.partial(node.session.client.set_async, node.path, node.card)

    async def _found(self, node: Node, owner: str, until: float) -> bool | BaseException | None:
        """A node whose create was not answered; None if none was ever asked for, or there is none."""
        paths = await self._own(node, owner, until)
        if isinstance(paths, BaseException):
            return paths
        if not paths:
            return None
        client = node.session.client
        (stat,) = await self._ask(node.session, [functools.partial(client.exists_async, paths[0])], until)
        if isinstance(stat, BaseException) or stat is None:
            return stat
        if stat.ephemeralOwner != client._session_id:
            return None
        node.path, node.token = paths[0], stat.czxid
        return True

    async def _own(self, node: Node, owner: str, until: float) -> list[str] | BaseException:
        """Whatever this owner has in line. Another server may be behind the one that was asked to create it."""
        if not node.card:
            return []
        client = node.session.client
        calls = [functools.partial(call, node.parent) for call in (client.sync_async, client.get_children_async)]
        synced, found = await self._ask(node.session, calls, until)
        if isinstance(found, NoNodeError):
            return []
        for answer in (synced, found):
            if isinstance(answer, BaseException):
                return answer
        return [f"{node.parent}/{each.node}" for each in protocol.in_order(found) if each.owner == owner]

    async def _create(self, node: Node, claim: Claim, children: Call, until: float) -> list[Contender] | BaseException:
        client = node.session.client
        path = f"{node.parent}/{claim.owner}{protocol.LOCK}"
        node.card = self._card(claim.label, min(claim.ttl, node.session.share))
        lasts = max(node.session.share, 2 * SLOW_PACE)

        def create() -> Any:
            """What was made is known to the guardian at once, on kazoo's thread: whoever asked may never hear of it."""
            result = client.create_async(
                path, node.card, acl=self._acl(), ephemeral=True, sequence=True, include_data=True
            )
            result.rawlink(functools.partial(_guard, node.session, self._link.now() + lasts))
            return result

        sent = self._link.now()
        created, found = await self._ask(node.session, [create, children], until)
        if isinstance(created, NoNodeError):
            above = self._creates_above(node)
            sent = self._link.now()
            *made, created, found = await self._ask(node.session, [*above, create, children], until)
            created = _first_cause(made, created)
        if isinstance(created, BaseException):
            if not isinstance(created, protocol.UNSURE):
                node.card = b""  # answered: nothing was made
            return created
        node.path, node.token, node.session.proved = created[0], created[1].czxid, sent
        return found if isinstance(found, BaseException) else protocol.in_order(found)

    def _creates_above(self, node: Node) -> list[Call]:
        """Whatever a contender hangs from, whether it is there or not: sent together with the contender's own, so that
        nobody of this session who came later gets in between. The name has a mark: what others have made, they may
        rely on."""
        client, acl = node.session.client, self._acl()
        below_chroot = [functools.partial(client.create_async, path, acl=acl) for path in protocol.steps(self._root)]
        chroot = [functools.partial(_create_plain, client, path, acl) for path in protocol.steps(client.chroot or "")]
        return [*chroot, *below_chroot, functools.partial(client.create_async, node.parent, MARK, acl=acl)]

    async def _watch(
        self, node: Node, line: Sequence[Contender], place: int, claim: Claim, until: float
    ) -> tuple[bool | BaseException, LockInfo | None]:
        """Whether there is somebody before it, whose end will be told; and who is the first of all."""
        client = node.session.client
        before = f"{node.parent}/{line[place - 1].node}"
        calls: list[Call] = [functools.partial(client.get_async, f"{node.parent}/{line[0].node}")]
        if claim.inbox is not None:
            node.session.waits(claim.inbox)
            # Its end, not its data: that is written anew as a proof.
            watch = node.session.watches.join(before, claim.inbox)
            calls.append(functools.partial(client.get_children_async, before, watch=watch))
        got, *watched = await self._ask(node.session, calls, until)
        holder = None
        if not isinstance(got, BaseException):
            holder = protocol.lock_info(claim.name, line[0].owner, got[0], got[1], len(line) - 1)
        if not watched or not isinstance(watched[0], BaseException):
            return True, holder
        if isinstance(watched[0], NoNodeError):
            node.session.watches.leave(before, claim.inbox)
            return False, holder
        return watched[0], holder

    # -- keeping -------------------------------------------------------------------------------------------------

    async def renew(self, holds: Sequence[Hold], within: float = math.inf) -> Sequence[Reason | Unreachable | None]:
        results: dict[str, Reason | Unreachable | None] = {}
        sessions: dict[Session, list[tuple[Hold, Node]]] = {}
        for hold in holds:
            node = self.nodes.get(hold.owner)
            if node is None or node.epoch != node.session.epoch:
                results[hold.owner] = "session"
            else:
                sessions.setdefault(node.session, []).append((hold, node))
        until = self._link.now() + min([self._link.timeout, within, *(max(0.05, hold.ttl / 3) for hold in holds)])
        again = await self._renew(list(sessions.values()), results, until)
        lost = [group for group in again if await self._link.connected(group[0][1].session, until)]
        await self._renew(lost, results, until)
        return [results[hold.owner] for hold in holds]

    async def _renew(
        self, groups: list[Group], results: dict[str, Reason | Unreachable | None], until: float
    ) -> list[Group]:
        """One write for all leases of a session, and a look at the nodes of the others behind it. Those whose
        connection broke meanwhile may be asked once more."""
        again: list[Group] = []
        while groups:
            sent = self._link.now()
            answers = iter(await self._link.ask([call for group in groups for call in self._proofs(group)], until))
            told = [(group, [next(answers) for _ in group]) for group in groups]
            groups = []
            for group, answered in told:
                if isinstance(answered[0], NoNodeError):  # no proof for the others
                    results[group[0][0].owner] = "broken"
                    groups += [group[1:]] if group[1:] else []
                else:
                    self._settle(group, answered, sent, results)
                    again += [group] if isinstance(answered[0], ConnectionLoss) else []
        return again

    def _proofs(self, group: Group) -> list[Call]:
        looks = [functools.partial(node.session.client.exists_async, node.path) for _, node in group[1:]]
        return [self._prove(group[0][1]), *looks]

    def _settle(
        self, group: Group, answers: Sequence[Any], sent: float, results: dict[str, Reason | Unreachable | None]
    ) -> None:
        written, session = answers[0], group[0][1].session
        if not isinstance(written, BaseException):
            session.proved = max(session.proved, sent)
        if isinstance(written, TimeoutError):
            session.leave_if_silent(sent)
        for (hold, node), answer in zip(group, answers, strict=True):
            trouble = written if isinstance(written, BaseException) else answer
            if _is_over(trouble) or node.epoch != session.epoch:
                results[hold.owner] = "session"
            elif isinstance(trouble, BaseException):
                results[hold.owner] = self._unreachable(trouble)
            else:
                results[hold.owner] = "broken" if answer is None else None
                session.guardian.believe(node.path, sent + min(hold.ttl, session.share))

    def look(self) -> Sequence[tuple[str, Reason]]:
        nodes = list(self.nodes.items())
        return [(owner, "session") for owner, node in nodes if node.is_first and node.epoch != node.session.epoch]

    # -- giving back ---------------------------------------------------------------------------------------------

    async def release(self, hold: Hold) -> Reason | Unreachable | None:
        node = self.nodes.get(hold.owner)
        if node is None:
            return "session"
        until = self._link.now() + self._link.timeout
        delete = functools.partial(node.session.client.delete_async, node.path)
        (deleted,) = await self._ask(node.session, [delete], until)
        was_lost = isinstance(deleted, ConnectionLoss)
        if was_lost and await self._link.connected(node.session, until):
            (deleted,) = await self._ask(node.session, [delete], until)
        if node.epoch != node.session.epoch or _is_over(deleted):
            self.forget(hold.owner)
            return "session"
        if isinstance(deleted, BaseException) and not isinstance(deleted, NoNodeError):
            return self._unreachable(deleted)
        self.forget(hold.owner)
        node.session.guardian.forget(node.path)
        return "broken" if isinstance(deleted, NoNodeError) and not was_lost else None

    async def abandon(self, holds: Sequence[Hold]) -> Sequence[Unreachable | None]:
        until = self._link.now() + self._link.timeout
        return [await self._abandon(hold, until) for hold in holds]

    async def _abandon(self, hold: Hold, until: float) -> Unreachable | None:
        node = self.nodes.get(hold.owner)
        if node is None:
            return None
        error = None if node.life != node.session.life else await self._remove(node, hold.owner, until)
        if error is None or _is_over(error) or isinstance(error, NoNodeError):
            self.forget(hold.owner)
            return None
        return self._unreachable(error)

    async def _remove(self, node: Node, owner: str, until: float) -> BaseException | None:
        paths = [node.path] if node.path else await self._own(node, owner, until)
        if isinstance(paths, BaseException):
            return paths
        calls = [functools.partial(node.session.client.delete_async, path) for path in paths]
        for path, deleted in zip(paths, await self._ask(node.session, calls, until) if calls else [], strict=True):
            if isinstance(deleted, BaseException) and not isinstance(deleted, NoNodeError):
                return deleted
            node.session.guardian.forget(path)
        return None

    def forget(self, owner: str) -> None:
        node = self.nodes.pop(owner, None)
        if node is None or not node.card:
            return
        node.session.janitor.used(node.parent, self._link.now())
        if node.life == node.session.life:
            node.session.departed.add(owner, node.parent)

    # --------------------------------------------------------------------------------------------------------------

    def stop_waiting(self) -> None:
        for node in list(self.nodes.values()):
            node.session.wake()

    async def close(self) -> None:
        """Sessions are ended by whoever made them."""


def _place(line: Sequence[Contender], path: str) -> int | None:
    mine = path.rpartition("/")[2]
    return next((place for place, each in enumerate(line) if each.node == mine), None)


def _guard(session: Session, until: float, created: Any) -> None:
    if created.successful():
        session.guardian.believe(created.value[0], until)


def _create_plain(client: KazooClient, path: str, acl: Any) -> Any:
    """With its whole path: kazoo puts the chroot before any other, and can't make what the chroot itself hangs from."""
    result = client.handler.async_result()
    client._call(Create(path, b"", acl or client.default_acl or OPEN_ACL_UNSAFE, 0), result)
    return result


def _first_cause(made: Sequence[Any], created: Any) -> Any:
    """What was created, or why not: what is to hang from something can't be made if that could not."""
    for above in reversed(made):
        is_there = not isinstance(above, BaseException) or isinstance(above, NodeExistsError)
        if is_there or not isinstance(created, NoNodeError):
            break
        created = above
    return created


def _is_over(answer: Any) -> bool:
    return isinstance(answer, SessionExpiredError | ConnectionClosedError)


def _card_of_this_process(label: str | None, ttl: float) -> bytes:
    return protocol.write_card(label, machine.hostname(), os.getpid(), ttl)
