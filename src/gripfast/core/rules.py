"""The numbers of a lease: plain functions on plain values, each rule in one place.

All times are seconds on the client's boot clock unless a name says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from gripfast.errors import ConfigurationError

TTL_DEFAULT = 30.0
TTL_MIN = 0.010
TTL_MAX = 24 * 3600.0
KEEP_MAX = 10 * 366 * 24 * 3600.0
"""Of what is kept after a release: ten years."""
NAME_BYTES_MAX = 512
LABEL_BYTES_MAX = 4096
GROUP_BYTES_MAX = NAME_BYTES_MAX
"""The template of a decorator's name is a group, too."""
REASON_BYTES_MAX = 1024

TOKEN_MEMORY_US = 24 * 3600 * 1_000_000
"""How long the token of an idle name is kept, past the later of now and the token itself."""

WAITER_WINDOW = 10.0
"""A waiter that was not seen for this long has left."""


CLOCK_RATES = 0.01
"""How much clock rates may differ."""

CLOCK_GRAIN = 0.002
"""How coarse, in seconds, engines' clocks may be."""


def drift(ttl: float) -> float:
    """What two clocks may differ by over one ttl."""
    return CLOCK_RATES * ttl + CLOCK_GRAIN


def dates(sent: float, ttl: float) -> tuple[float, float]:
    """Until when a lease is valid, and when to renew it. On the hot path, so drift(ttl) is written out.

    Validity is dated by the moment before the request left: whatever the engine does comes later.
    """
    return sent + ttl - (CLOCK_RATES * ttl + CLOCK_GRAIN), sent + ttl / 3


def deadline(sent: float, ttl: float) -> float:
    return dates(sent, ttl)[0]


def forgotten_at(sent: float, ttl: float) -> float:
    """When the engine has forgotten, by itself, whatever a request left there: a lease, or a position in the queue."""
    return sent + max(ttl, WAITER_WINDOW) + drift(ttl)


def renew_slack(ttl: float) -> float:
    """Leases due this soon are renewed in the same batch."""
    return ttl / 30


def renew_retry(ttl: float) -> float:
    """Pause after a renewal that did not reach the engine."""
    return min(1.0, ttl / 20)


RENEWAL_LEAST = 0.05
"""Seconds that a try to renew may last in any case: it may have to make a connection."""


def renewal_timeout(ttl: float, request_timeout: float) -> float:
    """How long one try to renew may last. A connection may be dead without a word: there must be time left to notice
    that and to renew on another one, twice, before the lease is over."""
    return min(request_timeout, max(ttl / 4, RENEWAL_LEAST))


def refresh_pace(ttl: float) -> float:
    """How often a waiter shows that it is still there; also the age of the date a pushed grant gets."""
    return min(3.0, ttl / 3)


def ask_again_at(now: float, ttl: float, holder_expires_in: float | None) -> float:
    """When a waiter asks although nobody woke it: when the holder's time should be over, or at the slow pace."""
    pace = refresh_pace(ttl)
    if holder_expires_in is None:
        return now + pace
    return now + min(pace, max(0.0, holder_expires_in) + 0.001)


def look_again_at(now: float, ttl: float, leader_expires_in: float | None) -> float:
    """When a watcher looks who leads: at the pace of a waiter, sooner if the leader's time should be over by then. But
    never much sooner: an engine may show somebody whose time is over."""
    pace = refresh_pace(ttl)
    return max(ask_again_at(now, ttl, leader_expires_in), now + pace / 20)


def is_fresh(remaining: float, ttl: float) -> bool:
    """A pushed grant with less than half its ttl left is asked for once more before it is returned."""
    return remaining >= ttl / 2


def retry_pause(attempt: int) -> float:
    """Pause before asking an unreachable engine again."""
    return float(min(1.0, 0.05 * 2 ** min(attempt, 10)))


def give_back_pause(failures: int, left: int) -> float:
    """Pause before an engine is asked again to release what nobody has, after so many failures in a row. As long as it
    is little that is left, trying costs little."""
    return 0.25 if left <= GIVE_BACK_TRY else float(min(2.0, 0.25 * 2 ** min(failures - 1, 10)))


GIVE_BACK_MOST = 1000
"""Owners whose things are released in one round of the watchdog, which has renewals to make, too."""

GIVE_BACK_WITHIN = 2.0
"""Seconds for a batch of them: the connection may be dead without a word, and what is not done is tried again."""

GIVE_BACK_TRY = 50
"""As many while the engine does not answer: whether it does again shows with a few."""


READ_LATE = 1.0
"""Seconds in which the watchdog reads the answer to a release that nobody waits for."""


LOOK_AT_SESSIONS = 0.25
"""Seconds between two looks whether the sessions of leases are still there."""


NAMED_MOST = 3
"""Locks that one line of the log names."""


def named(names: Iterable[str]) -> str:
    """For messages about several locks: the first few, and how many more there are."""
    all_names = list(names)
    more = len(all_names) - NAMED_MOST
    return ", ".join(map(repr, all_names[:NAMED_MOST])) + (f" and {more} more" if more > 0 else "")


def next_token(last: int, wall_us: int) -> int:
    """Grows though clocks jump (the +1), and grows after the engine lost its memory (the clock)."""
    return max(last + 1, wall_us)


FROM_ARGUMENTS = "A name that depends on the arguments is a text with placeholders, such as 'report:{user_id}'"


def checked_name(name: object) -> str:
    if isinstance(getattr(name, "name", None), str):
        raise ConfigurationError(f"a lock's name must be text, not {type(name).__name__}: write its .name")
    if not isinstance(name, str) and callable(name):
        raise ConfigurationError(
            f"a lock's name must be text, not {type(name).__name__}: to decorate a function, write @client.locked(name)"
            f". {FROM_ARGUMENTS}"
        )
    text = _checked_text("lock's name", name, NAME_BYTES_MAX, least=1)
    if "\0" in text:
        raise ConfigurationError(f"a lock's name must not contain NUL: {text!r}")
    return text


def checked_ttl(ttl: object, max_ttl: float = TTL_MAX) -> float:
    seconds = _checked_seconds("ttl", ttl, TTL_MIN, TTL_MAX)
    if seconds > max_ttl:
        raise ConfigurationError(
            f"ttl must be at most max_ttl ({max_ttl:g} seconds), not {seconds:g}. Use a shorter ttl (leases "
            "are renewed while they are held), or set a larger max_ttl in every client of these nodes"
        )
    return seconds


def checked_max_ttl(max_ttl: object) -> float:
    return _checked_seconds("max_ttl", max_ttl, TTL_MIN, TTL_MAX)


def checked_max_hold(max_hold: object) -> float | None:
    return None if max_hold is None else _checked_seconds("max_hold", max_hold, TTL_MIN, math.inf)


def checked_min_hold(min_hold: object) -> float | None:
    return None if min_hold is None else _checked_seconds("min_hold", min_hold, TTL_MIN, KEEP_MAX)


def checked_keep(keep: object) -> float:
    return _checked_seconds("keep", keep, TTL_MIN, KEEP_MAX)


def checked_prefix(prefix: object) -> str:
    """Of names; unlike a name it may be empty."""
    return "" if prefix == "" else checked_name(prefix)


REQUEST_TIMEOUT_MIN = 0.001
REQUEST_TIMEOUT_MAX = 3600.0
"""Shorter than any server answers, and longer than anybody means: timers of the system end somewhere, too."""

PATIENCE_MAX = 365 * 24 * 3600.0


def checked_request_timeout(option: str, seconds: object) -> float:
    return _checked_seconds(option, seconds, REQUEST_TIMEOUT_MIN, REQUEST_TIMEOUT_MAX)


def checked_connect_patience(seconds: object) -> float:
    """0 is one try."""
    return _checked_seconds("connect_patience", seconds, 0.0, PATIENCE_MAX)


def checked_patience(option: str, seconds: object) -> float:
    return _checked_seconds(option, seconds, 0.0, math.inf)


def checked_wait(wait: object) -> float | None:
    """Seconds of patience; None, like infinity, is for ever."""
    if wait is None or wait == math.inf:
        return None
    if isinstance(wait, bool):
        raise ConfigurationError(
            f"wait must be a number of seconds, not {wait!r}: 0 means do not wait, None means wait for ever. To get "
            "None instead of an error, write try_acquire()"
        )
    if wait == -1:
        raise ConfigurationError("wait must be 0 or more seconds, not -1: write None to wait for ever")
    return checked_patience("wait", wait)


LIMIT_MAX = 100_000
"""Permits of one semaphore: each of them has a number that somebody has to remember."""


def checked_limit(limit: object) -> int:
    return _checked_count("limit", limit, LIMIT_MAX)


def checked_n(n: object, limit: int) -> int:
    count = _checked_count("n", n, LIMIT_MAX)
    if count > limit:
        raise ConfigurationError(f"n must be at most the semaphore's limit ({limit}), not {count}")
    return count


def _checked_count(option: str, value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ConfigurationError(f"{option} must be a whole number from 1 to {most}, not {value!r}")
    return value


def checked_flag(option: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{option} must be True or False, not {value!r}")
    return value


def checked_label(label: object) -> str | None:
    return None if label is None else _checked_text("label", label, LABEL_BYTES_MAX)


def checked_value(value: object) -> str:
    """Of an election. It is kept as a label."""
    return _checked_text("leader's value", value, LABEL_BYTES_MAX)


def checked_reason(reason: object) -> str | None:
    """Of a force release; an empty one is none."""
    return None if reason is None else _checked_text("reason", reason, REASON_BYTES_MAX) or None


def checked_group(group: object) -> str | None:
    return None if group is None else _checked_text("group", group, GROUP_BYTES_MAX, least=1)


def _checked_text(what: str, text: object, most: int, least: int = 0) -> str:
    if not isinstance(text, str):
        raise ConfigurationError(f"a {what} must be text, not {type(text).__name__}")
    if not _encodes(text):
        raise ConfigurationError(f"a {what} must be valid Unicode text (no lone surrogates): {text!r}")
    size = len(text.encode())
    if not least <= size <= most:
        allowed = f"{least} to {most}" if least else f"at most {most}"
        raise ConfigurationError(f"a {what} must have {allowed} UTF-8 bytes; this one has {size}")
    return text


def _encodes(text: str) -> bool:
    """Lone surrogates do not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _checked_seconds(option: str, value: object, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        hint = ". In Python write seconds as a number, such as 30 or 1.5" if isinstance(value, str) else ""
        hint = ". Write its total_seconds()" if hasattr(value, "total_seconds") else hint
        raise ConfigurationError(f"{option} must be a number of seconds, not {value!r}{hint}")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not low <= seconds <= high or math.isnan(seconds) or math.isinf(seconds):
        upper = f" to {high:g}" if math.isfinite(high) else " or more"
        raise ConfigurationError(f"{option} must be {low:g}{upper} seconds, not {value!r}")
    return seconds
