"""What a client does so that a failover of its server makes no two holders: settings, for one server.

Replication is asynchronous. If a primary dies before its replica has a lock, the promoted replica grants that lock
again. Two levels close this:

- *Grace*: a server that was just promoted, or has just begun, grants nothing until every lease of the server before it
  is over.
- *Acknowledgements*, only together with grace: no grant and no renewal is believed before `replicas` replicas have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from gripfast import durations
from gripfast.core import rules
from gripfast.core.ports import Capabilities
from gripfast.errors import ConfigurationError
from gripfast.stores.options import Option

if TYPE_CHECKING:  # the spec is imported where hiredis is not installed
    from gripfast.stores.redis.followers import Replicas

MAX_TTL = 60.0
REPLICAS_MOST = 100
OPTIONS: Mapping[str, Option] = {
    "failover_grace": Option(
        "text",
        "with replicas: how long a primary may go on after another was promoted; after a failover nothing is granted "
        "for this time plus `max_ttl`. `off` turns this protection off",
    ),
    "max_ttl": Option("seconds", "with `failover_grace`: the largest ttl of a lock; set the same value in all clients"),
    "replicas": Option("number", "with `failover_grace`: how many replicas must acknowledge each grant and renewal"),
}


class Failover(NamedTuple):
    max_ttl: float
    """Seconds: the largest ttl that a lock may have."""
    goes_on: float
    """Seconds for which an old primary may go on after another was promoted."""
    replicas: int = 0
    """How many replicas must acknowledge; 0 for none."""
    promotable: Callable[[], Replicas | None] = lambda: None
    """Which replicas may be promoted, as far as it is known: what Sentinel or the Cluster says. May block; may
    raise LinkDown."""

    @property
    def grace(self) -> float:
        """Seconds."""
        return self.max_ttl + self.goes_on


def failover_of(options: dict[str, Any], goes_on: float | None = None) -> Failover | None:
    """From the options, which are taken out. `goes_on`: if `failover_grace` is not set; None if the level is off then.
    Sentinel and the Cluster tell `promotable` later."""
    goes_on = _checked_goes_on(options.pop("failover_grace", goes_on))
    given = {name: options.pop(name) for name in ("max_ttl", "replicas") if name in options}
    if goes_on is None:
        if given:
            raise ConfigurationError(f"{min(given)} is for failover_grace only: set that, too, as in failover_grace=15")
        return None
    max_ttl = rules.checked_max_ttl(given.get("max_ttl", MAX_TTL))
    return Failover(max_ttl, goes_on, _checked_replicas(given.get("replicas", 0)))


def with_replicas(capabilities: Capabilities, failover: Failover | None) -> tuple[Capabilities, str]:
    """Of a primary that somebody may replace, and what `once()` needs there: a failover forgets what no replica has
    acknowledged, so a "done" that was told could be begun again."""
    if failover is not None and failover.replicas:
        return capabilities, ""
    return replace(capabilities, once=False), "replicas=N"


def _checked_goes_on(value: object) -> float | None:
    if value is None or value is False or value == "off":
        return None
    try:
        seconds = durations.read(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ConfigurationError(f"failover_grace {error}; or off") from None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0.0 <= seconds <= rules.TTL_MAX:
        raise ConfigurationError(f"failover_grace must be a number of seconds from 0 to 86400, or off, not {value!r}")
    return float(seconds)


def _checked_replicas(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= REPLICAS_MOST:
        raise ConfigurationError(f"replicas must be a whole number from 0 to {REPLICAS_MOST}, not {value!r}")
    return value
