"""How a session looks at the layout of the nodes below a root, once: see `stores/layout.py` for the rules.

A read is enough to see a number: it never changes. A server may be behind its leader and not have it yet; then the
create says that it is there, and a read behind that finds it.
"""

from __future__ import annotations

from typing import Any

from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.serialization import Create, GetData

from gripfast.core.ports import Unreachable, unreachable
from gripfast.stores import layout
from gripfast.stores.zookeeper import protocol
from gripfast.stores.zookeeper.requests import Call, Link, failed, retried
from gripfast.stores.zookeeper.session import Session


async def meet(link: Link, session: Session, root: str, until: float, writes: bool = True) -> Unreachable | None:
    """None if the layout is this version's. If there is none, `writes` writes it; without `writes` that is fine,
    because there are no locks."""
    life, node = session.life, protocol.layout_node(root)
    (got,) = await retried(link, [(session, GetData(node, None))], until)
    if isinstance(got, NoNodeError) and not writes:
        return None
    if isinstance(got, NoNodeError):
        got = await _written(link, session, root, until)
    if isinstance(got, BaseException):
        return failed(session, got, may_raise=writes)
    found = got[0].decode(errors="replace")
    if found != str(layout.ZOOKEEPER):
        refused = layout.refusal(session.where, found, layout.ZOOKEEPER, f"another root than {root}")
        return unreachable(refused, was_sent=False, is_permanent=True)
    session.met = life
    return None


async def _written(link: Link, session: Session, root: str, until: float) -> Any:
    """What is there now, whoever wrote it."""
    node, acl = protocol.layout_node(root), session.acl
    calls: list[Call] = [(session, Create(step, b"", acl, 0)) for step in protocol.steps(root)]
    calls.append((session, Create(node, str(layout.ZOOKEEPER).encode(), acl, 0)))
    *above, created, got = await retried(link, [*calls, (session, GetData(node, None))], until)
    if not isinstance(got, NoNodeError):
        return got
    causes = [each for each in (created, *above) if _is_cause(each)]
    return causes[0] if causes else created


def _is_cause(answer: Any) -> bool:
    """A real cause: not that the node exists, nor that its parent is missing."""
    return isinstance(answer, BaseException) and not isinstance(answer, NodeExistsError | NoNodeError)
