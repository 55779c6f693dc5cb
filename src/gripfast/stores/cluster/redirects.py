"""What a node's refusal means for the next step: who is asked next, and whether to pause before. Pure.

| the node says | what it means | what follows |
|---|---|---|
| MOVED | another node has the slot | that one is asked, from now on |
| ASK | it is moving the slot away, and no key of this name is here | the other one is asked, this once, after ASKING |
| TRYAGAIN | the slot is being moved, and the keys of this name are not all in one place | pause |
| "non local key" | the same happened in the middle of a script | pause; something may have been done |
| CLUSTERDOWN | no node has the slot, or too few nodes see each other | read the topology, pause |
| nothing was granted, though it is out of its grace | the slot may have come from a node that is not | `stamps.py` |
| anything else that may end | it was demoted, it is gone, it is silent | read the topology: another may have the slot |
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from gripfast.core.ports import Unreachable
from gripfast.errors import StoreUnavailable
from gripfast.stores.cluster.levels import UNSTAMPED
from gripfast.stores.cluster.topology import Address, Topology

_REDIRECT = re.compile(r"(MOVED|ASK) (\d+) (\S*):(\d+)")

Step = Literal["moved", "ask", "pause", "down", "unstamped", "doubt", "refused"]
"""refused: to retry does not help."""


class Next(NamedTuple):
    step: Step
    to: Address | None = None
    """For "moved" and "ask"."""
    slot: int = -1


def after(answer: Unreachable, topology: Topology, asked: Address) -> Next:
    """What follows the answer of this node."""
    said = answer.error._reply if isinstance(answer.error, StoreUnavailable) else ""
    if found := _REDIRECT.match(said):
        to = topology.address(found[3], int(found[4]), asked)
        return Next("moved" if found[1] == "MOVED" else "ask", to, int(found[2]))
    if said.startswith("TRYAGAIN") or "non local key" in said:
        return Next("pause")
    if said == UNSTAMPED:
        return Next("unstamped")
    if said.startswith("CLUSTERDOWN"):
        return Next("down")
    is_final = answer.is_permanent or answer.ready_in is not None or not isinstance(answer.error, StoreUnavailable)
    return Next("refused" if is_final else "doubt")
