"""What a client does so that a failover of its server makes no two holders: settings, for one server.

Replication is asynchronous. If a primary dies before its replica has a lock, the promoted replica grants that lock
again. Two levels close this:

- *Grace*: a server that was just promoted, or has just begun, grants nothing until every lease of the server before it
  is over.
- *Acknowledgements*, only together with grace: no grant and no renewal is believed before `replicas` replicas have it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Failover(NamedTuple):
    max_ttl: float
    """Seconds: the largest ttl that a lock may have."""
    goes_on: float
    """Seconds for which an old primary may go on after another was promoted."""
    replicas: int = 0
    """How many replicas must acknowledge; 0 for none."""
    promotable: Callable[[], int | None] = lambda: None
    """How many replicas may be promoted, as far as it is known: what Sentinel or the Cluster says. May block; may
    raise LinkDown."""

    @property
    def grace(self) -> float:
        """Seconds."""
        return self.max_ttl + self.goes_on
