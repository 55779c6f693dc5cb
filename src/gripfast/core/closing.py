"""What closing a client means for its claims: none is made any more, and one that is under way gets nothing.

`begin` comes before anything of the client ends. So a claim that was answered before it is in the ledger, and is
released with everything else that the client has; one that is answered after it sees `Env.is_closed`, and is undone by
its own caller, because what releases the entries of the ledger may have run before it.
"""

from __future__ import annotations

from typing import NoReturn

from gripfast.core.ledger import Mark
from gripfast.core.ports import Claim, Env, Hold
from gripfast.errors import ClientClosed


def begin(env: Env) -> None:
    env.is_closed = True
    env.store.stop_waiting()
    for wake in list(env.sleepers):
        wake()


async def undo(env: Env, claim: Claim, mark: Mark) -> NoReturn:
    """Nobody would renew or release what this claim may have got. That the client is closed is why it fails, also where
    the clean-up has failed, perhaps for the same reason."""
    if mark.may_be_there:
        hold = Hold(claim.name, claim.owner, claim.ttl, share=claim.share, keep=mark.keep(env.now()))
        mark.may_be_there = any(await env.store.abandon([hold]))
    raise ClientClosed
