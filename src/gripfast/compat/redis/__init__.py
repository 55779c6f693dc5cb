"""redis-py's lock classes over Gripfast: `redis.Redis().lock("job", lock_class=gripfast.compat.redis.Lock)`.

Arguments, answers, errors and the key in Redis are those of redis-py, and both kinds of lock exclude each other. What
differs, because it goes wrong there:

- `timeout=None` is a lease of 30 s that is renewed while its holder lives, not a key that stays for ever. With a
  timeout the lock is a lease of that many seconds which nobody renews, as in redis-py (10 ms at least, a day at most).
- Waiting is first come, first served, and woken: `sleep` is accepted and not used.
- A lost reply, a cancelled task, an interrupt or a fork leaves no key behind; threads and tasks that share a lock
  object do not release each other's lock.
- A lock object that is dropped while it holds the lock gives it back, with a ResourceWarning, and so does a thread that
  ends (with `thread_local`). Whoever means to leave it locked until its timeout must keep the object so long.
- What the body of a `with` block raised is not replaced by the news that the lock was lost meanwhile.
- An engine that can't be reached is asked again, for 30 s if the wait has no limit, before its error comes out.
  release() does not fail for that: it is repeated in the background.

`lock.fencing_token` and `lock.lease` lead on to Gripfast's own API.
"""

from __future__ import annotations

from gripfast.extras import how_to_install as _how_to_install

try:
    import redis as _redis  # noqa: F401 - to tell what is missing before anything else fails
except ImportError as error:
    raise ImportError(f"gripfast.compat.redis needs redis-py: {_how_to_install('redis')}") from error

from gripfast.compat.redis.aio import AsyncLock
from gripfast.compat.redis.blocking import Lock

__all__ = ["AsyncLock", "Lock"]
